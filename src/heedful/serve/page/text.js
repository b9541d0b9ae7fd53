// Text processing, without DOM or requests: lines, words, alignment, word probabilities.

const replaceSurrogates = (text) => text.replace(/\p{Cs}/gu, "\ufffd");  // lone surrogates cannot be sent
const splitLines = (text) => replaceSurrogates(text).split("\n");
const splitWords = (text) => text.split(/\s+/).filter(Boolean);

// Words and spaces of a line in order, as [index of the word or null, text].
function splitParts(line) {
  let count = 0;
  return line.split(/(\s+)/).filter(Boolean).map((part) => [part.trim() ? count++ : null, part]);
}

// The probability of each word: the product over its tokens. A bare space belongs to the next word. Null if tokens and
// words do not match.
function wordProbabilities(tokens, numWords) {
  const logs = [];
  let insideWord = false, carried = 0;
  for (const { text, log_probability: value } of tokens ?? []) {
    const words = splitWords(text);
    if (!words.length) {
      carried += value;
      insideWord = false;
      continue;
    }
    const newWords = words.length - (insideWord && !/^\s/.test(text) ? 1 : 0);
    for (let i = 0; i < newWords; i++) logs.push(i ? 0 : carried);
    if (newWords) carried = 0;
    logs[logs.length - 1] += value;
    insideWord = !/\s$/.test(text);
  }
  return logs.length === numWords ? logs.map(Math.exp) : null;
}
const TINT_THRESHOLDS = [0.8, 0.5, 0.2];  // a word is tinted more strongly below each
const tintLevel = (probability) => TINT_THRESHOLDS.filter((threshold) => probability < threshold).length;

// Convert a translation of the API for the page; `links` has the aligned words of each word, by side.
function parseTranslation({ source, text, pivot, alignment, tokens, flags, alternatives, confidence }) {
  const words = splitWords(text);
  const links = { source: splitWords(source).map(() => []), target: words.map(() => []) };
  for (const [from, to] of alignment ?? []) {
    if (!links.source[from] || !links.target[to]) continue;
    links.source[from].push(to);
    links.target[to].push(from);
  }
  return { text, pivot, probabilities: wordProbabilities(tokens, words.length), links: alignment ? links : null,
    flags: flags ?? [], confidence: confidence ?? null, alternatives: [...new Set(alternatives ?? [])].filter((other) => other !== text) };
}

// Where a text differs from another: [common start, difference, common end], by words.
function splitByDifference(text, other) {
  const words = text.split(/(?<=\s)/), otherWords = other.split(/(?<=\s)/);
  let first = 0, last = 0;
  const max = Math.min(words.length, otherWords.length);
  while (first < max && words[first] === otherWords[first]) first++;
  while (last < max - first && words.at(-1 - last) === otherWords.at(-1 - last)) last++;
  const end = words.length - last;
  return [words.slice(0, first), words.slice(first, end), words.slice(end)].map((part) => part.join(""));
}

// The index of the word at or beside an offset in a line; null if there is none.
function wordIndexAt(line, offset) {
  let begin = 0;
  for (const [index, part] of splitParts(line)) {
    const end = begin + part.length;
    if (index !== null && offset >= begin && offset <= end) return index;
    begin = end;
  }
  return null;
}

// A text as one argument of a shell command.
const quoteForShell = (text) => (/["$`!\\%]/.test(text) ? `'${text.replaceAll("'", "'\\''")}'` : `"${text}"`);
