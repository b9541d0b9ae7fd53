// Search: which token is next.
//
//     greedy    y_t = argmax p(y | y_<t, x)
//     sample    y_t ~ p(y | y_<t, x)^(1 / temperature), of the k most probable, of those the smallest set that reaches p
//     beam      keep the `size` prefixes with the highest log p; a finished hypothesis of n tokens scores log p / penalty(n)
//
// Greedy search and beam search give what heedful's give. Samples depend on a seed too, but their random numbers are others.
// Every search is a generator that stops after each step, so that a page can draw in between.

import { argmax, logSoftmax, linear, maximum, rowOf } from "./tensors.mjs";

// A prefix of a translation, as a node of a tree: the decoder reads it once, whichever search asks.
export class Prefix {
  constructor(parent, token) {
    Object.assign(this, { parent, token, length: parent ? parent.length + 1 : 0, children: new Map(), output: null });
  }
  extend(token) {
    if (!this.children.has(token)) this.children.set(token, new Prefix(this, token));
    return this.children.get(token);
  }
  // The prefixes from the first token to this one.
  get path() { return this.parent ? [...this.parent.path, this] : []; }
  get tokens() { return this.path.map(({ token }) => token); }
}

// The distributions after prefixes of one sentence. An output is { past, record, logProbs }.
export class Reader {
  constructor({ decoder, output, bos, suppressed }, memory, changes) {
    Object.assign(this, { decoder, outputLayer: output, suppressed, changes });
    const { source, past } = decoder.start(memory);
    [this.source, this.past] = [source, past];
    this.root = new Prefix(null, bos);
  }
  // Read the last token of every prefix; all have the same length.
  read(prefixes) {
    const unread = prefixes.filter((prefix) => !prefix.output);
    if (!unread.length) return;
    const pasts = unread.map(({ parent }) => (parent ? parent.output.past : this.past));
    const { states, pasts: after, records } = this.decoder.read(unread.map(({ token }) => token), pasts, this.source, this.changes);
    const logits = linear(states, this.outputLayer.weight, this.outputLayer.bias);
    unread.forEach((prefix, row) => {
      const logProbs = logSoftmax(rowOf(logits, row));
      for (const token of this.suppressed) logProbs[token] = -Infinity;
      prefix.output = { past: after[row], record: records[row], logProbs };
    });
  }
}

// ------------------------------------------------------------------------------------------------ what may come next

// The prefix overrides everything; then tokens are removed that would complete a suppressed sequence.
function allowedNext(prefix, { forced = [], sequences = [] }) {
  const { logProbs } = prefix.output;
  if (prefix.length < forced.length) {
    const only = new Float32Array(logProbs.length).fill(-Infinity), token = forced[prefix.length];
    only[token] = logProbs[token];
    return only;
  }
  if (!sequences.length) return logProbs;
  const tokens = prefix.tokens, kept = logProbs.slice();
  for (const sequence of sequences) {
    const start = sequence.slice(0, -1);
    if (start.length <= tokens.length && start.every((token, at) => token === tokens[tokens.length - start.length + at])) kept[sequence[sequence.length - 1]] = -Infinity;
  }
  return maximum(kept) === -Infinity ? logProbs : kept;
}

// p^(1/t), then top-k, then top-p; not normalized.
export function filteredProbabilities(logProbs, { temperature = 1, topK = null, topP = null }) {
  const scaled = Float64Array.from(logProbs, (value) => value / temperature), most = maximum(scaled), probs = scaled.map((value) => Math.exp(value - most));
  if (topK === null && topP === null) return probs;
  const order = Array.from(probs.keys()).sort((a, b) => probs[b] - probs[a] || a - b), kept = new Set(order.slice(0, topK ?? order.length));
  if (topP !== null) {
    let before = 0;
    const total = [...kept].reduce((sum, token) => sum + probs[token], 0);
    for (const token of order.slice(0, kept.size)) {
      if (before / total >= topP - 1e-6 && token !== order[0]) kept.delete(token);
      before += probs[token];
    }
  }
  return probs.map((value, token) => (kept.has(token) ? value : 0));
}

