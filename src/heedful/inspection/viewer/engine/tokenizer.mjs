// Text to the numbers of pieces, and back. A piece that starts with U+2581 starts a word.
//
//     bpe        merge the two neighbors whose joined piece has the highest score, until no joined piece exists
//     unigram    the segmentation with the highest sum of scores: best(end) = max over pieces of best(start) + score(piece)
//     bytes      a character without a piece becomes its bytes in UTF-8: <0xE2> <0x82> <0xAC>
//
// Characters, letters and words are tables for teaching: a piece outside of the table is unknown.

const SPACE = "\u2581", UNKNOWN = 1;
export const isByte = (piece) => /^<0x[0-9A-F]{2}>$/.test(piece);

// SentencePiece merges the leftmost of equally good neighbors first. A piece that is always kept whole is never merged.
function mergePieces(symbols, scores, isWhole) {
  const pieces = [...symbols], free = pieces.map((piece) => !isWhole(piece));
  const scoreAt = (at) => (free[at] && free[at + 1] ? scores.get(pieces[at] + pieces[at + 1]) ?? -Infinity : -Infinity);
  const pairs = pieces.slice(1).map((_, at) => scoreAt(at));
  for (;;) {
    let best = -1;
    for (let at = 0; at < pairs.length; at++) if (pairs[at] > (best < 0 ? -Infinity : pairs[best])) best = at;
    if (best < 0) return pieces;
    pieces.splice(best, 2, pieces[best] + pieces[best + 1]);
    free.splice(best, 1);
    pairs.splice(best, 1);
    if (best > 0) pairs[best - 1] = scoreAt(best - 1);
    if (best < pairs.length) pairs[best] = scoreAt(best);
  }
}

// Totals are stored in single precision, as SentencePiece does: with many pieces, rounding decides between equals.
function bestSegmentation(letters, { scores, whole, longest, leastScore, mostScore }) {
  const best = [{ total: 0, from: -1 }, ...letters.map(() => ({ total: -Infinity, from: -1 }))];
  const offer = (from, end, total) => { if (best[end].from < 0 || Math.fround(total) > best[end].total) best[end] = { total: Math.fround(total), from }; };
  for (let from = 0; from < letters.length; from++) {
    let piece = "", isSingle = false;
    for (let end = from + 1; end <= Math.min(letters.length, from + longest); end++) {
      piece += letters[end - 1];
      const score = whole.has(piece) ? new TextEncoder().encode(piece).length * mostScore - 0.1 : scores.get(piece);
      if (score === undefined) continue;
      offer(from, end, best[from].total + score);
      isSingle ||= end === from + 1;
    }
    if (!isSingle) offer(from, from + 1, Math.fround(best[from].total + Math.fround(leastScore - 10)));
  }
  const pieces = [];
  for (let end = letters.length; end > 0; end = best[end].from) pieces.unshift(letters.slice(best[end].from, end).join(""));
  return pieces;
}

