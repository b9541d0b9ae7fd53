// Attention: score -> normalize -> weighted sum.
//
//     e_i = score(q, k_i)          how relevant slot i is to the query
//     a   = normalizer(e)          a distribution over the slots
//     c   = sum_i a_i v_i          the context
//
//     dot                q . k
//     scaled_dot         q . k / sqrt(d)
//     bilinear           q . W k
//     additive           v . tanh(W q + U k + b)
//     location           (W q)_i
//     content_location   v . tanh(W q + U k_i + F f_i + b),  f = filters * weights of the step before
//     gaussian           log sum_m alpha_m exp(-beta_m (kappa_m - i)^2),  kappa_m <- kappa_m + exp(step_m)
//
// A score has `prepare`, once per slot, and `scores`; those with a state also have `start` and `advance`. Keys and values are
// lists of vectors, so that a decoder can append to them.

import { argmax, concatenate, dot, linear, linearVector, logSumExp, matrix, rowsOf, softmax, stack } from "./tensors.mjs";

const unchanged = (key) => key;
const dots = (scale) => ({ prepare: unchanged, scores: (query, keys) => Float32Array.from(keys, (key) => dot(query, key) * scale(query)) });

function additive(weights, name) {
  const key = weights.layer(`${name}.key`), { weight: query } = weights.layer(`${name}.query`), energy = weights.vector(`${name}.energy.weight`);
  const energyOf = (asked, prepared, moved) => {
    let sum = 0;
    for (let j = 0; j < energy.length; j++) sum += energy[j] * Math.tanh(asked[j] + prepared[j] + (moved ? moved[j] : 0));
    return sum;
  };
  return {
    energy,
    shownQuery: (vector) => linearVector(vector, query),
    prepare: (vector) => linearVector(vector, key.weight, key.bias),
    scores(vector, keys, moved = null) {
      const asked = linearVector(vector, query);
      return Float32Array.from(keys, (prepared, slot) => energyOf(asked, prepared, moved?.[slot]));
    },
  };
}

export const SCORES = {
  dot: () => dots(() => 1),
  scaled_dot: () => dots((query) => 1 / Math.sqrt(query.length)),
  bilinear: (weights, name) => {
    const { weight } = weights.layer(`${name}.key`);
    return { ...dots(() => 1), prepare: (key) => linearVector(key, weight) };
  },
  additive,
  location: (weights, name) => {
    const { weight } = weights.layer(`${name}.slot`);
    const rowsFor = (keys) => {
      if (keys.length > weight.rows) throw new Error(`this model attends to at most ${weight.rows} pieces, but there are ${keys.length}: use a shorter sentence`);
      return matrix(keys.length, weight.columns, weight.numbers.subarray(0, keys.length * weight.columns));
    };
    return { prepare: unchanged, scores: (query, keys) => linearVector(query, rowsFor(keys)), shownKeys: (keys) => rowsOf(rowsFor(keys)) };
  },
  content_location: (weights, name) => {
    const content = additive(weights, `${name}.content`), filters = weights.table(`${name}.convolve.weight`), place = weights.table(`${name}.place.weight`), half = filters.columns >> 1;
    // F f_i of every slot, from the weights of the step before.
    const moved = (before) => rowsOf(linear(stack(Array.from(before, (_, slot) => Float32Array.from({ length: filters.rows }, (_, filter) => {
      let sum = 0;
      for (let j = -half; j <= half; j++) sum += filters.numbers[filter * filters.columns + j + half] * (before[slot + j] ?? 0);
      return sum;
    }))), place));
    return { ...content, scores: (query, keys, before) => content.scores(query, keys, moved(before)), moved, start: (keys) => new Float32Array(keys.length), advance: (query, before, chosen) => chosen };
  },
  gaussian: (weights, name) => {
    const window = weights.layer(`${name}.window`), count = window.weight.rows / 3;
    const parameters = (query) => { const all = linearVector(query, window.weight, window.bias); return [0, 1, 2].map((at) => all.subarray(at * count, (at + 1) * count)); };
    return {
      hidesVectors: true,
      prepare: unchanged,
      scores(query, keys, centers) {
        const [logAlpha, logBeta, step] = parameters(query);
        return Float32Array.from(keys, (_, slot) => logSumExp(logAlpha.map((value, m) => value - Math.exp(logBeta[m]) * (centers[m] + Math.exp(step[m]) - slot) ** 2)));
      },
      start: () => new Float32Array(count).fill(-1),
      advance: (query, centers) => parameters(query)[2].map((step, m) => centers[m] + Math.exp(step)),
    };
  },
};

