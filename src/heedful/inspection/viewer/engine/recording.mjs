// What the panels of the page show of a translation, as heedful/trace.py describes it. Arrays are { shape, numbers }.
//
//     attention[place]     [layers, heads, T, S]     the weights
//     vectors[place]       for every layer: queries, keys, values and scores [heads, T or S, width]
//     steps                for every piece: log p, the entropy -sum p log p, and the ten most probable pieces

import { locatePieces, readablePiece } from "./pieces.mjs";
import { bestOf } from "./search.mjs";
import { concatenate } from "./tensors.mjs";

const LEAST = -1e4;  // JSON has no -Infinity
const shown = (logProb) => Math.max(logProb, LEAST);
const array = (shape, vectors) => ({ shape, numbers: vectors.length ? concatenate(...vectors) : new Float32Array(0) });

// Rows of different lengths, filled up with a value.
const padded = (vectors, length, value) => vectors.map((vector) => (vector.length === length ? vector : Float32Array.from({ length }, (_, at) => vector[at] ?? value)));

// A layer's map: records[step][head], and the keys and values of every head.
function layerVectors(attention, records, source, slots) {
  const { score } = attention, heads = source.length, steps = records.length, of = (read) => source.flatMap((_, head) => records.map((record) => read(record[head])));
  if (score.hidesVectors) return null;
  const queries = of(({ query }) => (score.shownQuery ? score.shownQuery(query) : query)), keys = source.flatMap(({ keys: all }) => (score.shownKeys ? score.shownKeys(all) : all)), values = source.flatMap(({ values: all }) => all);
  const moved = score.moved ? of(({ before }) => before).flatMap((before) => score.moved(before)) : null;
  return {
    score: attention.scoreName, normalizer: attention.normalizer, queries: array([heads, steps, queries[0].length], queries), keys: array([heads, slots, keys[0].length], keys), values: array([heads, slots, values[0].length], values),
    scores: array([heads, steps, slots], padded(of(({ scores }) => scores), slots, -65504)), ...(score.energy ? { energy: array([score.energy.length], [score.energy]) } : {}), ...(moved ? { moved: array([heads, steps, slots, moved[0].length], moved) } : {}),
  };
}

// The maps of one place: layers of { attention, records [step][head], source [head] }.
function placeMaps(layers, slots) {
  const heads = layers[0].records[0].length, steps = layers[0].records.length;
  const weights = layers.flatMap(({ records }) => padded(Array.from({ length: heads }, (_, head) => records.map((record) => record[head].weights)).flat(), slots, 0));
  return { attention: array([layers.length, heads, steps, slots], weights), vectors: layers.map(({ attention, records, source }) => layerVectors(attention, records, source, slots)) };
}

// The outputs from which each token of a path was chosen.
const outputsOf = (path) => path.map(({ parent }) => parent.output);

export function attentionMaps(model, reader, encoded, path) {
  const outputs = outputsOf(path), last = outputs[outputs.length - 1], places = {};
  if (encoded.maps.length) places.encoder = encoded.maps;
  if (model.decoder.cross.length) places.cross = model.decoder.cross.map((attention, layer) => ({ attention, records: outputs.map(({ record }) => record.cross[layer]), source: model.decoder.self.length ? reader.source[layer] : reader.source }));
  if (model.decoder.self.length) places.decoder = model.decoder.self.map((attention, layer) => ({ attention, records: outputs.map(({ record }) => record.decoder[layer]), source: last.past.layers[layer] }));
  return Object.fromEntries(Object.entries(places).map(([place, layers]) => [place, placeMaps(layers, layers[0].source[0].keys.length)]));
}

function describeStep({ parent, token }, isForced, names) {
  const { logProbs } = parent.output, best = bestOf([{ base: 0, values: logProbs }], 10);
  let entropy = 0;
  for (let i = 0; i < logProbs.length; i++) if (logProbs[i] > LEAST) entropy -= Math.exp(logProbs[i]) * logProbs[i];
  return { name: names(token), logp: shown(logProbs[token]), entropy, top: best.map(({ token: other, total }) => [names(other), shown(total)]), forced: isForced };
}

const FORMULAS = {
  none: () => "log p", power: (alpha) => `log p / length^${alpha}`, power_without_end: (alpha) => `log p / length^${alpha}, the end not counted`,
  gnmt: (alpha) => `log p / ((5 + length) / 6)^${alpha}`,
};

// The sentence of a search: `answer` is its best hypothesis, `greedyAnswer` that of greedy search.
export function describeSentence(model, { text, ids, encoded, reader, options, result, greedyAnswer, rank, mask }) {
  const { description, target, source } = model, [answer] = result.hypotheses, { path } = answer.prefix, tokens = path.map(({ token }) => token), said = answer.ended ? tokens.slice(0, -1) : tokens;
  const names = (token) => readablePiece(target.pieces([token])[0]), answerText = mask(target.decode(said).trim()), total = path.reduce((sum, { parent, token }) => sum + parent.output.logProbs[token], 0);
  const maps = attentionMaps(model, reader, encoded, path), isBeam = options.search === "beam", sourceEnds = description.source_end.length > 0;
  const nodes = result.candidates.map(({ step, parent, prefix, logProb, total: sum, rank: place, fate, why, score }) => ({ step, parent, text: names(prefix.token), logp: shown(logProb), total: shown(sum), rank: place, fate, why, score }));
  return {
    name: description.name, logp: total, score: answer.score,
    source: { text, pieces: locatePieces(source.pieces(ids), text, { hasEnd: sourceEnds }), language: description.languages[0] },
    target: { text: answerText, pieces: locatePieces(target.pieces(tokens), answerText, { hasEnd: answer.ended }), language: description.languages[1] },
    steps: path.map((prefix, at) => describeStep(prefix, at < options.prefix.length, names)),
    tree: { kind: options.search, size: isBeam ? options.size : 1, length: isBeam ? FORMULAS[options.lengthRule](options.lengthPenalty) : "log p", nodes, best: answer.candidate,
      ...(greedyAnswer ? { greedy: mask(target.decode(greedyAnswer.ended ? greedyAnswer.prefix.tokens.slice(0, -1) : greedyAnswer.prefix.tokens).trim()), greedy_score: rank(greedyAnswer) } : {}) },
    attention: Object.fromEntries(Object.entries(maps).map(([place, { attention }]) => [place, attention])),
    vectors: Object.fromEntries(Object.entries(maps).filter(([place, { vectors }]) => vectors.every(Boolean)).map(([place, { vectors }]) => [place, vectors])),
    reading: description.alignment, about: description.about, edits: reader.changes.edits,
  };
}