// Random numbers from 0 to 1, determined by the seed (mulberry32).
export function makeRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function draw(probs, random) {
  const goal = random() * probs.reduce((sum, value) => sum + value, 0);
  let sum = 0, last = 0;
  for (let token = 0; token < probs.length; token++) {
    if (probs[token] === 0) continue;
    sum += probs[token];
    last = token;
    if (sum > goal) break;
  }
  return last;
}

// ------------------------------------------------------------------------------------------------- greedy and sampling

// A candidate of the tree of a search: { step, parent, prefix, total, rank, fate, why, score }.
const rankOf = (values, token) => values.reduce((sum, value) => sum + (value > values[token] ? 1 : 0), 0);

function* extendOne(reader, { eos, maxLength, forced = [], sequences }, choose) {
  const candidates = [];
  let prefix = reader.root, total = 0, last = null;  // the index of the candidate that was chosen last
  for (;;) {
    reader.read([prefix]);
    const { logProbs } = prefix.output, allowed = allowedNext(prefix, { forced, sequences }), step = prefix.length + 1, isForced = step <= forced.length, free = choose(allowed), token = isForced ? forced[step - 1] : free;  // a forced step draws too, so that later ones draw the same
    const ended = token === eos, isLast = ended || step >= maxLength, sum = total + logProbs[token];
    const describe = (other, fate, why, score = null) => ({ step, parent: last, prefix: prefix.extend(other), logProb: logProbs[other], total: total + logProbs[other], rank: rankOf(allowed, other), fate, why, score });
    const chosen = ended ? describe(token, "finished", "the end token was chosen", sum) : isLast ? describe(token, "cut", "chosen, and the limit is reached", sum) : describe(token, "kept", isForced ? "given as prefix" : "chosen");
    const second = isForced ? undefined : bestOf([{ base: 0, values: allowed }], 2).find((other) => other.token !== token);
    const both = second ? [chosen, describe(second.token, "pruned", "not chosen")].sort((a, b) => a.rank - b.rank) : [chosen];
    last = candidates.length + both.indexOf(chosen);
    candidates.push(...both);
    total = sum;
    prefix = prefix.extend(token);
    if (isLast) return { hypotheses: [{ prefix, ended, score: total, candidate: last }], candidates };
    yield prefix.length;
  }
}

export const greedy = (reader, limits) => extendOne(reader, limits, argmax);
export const sample = (reader, limits, options) => {
  const random = makeRandom(options.seed ?? 0);
  return extendOne(reader, limits, (allowed) => draw(filteredProbabilities(allowed, options), random));
};

// ----------------------------------------------------------------------------------------------------------------- beam

// (tokens without the end token, ended?, alpha) -> divisor of the total
export const LENGTH_RULES = {
  none: () => 1,
  power: (tokens, ended, alpha) => Math.max(tokens + ended, 1) ** alpha,
  power_without_end: (tokens, ended, alpha) => Math.max(tokens, 1) ** alpha,
  gnmt: (tokens, ended, alpha) => ((5 + tokens + ended) / 6) ** alpha,
};

// Whether the search is done, from the scores of what has finished and the best prefix that is alive.
export const STOPPING_RULES = {
  exact: ({ finished, numBest, bestLive, step, maxLength, penalty }) => finished.length >= numBest && finished[numBest - 1].score >= Math.max(bestLive / penalty(step, 1), bestLive / penalty(maxLength, 1)),
  enough: ({ finished, size }) => finished.length >= size,
  likely: ({ finished, bestLive, step, size, penalty }) => finished.length >= size && finished[size - 1].score >= bestLive / penalty(step, 0),
  ctranslate2: ({ finished, size, numBest, topEnded, alpha, lengthRule }) => (alpha === 0 || lengthRule === "none" ? topEnded && finished.length >= numBest : finished.length >= size),
};