export const NORMALIZERS = {
  soft: softmax,
  hard: (scores) => { const best = argmax(scores); return scores.map((_, slot) => Number(slot === best)); },
};

// What differs from the model as it was trained: silenced heads contribute a zero context, and edited cells { place, layer,
// head, step, slot, weight } have a weight that was chosen. An edit without a head is one of all heads of its place. Layers,
// heads, steps and slots count from 0.
export class Changes {
  constructor({ silenced = [], edits = [] } = {}) {
    this.silenced = new Set(silenced.map(({ place, layer, head }) => `${place} ${layer} ${head}`));
    this.edits = edits;
  }
  silences(place, layer, head) { return this.silenced.has(`${place} ${layer} ${head}`); }
  edit(place, layer, head, step, weights) {
    const edits = this.edits.filter((edit) => edit.place === place && edit.step === step && (edit.head === undefined || (edit.layer === layer && edit.head === head)));
    return edits.length ? editRow(weights, edits) : weights;
  }
}

// A row with chosen weights w_i; the others keep their proportions, so that the sum stays 1:
//
//     a_j <- a_j (1 - sum_i w_i) / (1 - sum_i a_i)
//
// Chosen weights that sum to more than 1, or that are the whole row, are divided by their sum.
export function editRow(weights, edits) {
  const chosen = new Map(edits.filter(({ slot }) => slot < weights.length).map(({ slot, weight }) => [slot, weight])), others = weights.length - chosen.size;
  let total = 0, rest = 0;
  weights.forEach((value, slot) => { if (chosen.has(slot)) total += chosen.get(slot); else rest += value; });
  if (!chosen.size || (!others && !total)) return weights;
  const scale = total > 1 || !others ? 1 / total : 1, left = Math.max(0, 1 - total);
  return weights.map((value, slot) => (chosen.has(slot) ? chosen.get(slot) * scale : rest > 1e-6 ? (value * left) / rest : left / others));
}

// One query, one head -> the context, the state of the score, and what was computed.
function attend(score, normalize, query, { keys, values }, state, change) {
  const scores = score.scores(query, keys, state), weights = change(normalize(scores)), context = new Float32Array(values[0].length);
  values.forEach((value, slot) => { for (let j = 0; j < context.length; j++) context[j] += weights[slot] * value[j]; });
  return { context, state: score.advance ? score.advance(query, state, weights) : null, record: { query, scores, weights, before: state } };
}

// Several heads: head h reads its part of the projected vectors. `place` and `layer` name it for changes and recordings.
class Heads {
  constructor(weights, name, { place, layer, heads, width, score, normalizer, combine }) {
    Object.assign(this, { place, layer, heads, width, normalizer, scoreName: score, isMean: combine === "average", headWidth: width / heads });
    this.valueWidth = this.isMean ? width : this.headWidth;
    this.score = SCORES[score](weights, `${name}.score`);
    this.normalize = NORMALIZERS[normalizer];
    this.out = this.isMean ? null : weights.layer(`${name}.out`);
  }
  each(make) { return Array.from({ length: this.heads }, (_, head) => make(head)); }
  query(vector, head) { return vector.subarray(head * this.headWidth, (head + 1) * this.headWidth); }
  key(vector, head) { return this.score.prepare(this.query(vector, head)); }
  // Values follow the keys of all heads; if they are tied, they are the keys.
  value(vector, head) { const from = (this.isTied ? 0 : this.width) + head * this.valueWidth; return vector.subarray(from, from + this.valueWidth); }
  start(source) { return this.score.start ? source.map(({ keys }) => this.score.start(keys)) : null; }
  // A projected query and the keys and values of every head -> the context of all heads before the output layer.
  attendHeads(query, source, states, step, changes) {
    const attended = this.each((head) => {
      const result = attend(this.score, this.normalize, this.query(query, head), source[head], states?.[head] ?? null, (weights) => changes.edit(this.place, this.layer, head, step, weights));
      if (changes.silences(this.place, this.layer, head)) result.context.fill(0);
      return result;
    });
    const contexts = attended.map(({ context }) => context);
    const context = this.isMean ? contexts[0].map((_, j) => contexts.reduce((sum, other) => sum + other[j], 0) / this.heads) : concatenate(...contexts);
    return { context, states: states && attended.map(({ state }) => state), record: attended.map(({ record }) => record) };
  }
  combineHeads(contexts) { return this.out ? linear(contexts, this.out.weight, this.out.bias) : contexts; }
}

