// Pieces as they are shown: where each stands in its text, and to which word it belongs.
//
//     word of a piece = the number of words that have begun before its end, minus 1
//
// The rules are those of heedful/trace.py, so that a sentence looks the same live and recorded.

import { decodeBytes, isByte } from "./tokenizer.mjs";

const SPACE_MARKS = /\u2581/g;
const asText = (piece) => piece.replace(SPACE_MARKS, " ");
const byteOf = (piece) => parseInt(piece.slice(3, 5), 16);
const wordsIn = (text) => text.split(/\s+/u).filter(Boolean).length;

// An ASCII byte as its character, U+2581 as a space.
export const readablePiece = (piece) => (isByte(piece) && byteOf(piece) < 128 ? String.fromCharCode(byteOf(piece)) : asText(piece));

// The index of the word of each piece; a single space belongs to the next word.
function wordIndices(pieces) {
  let count = 0, inside = false;
  const indices = pieces.map((piece) => {
    const body = asText(piece), isContinued = inside && !body.startsWith(" ") && Boolean(body.trim());
    count += Math.max(0, wordsIn(body) - Number(isContinued));
    inside = !body.endsWith(" ");
    return body.trim() ? count - 1 : count;
  });
  return indices.map((index) => (count ? Math.min(index, count - 1) : 0));
}

// The number of pieces from `at` on that are bytes of one character; 0 if the piece is not a byte.
function countCharacterBytes(pieces, at) {
  if (!isByte(pieces[at])) return 0;
  for (let count = 1; count <= 4 && at + count <= pieces.length && isByte(pieces[at + count - 1]); count++) {
    if (!decodeBytes(pieces.slice(at, at + count).map(byteOf)).includes("\ufffd")) return count;
  }
  return 1;
}

// The pieces of a text; the first `numTags` are tags, and with `hasEnd` the last is an end token.
export function locatePieces(names, text, { numTags = 0, hasEnd = true } = {}) {
  const inner = names.slice(numTags, names.length - Number(hasEnd)), letters = Array.from(text);
  const pieces = names.slice(0, numTags).map((name) => ({ text: name, start: 0, end: 0 }));
  const words = text.trim() ? wordIndices(inner) : inner.map(() => null);
  let position = 0, letter = 0;
  const find = (bare) => {  // in characters, at or after the last piece
    const wanted = Array.from(bare);
    for (let start = position; start <= Math.min(position + 8, letters.length - wanted.length); start++) if (wanted.every((character, at) => letters[start + at] === character)) return start;
    return position;
  };
  for (let at = 0; at < inner.length;) {
    const numBytes = countCharacterBytes(inner, at), body = numBytes ? decodeBytes(inner.slice(at, at + numBytes).map(byteOf)) : asText(inner[at]), bare = body.replace(/^ +| +$/g, "");
    const start = find(bare), end = Math.min(letters.length, start + Array.from(bare).length);
    if (numBytes) {
      const shown = (at && letters[start - 1] === " " ? " " : "") + bare;
      for (let byte = at; byte < at + numBytes; byte++) pieces.push({ text: shown, start, end, word: words[byte], letter });
      letter++;
    } else pieces.push({ text: body, start, end, word: words[at] });
    position = end;
    at += numBytes || 1;
  }
  return hasEnd ? [...pieces, { text: names[names.length - 1], start: letters.length, end: letters.length }] : pieces;
}
