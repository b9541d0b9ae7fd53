// Words that a model may not use in a translation:
//
//     search; while the best answer has such a word and fewer than 8 searches were repeated:
//         forbid the tokens that spelled it, and search again
//
// If that is not enough, the word is masked. A forced prefix may contain such words.

import { locatePieces } from "./pieces.mjs";

const MAX_RETRIES = 8, WORD = "[\\p{L}\\p{N}_]";
export const MASK = "***";

// A pattern that matches each word or phrase as a whole, in any case; null without words.
export function compileWords(words) {
  const phrases = [...new Set(words.map((word) => word.toLowerCase().trim().split(/\s+/u).join(" ")).filter(Boolean))].sort().reverse();
  const escape = (phrase) => phrase.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replaceAll(" ", "\\s+");
  return phrases.length ? new RegExp(`(?<!${WORD})(?:${phrases.map(escape).join("|")})(?!${WORD})`, "giu") : null;
}

// The sequences of tokens that spelled suppressed words after the prefix: [first, end] of each.
export function findWords(pattern, tokenizer, tokens, numForced) {
  const text = tokenizer.decode(tokens), matches = [...text.matchAll(pattern)], spans = [];
  if (!matches.length) return spans;
  const pieces = locatePieces(tokenizer.pieces(tokens), text, { hasEnd: false }), position = (at) => Array.from(text.slice(0, at)).length;
  for (const match of matches) {
    const from = position(match.index), to = position(match.index + match[0].length);
    const rows = pieces.map((piece, row) => (piece.start < to && piece.end > from ? row : -1)).filter((row) => row >= 0);
    const [first, end] = rows.length ? [rows[0], rows[rows.length - 1] + 1] : [0, tokens.length];
    if (end > numForced) spans.push([first, end]);
  }
  return spans;
}

// `search(sequences, numBest)` is a generator that ends with { hypotheses }; the result is its last one, with its `sequences`.
export function* searchWithoutWords(search, pattern, tokenizer, { numForced, numBest }) {
  let result = yield* search([], 1), hypotheses = result.hypotheses.slice(0, 1);
  if (!pattern) return { ...result, sequences: [] };
  const wordsOf = ({ prefix, ended }) => { const tokens = ended ? prefix.tokens.slice(0, -1) : prefix.tokens; return findWords(pattern, tokenizer, tokens, numForced).map(([first, end]) => tokens.slice(first, end)); };
  const sequences = new Map();
  for (let retry = 0; retry < MAX_RETRIES && wordsOf(hypotheses[0]).length; retry++) {
    for (const sequence of hypotheses.flatMap(wordsOf)) sequences.set(String(sequence), sequence);
    result = yield* search([...sequences.values()], numBest);
    hypotheses = result.hypotheses;
  }
  const clean = hypotheses.filter((hypothesis) => !wordsOf(hypothesis).length);
  return { ...result, hypotheses: clean.length ? clean : hypotheses, sequences: [...sequences.values()] };
}