export class SubwordTokenizer {
  // `pieces` are strings; `special` has the kind of those that are not plain text: control, unknown, byte or whole.
  constructor({ kind, pieces, scores, special }) {
    this.kind = kind;
    this.vocabulary = pieces;
    this.special = new Map(Object.entries(special).map(([id, name]) => [Number(id), name]));
    this.ids = new Map();
    this.scores = new Map();
    this.whole = new Set();
    this.bytes = new Map();
    pieces.forEach((piece, id) => {
      const name = this.special.get(id);
      if (name === "byte") this.bytes.set(parseInt(piece.slice(3, 5), 16), id);
      else if (name === undefined || name === "whole") {
        this.ids.set(piece, id);
        this.scores.set(piece, Math.fround(scores[id]));
        if (name === "whole") this.whole.add(piece);
      }
    });
    const plain = pieces.map((_, id) => id).filter((id) => !this.special.has(id));
    this.leastScore = plain.reduce((least, id) => Math.min(least, Math.fround(scores[id])), Infinity);
    this.mostScore = plain.reduce((most, id) => Math.max(most, Math.fround(scores[id])), -Infinity);
    this.longest = [...this.ids.keys()].reduce((most, piece) => Math.max(most, Array.from(piece).length), 1);
    this.longestWhole = [...this.whole].reduce((most, piece) => Math.max(most, Array.from(piece).length), 0);
  }
  // Characters, and the longest pieces that are always kept whole.
  symbols(letters) {
    const symbols = [];
    for (let at = 0; at < letters.length;) {
      let length = Math.min(this.longestWhole, letters.length - at);
      while (length > 0 && !this.whole.has(letters.slice(at, at + length).join(""))) length--;
      symbols.push(letters.slice(at, at + Math.max(1, length)).join(""));
      at += Math.max(1, length);
    }
    return symbols;
  }
  encode(text) {
    if (!text) return [];
    const letters = Array.from(SPACE + text.replaceAll(" ", SPACE));
    const pieces = this.kind === "bpe" ? mergePieces(this.symbols(letters), this.scores, (piece) => this.whole.has(piece)) : bestSegmentation(letters, this);
    const ids = [];
    for (const piece of pieces) {
      if (this.ids.has(piece)) ids.push(this.ids.get(piece));
      else if (this.bytes.size) ids.push(...Array.from(new TextEncoder().encode(piece), (byte) => this.bytes.get(byte)));
      else if (ids[ids.length - 1] !== UNKNOWN) ids.push(UNKNOWN);
    }
    return ids;
  }
  // A lower bound of the number of tokens, without splitting the text: the time of that grows with the square of its length.
  // Only neighbors without a piece can be one token.
  countAtLeast(text) { return Math.ceil(Array.from(text).filter((letter) => this.bytes.size || this.ids.has(letter)).length / this.longest); }
  pieces(ids) { return ids.map((id) => this.vocabulary[id]); }
  decode(ids) {
    let text = "", bytes = [], isFirst = true;
    const flush = () => { text += decodeBytes(bytes); bytes = []; };
    for (const id of ids) {
      const name = this.special.get(id), piece = this.vocabulary[id];
      if (name === "byte") { bytes.push(parseInt(piece.slice(3, 5), 16)); isFirst = false; continue; }
      flush();
      if (name === "control") continue;
      if (name === "unknown") text += " \u2047 ";
      else text += (isFirst && piece.startsWith(SPACE) ? piece.slice(1) : piece).replaceAll(SPACE, " ");
      isFirst = false;
    }
    flush();
    return text;
  }
}

// UTF-8, with U+FFFD for every byte that belongs to no character.
export function decodeBytes(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const length = [1, 2, 3, 4].find((count) => at + count <= bytes.length && isCharacter(bytes.slice(at, at + count)));
    text += length ? utf8.decode(Uint8Array.from(bytes.slice(at, at + length))) : "\ufffd";
    at += length ?? 1;
  }
  return text;
}
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
function isCharacter(bytes) {
  try { return Array.from(utf8.decode(Uint8Array.from(bytes))).length === 1; } catch { return false; }
}

const SPLITTERS = {
  characters: (text) => [SPACE, ...Array.from(text.replaceAll(" ", SPACE))],
  words: (text) => (SPACE + text.replaceAll(" ", SPACE)).match(/\u2581?(?:[\p{L}\p{N}_]+|[^\p{L}\p{N}_\u2581])|\u2581/gu) ?? [],
  letters: (text) => Array.from(text),
};

export class TableTokenizer {
  constructor({ kind, pieces, special }) {
    this.split = SPLITTERS[kind];
    this.vocabulary = pieces;
    this.special = new Map(Object.entries(special).map(([id, name]) => [Number(id), name]));
    this.ids = new Map(pieces.map((piece, id) => [piece, id]).filter(([, id]) => !this.special.has(id)));
  }
  encode(text) { return text ? this.split(text).map((piece) => this.ids.get(piece) ?? UNKNOWN) : []; }
  countAtLeast() { return 0; }  // its text is split at once
  pieces(ids) { return ids.map((id) => this.vocabulary[id]); }
  decode(ids) {
    const textOf = (id) => ({ unknown: "\u2047", control: "" }[this.special.get(id)] ?? this.vocabulary[id].replaceAll(SPACE, " "));
    return ids.map(textOf).join("").replace(/^ /, "");
  }
}

export const makeTokenizer = (description) => new (description.kind in SPLITTERS ? TableTokenizer : SubwordTokenizer)(description);