// The k largest base + value of several rows, best first; ties go to the first.
export function bestOf(rows, k) {
  const best = [];
  rows.forEach(({ base, values }, row) => {
    for (let token = 0; token < values.length; token++) {
      const total = base + values[token];
      if (total === -Infinity || (best.length === k && total <= best[k - 1].total)) continue;
      let at = best.length;
      while (at > 0 && best[at - 1].total < total) at--;
      best.splice(at, 0, { total, row, token });
      if (best.length > k) best.pop();
    }
  });
  return best;
}

export function* beam(reader, limits, { size = 5, numBest = 1, lengthRule = "power", lengthPenalty: alpha = 1, stopping = "exact" } = {}) {
  const penalty = (tokens, ended) => LENGTH_RULES[lengthRule](tokens, Number(ended), alpha), candidates = [], finished = [], { eos, maxLength, forced = [] } = limits;
  let live = [{ prefix: reader.root, total: 0, candidate: null }], topEnded = false;
  for (const token of forced) {  // read at once, without a choice
    const [{ prefix, total, candidate }] = live;
    reader.read([prefix]);
    const logProb = prefix.output.logProbs[token];
    candidates.push({ step: prefix.length + 1, parent: candidate, prefix: prefix.extend(token), logProb, total: total + logProb, rank: 0, fate: "kept", why: "given as prefix", score: null });
    live = [{ prefix: prefix.extend(token), total: total + logProb, candidate: candidates.length - 1 }];
    yield live[0].prefix.length;
  }
  if (forced.length && forced[forced.length - 1] === eos) {
    const [{ prefix, total, candidate }] = live, score = total / penalty(prefix.length - 1, true);
    Object.assign(candidates[candidate], { fate: "finished", score });
    return { hypotheses: [{ prefix, ended: true, score, candidate }], candidates };
  }
  for (let done = false; !done;) {
    reader.read(live.map(({ prefix }) => prefix));
    const step = live[0].prefix.length + 1, kept = [], found = [];
    bestOf(live.map(({ prefix, total }) => ({ base: total, values: allowedNext(prefix, limits) })), 2 * size).forEach(({ total, row, token }, rank) => {
      const { prefix: before, candidate: parent } = live[row], prefix = before.extend(token), ended = token === eos;
      const candidate = { step, parent, prefix, logProb: before.output.logProbs[token], total, rank, fate: "pruned", why: "outside the beam", score: null };
      if (rank < size && (ended || step === maxLength)) {
        Object.assign(candidate, { fate: ended ? "finished" : "cut", why: ended ? "ended among the best" : "the limit is reached", score: total / penalty(step - ended, ended) });
        const at = finished.findIndex(({ score }) => score < candidate.score);
        finished.splice(at < 0 ? finished.length : at, 0, { prefix, ended, score: candidate.score, candidate: candidates.length + rank });
        topEnded ||= rank === 0;
      } else if (ended) candidate.why = "ended outside the beam";
      else if (kept.length < size && step < maxLength) {
        Object.assign(candidate, { fate: "kept", why: "among the best" });
        kept.push({ prefix, total, candidate: candidates.length + rank });
      }
      found.push(candidate);
    });
    done = !kept.length || STOPPING_RULES[stopping]({ finished, bestLive: kept[0].total, topEnded, step, maxLength, size, numBest, penalty, alpha, lengthRule });
    for (const candidate of found) if (done && candidate.fate === "kept") Object.assign(candidate, { fate: "pruned", why: "the search had ended" });
    candidates.push(...found);
    if (!done) live = kept;
    yield step;
  }
  return { hypotheses: finished.slice(0, numBest), candidates };
}

export const SEARCHES = { greedy, sample, beam };
