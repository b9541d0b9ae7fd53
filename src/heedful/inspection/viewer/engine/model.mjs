// A model: text -> tokens -> memory -> search -> text.
//
//     p(y | x) = prod_t p(y_t | y_<t, x)
//
// `translate` is a generator: it stops after every step of the search, so that its caller can do something else in between.

import { Changes } from "./attention.mjs";
import { makeDecoder } from "./decoders.mjs";
import { makeEncoder } from "./encoders.mjs";
import { normalizeText } from "./normalize.mjs";
import { readablePiece } from "./pieces.mjs";
import { describeSentence } from "./recording.mjs";
import { Reader, SEARCHES, LENGTH_RULES, greedy } from "./search.mjs";
import { MASK, compileWords, searchWithoutWords } from "./suppression.mjs";
import { isByte, makeTokenizer } from "./tokenizer.mjs";
import { Weights } from "./weights.mjs";

export class Model {
  // `description` is what heedful/inspection/live.py writes; `data` are the weights in base64.
  constructor(description, data) {
    const weights = new Weights(description.tensors, description.ties, data), { settings } = description;
    Object.assign(this, { description, encoder: makeEncoder(weights, settings), decoder: makeDecoder(weights, settings) });
    this.output = weights.layer("decoder.plain_projection");
    [this.bos, this.eos, this.suppressed] = [description.tokens.bos, description.tokens.eos, [description.tokens.pad, description.tokens.bos]];
    const { source, target } = description.tokenizers;
    this.target = makeTokenizer(target);
    this.source = source ? makeTokenizer(source) : this.target;
    this.words = compileWords(description.suppress_words);
  }
  // The tokens of a text, with its end token.
  encodeText(text) { return [...this.source.encode(text), ...this.description.source_end]; }
  // The token of a piece as the page names it; plain text comes before bytes.
  tokenOf(name) {
    this.named ??= new Map(this.target.vocabulary.map((piece, token) => [readablePiece(piece), token, isByte(piece)]).sort((a, b) => b[2] - a[2]));
    if (!this.named.has(name)) throw new Error(`this model has no piece \u201c${name}\u201d`);
    return this.named.get(name);
  }
  // The number of steps after which a search stops (Translator.max_target_length).
  maxLength(numTokens, numForced) {
    const { max_length: longest, max_tokens: most } = this.description.limits;
    return Math.min(Math.max(Math.min(longest, Math.ceil((2 * numTokens + 10) / 64) * 64), numForced + 10), most - 1);
  }
  // The memory of a source, and a reader of prefixes of its translation.
  open(ids, changes = new Changes()) {
    const encoded = this.encoder.encode(ids, changes);
    return { encoded, reader: new Reader(this, encoded.memory, changes) };
  }
  // What the page shows of a translation. `wanted` may have search, size, lengthRule, lengthPenalty, temperature, topK, topP,
  // seed, stopping, begin (names of pieces with which the answer begins), silenced and edits. A beam stops when a better answer is unlikely, as in `heedful translate`.
  *translate(sourceText, wanted = {}) {
    const { generation, limits: { max_source: longest, max_tokens: most } } = this.description;
    const options = { search: "beam", size: generation.beam, lengthRule: generation.length_rule, lengthPenalty: generation.length_penalty, stopping: "likely", begin: [], ...wanted };
    options.prefix = options.begin.map((name) => this.tokenOf(name));
    const numForced = options.prefix.length, impossible = options.prefix.findIndex((token, at) => this.suppressed.includes(token) || (token === this.eos && at < numForced - 1));
    if (impossible >= 0) throw new Error(`an answer cannot begin with \u201c${options.begin.slice(0, impossible + 2).join("")}\u201d`);
    if (numForced + 10 > most) throw new Error(`this beginning has ${numForced} pieces, and the model writes at most ${most}: use a shorter one`);
    const check = (count, words = count) => { if (count > longest) throw new Error(`this text has ${words} pieces, and the model was trained on at most ${longest}: type a shorter sentence`); };
    const text = normalizeText(sourceText), atLeast = this.source.countAtLeast(text);
    check(atLeast, `at least ${atLeast}`);
    const ids = this.encodeText(text), numTokens = ids.length - this.description.source_end.length;
    if (!numTokens) throw new Error("there is no text to translate");
    check(numTokens);
    const { encoded, reader } = this.open(ids, new Changes(options));
    yield 0;
    const limits = { eos: this.eos, maxLength: this.maxLength(numTokens, numForced), forced: options.prefix };
    const search = (sequences, numBest) => SEARCHES[options.search](reader, { ...limits, sequences }, { ...options, numBest });
    const result = yield* searchWithoutWords(search, this.words, this.target, { numForced, numBest: options.search === "beam" ? options.size : 1 });
    const isBeam = options.search === "beam", greedyAnswer = isBeam ? (yield* greedy(reader, { ...limits, sequences: result.sequences })).hypotheses[0] : null;
    const rank = ({ prefix, ended, score }) => score / LENGTH_RULES[options.lengthRule](prefix.length - Number(ended), Number(ended), options.lengthPenalty);
    const mask = (written) => (this.words ? written.replace(this.words, MASK) : written);
    return describeSentence(this, { text, ids, encoded, reader, options, result, greedyAnswer, rank, mask });
  }
}

// Run a generator to its end.
export function finish(steps) {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}
