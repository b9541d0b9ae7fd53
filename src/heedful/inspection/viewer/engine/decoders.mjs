// Decoders: start(memory) -> { source, past }, then read(tokens, pasts, source) -> the logits of the next token, for several
// hypotheses at once. A past is never changed: every hypothesis that begins alike shares it.
//
//     transformer         x = x + self-attention(x), x = x + cross-attention(x, memory), x = x + feed-forward(x)
//     recurrent, query    c_t = attend(z_{t-1}),  z_t = RNN([e; c_t; fed], z_{t-1}),  o_t = tanh(W [z_t; c_t; e])
//     from previous
//     query from current  z_t = RNN([e; fed], z_{t-1}),  c_t = attend(z_t),           o_t = tanh(W [z_t; c_t])
//     logits              W o_t [+ b]

import { CrossAttention, SelfAttention, SingleAttention } from "./attention.mjs";
import { RecurrentLayer } from "./cells.mjs";
import { Embed, makeFeedForward, makeNorm, makeResidual } from "./layers.mjs";
import { concatenate, linear, linearVector, rowOf, rowsOf, sigmoid, stack } from "./tensors.mjs";

const upTo = (length) => Array.from({ length }, (_, at) => at);

class TransformerDecoder {
  constructor(weights, settings, embed) {
    this.embed = embed;
    this.layers = upTo(settings.layers).map((layer) => {
      const name = `decoder.layers.${layer}`, options = { ...settings, width: embed.width, layer };
      return {
        attention: new SelfAttention(weights, `${name}.attention`, { ...options, place: "decoder" }),
        cross: new CrossAttention(weights, `${name}.cross`, options),
        feedForward: makeFeedForward(weights, `${name}.feed_forward`, settings.activation),
        aroundAttention: makeResidual(weights, `${name}.around_attention`, settings.norm),
        aroundCross: makeResidual(weights, `${name}.around_cross`, settings.norm),
        aroundFeedForward: makeResidual(weights, `${name}.around_feed_forward`, settings.norm),
      };
    });
    this.norm = settings.norm === "pre" ? makeNorm(weights, "decoder.norm") : (x) => x;
    this.cross = this.layers.map(({ cross }) => cross);
    this.self = this.layers.map(({ attention }) => attention);
  }
  start(memory) {
    return { source: this.layers.map(({ cross }) => cross.prepare(memory)), past: { length: 0, layers: this.layers.map(({ attention }) => attention.nothing) } };
  }
  read(tokens, pasts, source, changes) {
    const step = pasts[0].length, next = pasts.map(() => ({ length: step + 1, layers: [] })), records = pasts.map(() => ({ cross: [], decoder: [] }));
    let x = this.embed.embed(tokens, pasts.map(({ length }) => length));
    this.layers.forEach(({ attention, cross, feedForward, aroundAttention, aroundCross, aroundFeedForward }, layer) => {
      x = aroundAttention(x, (y) => {
        const read = attention.readNext(y, pasts.map(({ layers }) => layers[layer]), step, changes);
        read.pasts.forEach((past, row) => { next[row].layers.push(past); records[row].decoder.push(read.records[row]); });
        return read.update;
      });
      x = aroundCross(x, (y) => {
        const read = cross.read(y, source[layer], pasts.map(() => null), step, changes);
        read.records.forEach((record, row) => records[row].cross.push(record));
        return read.contexts;
      });
      x = aroundFeedForward(x, feedForward);
    });
    return { states: this.norm(x), pasts: next, records };
  }
}

// The first hidden state of a recurrent decoder, from the memory.
const INITIAL_STATES = {
  mean: (memory) => { const rows = rowsOf(memory); return rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length); },
  last: (memory) => rowOf(memory, memory.rows - 1),
  zero: (memory) => new Float32Array(memory.columns),
};

