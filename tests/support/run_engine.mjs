// Run jobs with the page's engine under node: a JSON list on stdin, a JSON list of results on stdout.
//   node run_engine.mjs FOLDER-OF-THE-ENGINE < jobs.json

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/${name}.mjs`).href);
const [{ Model, finish }, { Changes, editRow }, { normalizeText }, { makeTokenizer }, { SEARCHES, filteredProbabilities, makeRandom }, { attentionMaps }, { compileWords }, { locatePieces }, { serve }, { halfToNumber }] = await Promise.all(
  ["model", "attention", "normalize", "tokenizer", "search", "recording", "suppression", "pieces", "worker", "weights"].map(load));

const numbers = ({ shape, numbers: values }) => ({ shape, numbers: Array.from(values) });
const mapValues = (tree, change) => Object.fromEntries(Object.entries(tree).map(([key, value]) => [key, change(value)]));

// Read a target after a source: memory, the log-probabilities of every step, and the maps of all places.
function force(model, { ids, target, changes }) {
  const { encoded, reader } = model.open(ids, new Changes(changes));
  let prefix = reader.root;
  const steps = target.map((token) => { reader.read([prefix]); const { logProbs } = prefix.output; prefix = prefix.extend(token); return Array.from(logProbs, (value) => Math.max(value, -1e4)); });
  return { memory: Array.from(encoded.memory.numbers), steps, maps: mapValues(attentionMaps(model, reader, encoded, prefix.path), ({ attention, vectors }) => ({ attention: numbers(attention), vectors: vectors.map((layer) => layer && mapValues(layer, (part) => (part.numbers ? numbers(part) : part))) })) };
}

function search(model, { ids, kind, options = {}, limits, changes }) {
  const { reader } = model.open(ids, new Changes(changes)), { hypotheses, candidates } = finish(SEARCHES[kind](reader, { eos: model.eos, ...limits }, options));
  return {
    hypotheses: hypotheses.map(({ prefix, score, ended }) => ({ tokens: ended ? prefix.tokens.slice(0, -1) : prefix.tokens, score, ended, logProbs: prefix.path.map(({ parent, token }) => parent.output.logProbs[token]) })),
    candidates: candidates.map(({ step, parent, prefix, rank, fate, why }) => [step, parent, prefix.token, rank, fate, why]),
  };
}

async function converse({ description, data, requests }) {
  const answers = [], receive = serve((answer) => answers.push(answer));
  await receive({ kind: "open", description, data });
  await Promise.all(requests.map((request, id) => receive({ kind: "translate", id, ...request })));
  return answers.map(({ kind, id, message, sentence }) => ({ kind, id, message, text: sentence?.target.text }));
}

const JOBS = {
  normalize: ({ texts }) => texts.map(normalizeText),
  tokenize: ({ tokenizer, texts }) => { const made = makeTokenizer(tokenizer); return texts.map((text) => made.encode(text)); },
  count: ({ tokenizer, texts }) => { const made = makeTokenizer(tokenizer); return texts.map((text) => made.countAtLeast(text)); },
  detokenize: ({ tokenizer, rows }) => { const made = makeTokenizer(tokenizer); return rows.map((row) => made.decode(row)); },
  locate: ({ texts }) => texts.map(({ pieces, text, options }) => locatePieces(pieces, text, options)),
  find: ({ words, texts }) => { const pattern = compileWords(words); return texts.map((text) => [...text.matchAll(pattern)].map((match) => match[0])); },
  filter: ({ logProbs, options }) => Array.from(filteredProbabilities(Float32Array.from(logProbs), options)),
  halves: ({ bits }) => bits.map((each) => String(halfToNumber(each))),  // JSON has no infinity
  edit: ({ row, edits }) => edits.map((chosen) => Array.from(editRow(Float32Array.from(row), chosen))),
  random: ({ seed, count }) => { const next = makeRandom(seed); return Array.from({ length: count }, next); },
  model: ({ description, data, runs }) => { const model = new Model(description, data); return runs.map((run) => ({ force, search, translate: () => finish(model.translate(run.text, run.options)) })[run.run](model, run)); },
  converse,
};

const jobs = JSON.parse(readFileSync(0, "utf8")), results = [];
for (const job of jobs) results.push(await JOBS[job.job](job));
process.stdout.write(JSON.stringify(results, (key, value) => (value instanceof Float32Array ? Array.from(value) : value)));