// Multi-head attention to a memory.
export class CrossAttention extends Heads {
  constructor(weights, name, options) {
    super(weights, name, { place: "cross", ...options });
    this.isTied = Boolean(options.tieKeysValues);
    [this.queries, this.memory] = [weights.layer(`${name}.query`), weights.layer(`${name}.memory`)];
    this.contextWidth = options.width;
  }
  prepare(memory) {
    const projected = rowsOf(linear(memory, this.memory.weight, this.memory.bias));
    return this.each((head) => ({ keys: projected.map((vector) => this.key(vector, head)), values: projected.map((vector) => this.value(vector, head)) }));
  }
  // A matrix with a query per row, all at the same step -> contexts, and the states and records of every row.
  read(x, source, states, step, changes) {
    const queries = linear(x, this.queries.weight, this.queries.bias);
    const rows = rowsOf(queries).map((query, row) => this.attendHeads(query, source, states[row], step, changes));
    return { contexts: this.combineHeads(stack(rows.map(({ context }) => context))), states: rows.map(({ states: after }) => after), records: rows.map(({ record }) => record) };
  }
}

// One distribution over the annotation vectors themselves, without projections of them.
export class SingleAttention {
  constructor(weights, name, { width, score, normalizer }) {
    Object.assign(this, { place: "cross", layer: 0, heads: 1, normalizer, scoreName: score, contextWidth: width });
    this.score = SCORES[score](weights, `${name}.score`);
    this.normalize = NORMALIZERS[normalizer];
  }
  prepare(memory) {
    const values = rowsOf(memory);
    return [{ keys: values.map((vector) => this.score.prepare(vector)), values }];
  }
  start([{ keys }]) { return this.score.start ? [this.score.start(keys)] : null; }
  read(x, [source], states, step, changes) {
    const rows = rowsOf(x).map((query, row) => {
      const result = attend(this.score, this.normalize, query, source, states[row]?.[0] ?? null, (weights) => changes.edit("cross", 0, 0, step, weights));
      if (changes.silences("cross", 0, 0)) result.context.fill(0);
      return result;
    });
    return { contexts: stack(rows.map(({ context }) => context)), states: rows.map(({ state }) => state && [state]), records: rows.map(({ record }) => [record]) };
  }
}

// Multi-head attention of a sequence to itself: queries, keys and values in one product.
export class SelfAttention extends Heads {
  constructor(weights, name, options) {
    super(weights, name, options);
    this.project = weights.layer(`${name}.project`);
  }
  // The keys and values of no slots.
  get nothing() { return this.each(() => ({ keys: [], values: [] })); }
  extend(past, vector) {
    const slot = vector.subarray(this.width);
    return past.map(({ keys, values }, head) => ({ keys: [...keys, this.key(slot, head)], values: [...values, this.value(slot, head)] }));
  }
  // Every row attends to all rows (an encoder).
  readAll(x, changes) {
    const projected = rowsOf(linear(x, this.project.weight, this.project.bias)), slots = projected.map((vector) => vector.subarray(this.width));
    const source = this.each((head) => ({ keys: slots.map((vector) => this.key(vector, head)), values: slots.map((vector) => this.value(vector, head)) }));
    const rows = projected.map((query, step) => this.attendHeads(query, source, null, step, changes));
    return { update: this.combineHeads(stack(rows.map(({ context }) => context))), records: rows.map(({ record }) => record), source };
  }
  // Every row is the next token of a past of its own (a decoder).
  readNext(x, pasts, step, changes) {
    const projected = rowsOf(linear(x, this.project.weight, this.project.bias)), extended = projected.map((vector, row) => this.extend(pasts[row], vector));
    const rows = projected.map((query, row) => this.attendHeads(query, extended[row], null, step, changes));
    return { update: this.combineHeads(stack(rows.map(({ context }) => context))), pasts: extended, records: rows.map(({ record }) => record) };
  }
}