class RecurrentDecoder {
  constructor(weights, settings, embed) {
    Object.assign(this, { embed, settings, width: settings.width });
    this.layers = upTo(settings.layers).map((layer) => new RecurrentLayer(weights, "decoder.rnn", layer, settings));
    const layer = (name) => (weights.has(`decoder.${name}.weight`) ? weights.layer(`decoder.${name}`) : null);
    [this.bridge, this.readout, this.gate] = [layer("bridge"), layer("readout"), layer("gate")];
    this.attention = this.makeAttention(weights, settings.attention);
    this.attendsFirst = settings.query_from === "previous" && this.attention !== null;
    this.cross = this.attention ? [this.attention] : [];
    this.self = [];
  }
  makeAttention(weights, attention) {
    if (!attention) return null;
    const name = "decoder.attention", normalizer = attention.normalizer === "sampled" ? (attention.sampled?.decode === "expected" ? "soft" : "hard") : attention.normalizer;
    if (!attention.heads) return new SingleAttention(weights, name, { score: attention.score, normalizer });
    return new CrossAttention(weights, name, { ...attention, normalizer, layer: 0, width: this.width, tieKeysValues: attention.tie_keys_values });
  }
  start(memory) {
    const { settings, width } = this, summary = INITIAL_STATES[settings.initial_state](memory), isLstm = settings.cell === "lstm";
    let first = summary.length === width ? summary : new Float32Array(width), states;
    if (this.bridge) {
      const all = linearVector(summary, this.bridge.weight, this.bridge.bias).map(Math.tanh), part = (at) => all.subarray(at * width, (at + 1) * width);
      states = this.layers.map((_, at) => ({ hidden: part(at), cell: isLstm ? part(settings.layers + at) : null }));
    } else states = this.layers.map(() => ({ hidden: first, cell: isLstm ? new Float32Array(width) : null }));
    const source = this.attention ? this.attention.prepare(memory) : null;
    return { source, past: { length: 0, states, fed: settings.input_feeding ? new Float32Array(this.embed.width) : null, score: source && this.attention.start(source) } };
  }
  read(tokens, pasts, source, changes) {
    const words = rowsOf(this.embed.embed(tokens, pasts.map(() => 0))), step = pasts[0].length, next = pasts.map(() => ({ length: step + 1, fed: null, score: null })), records = pasts.map(() => ({ cross: [], decoder: [] }));
    const attend = (queries) => {
      const read = this.attention.read(stack(queries), source, pasts.map(({ score }) => score), step, changes);
      read.records.forEach((record, row) => { records[row].cross.push(record); next[row].score = read.states[row]; });
      return rowsOf(read.contexts).map((context, row) => (this.gate ? scaleBy(context, sigmoid(linearVector(queries[row], this.gate.weight, this.gate.bias)[0])) : context));
    };
    const run = (inputs) => {
      let outputs = inputs.map((input, row) => (pasts[row].fed ? concatenate(input, pasts[row].fed) : input));
      const layers = this.layers.map((layer, at) => {
        const states = layer.step(stack(outputs), pasts.map(({ states: before }) => before[at]));
        outputs = states.map(({ hidden }) => hidden);
        return states;
      });
      next.forEach((past, row) => { past.states = layers.map((states) => states[row]); });
      return outputs;
    };
    let parts;
    if (this.attendsFirst) {
      const contexts = attend(pasts.map(({ states }) => states[states.length - 1].hidden)), outputs = run(words.map((word, row) => concatenate(word, contexts[row])));
      parts = outputs.map((output, row) => concatenate(output, contexts[row], words[row]));
    } else {
      const outputs = run(words), contexts = this.attention ? attend(outputs) : null;
      parts = contexts ? outputs.map((output, row) => concatenate(output, contexts[row])) : outputs;
    }
    const states = this.readout ? linear(stack(parts), this.readout.weight, this.readout.bias) : stack(parts);
    if (this.readout) states.numbers.forEach((value, i) => { states.numbers[i] = Math.tanh(value); });
    if (this.settings.input_feeding) next.forEach((past, row) => { past.fed = rowOf(states, row); });
    return { states, pasts: next, records };
  }
}
const scaleBy = (vector, factor) => vector.map((value) => value * factor);

const DECODERS = { transformer: TransformerDecoder, recurrent: RecurrentDecoder };

export function makeDecoder(weights, model) {
  const positions = model.decoder.kind === "recurrent" ? null : model.positions;
  const embed = new Embed(weights, "decoder.embed", { positions, scaleEmbeddings: model.scale_embeddings });
  return new DECODERS[model.decoder.kind](weights, model.decoder, embed);
}
