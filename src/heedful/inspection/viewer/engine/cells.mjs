// The recurrent cells, as PyTorch computes them (x is the input of a step, h and c are the state).
//
//     rnn    h = tanh(W x + b + U h + b')
//     lstm   i, f, o = sigmoid(..), g = tanh(..) of W x + b + U h + b'
//            c = f * c + i * g,    h = o * tanh(c)
//     gru    r, z = sigmoid(..),   n = tanh(W x + b + r * (U h + b')),    h = (1 - z) * n + z * h
//
// A GRU whose reset is "before" the product has n = tanh(W x + b + U (r * h) + b').

import { addVectors, linear, linearVector, matrix, rowOf, sigmoid, stack } from "./tensors.mjs";

const part = (vector, at, size) => vector.subarray(at * size, (at + 1) * size);
const CELLS = {
  rnn: ({ fromInput, fromState }) => ({ hidden: addVectors(fromInput, fromState()).map(Math.tanh) }),
  lstm: ({ fromInput, fromState, cell, size }) => {
    const sums = addVectors(fromInput, fromState()), [i, f, g, o] = [0, 1, 2, 3].map((at) => part(sums, at, size));
    const next = cell.map((value, at) => sigmoid(f[at]) * value + sigmoid(i[at]) * Math.tanh(g[at]));
    return { hidden: next.map((value, at) => sigmoid(o[at]) * Math.tanh(value)), cell: next };
  },
  gru: ({ fromInput, fromState, hidden, size, reset }) => {
    const old = fromState(), gate = (at) => addVectors(part(fromInput, at, size), part(old, at, size)).map(sigmoid);
    const r = gate(0), z = gate(1), other = reset === "before" ? part(fromState(hidden.map((value, at) => r[at] * value)), 2, size) : part(old, 2, size).map((value, at) => r[at] * value);
    const n = addVectors(part(fromInput, 2, size), other).map(Math.tanh);
    return { hidden: n.map((value, at) => (1 - z[at]) * value + z[at] * hidden[at]) };
  },
};

// One layer: (inputs as a matrix, states { hidden, cell } of every row) -> the states after one step.
export class RecurrentLayer {
  constructor(weights, name, layer, { cell, reset }) {
    const tensor = (kind) => `${name}.${kind}_l${layer}`;
    [this.cell, this.reset] = [cell, reset];
    [this.input, this.recurrent] = [weights.table(tensor("weight_ih")), weights.table(tensor("weight_hh"))];
    [this.inputBias, this.recurrentBias] = [weights.vector(tensor("bias_ih")), weights.vector(tensor("bias_hh"))];
    this.size = this.recurrent.columns;
  }
  get start() { return { hidden: new Float32Array(this.size), cell: this.cell === "lstm" ? new Float32Array(this.size) : null }; }
  step(inputs, states) {
    const fromInputs = linear(inputs, this.input, this.inputBias), fromStates = linear(stack(states.map(({ hidden }) => hidden)), this.recurrent, this.recurrentBias);
    return states.map(({ hidden, cell }, row) => ({ cell: null, ...CELLS[this.cell]({
      fromInput: rowOf(fromInputs, row), fromState: (vector) => (vector ? linearVector(vector, this.recurrent, this.recurrentBias) : rowOf(fromStates, row)), hidden, cell, size: this.size, reset: this.reset }) }));
  }
  // The hidden states of a sequence of input vectors, from the first to the last.
  run(inputs) {
    let state = this.start;
    return inputs.map((x) => { [state] = this.step(matrix(1, x.length, x), [state]); return state.hidden; });
  }
}
