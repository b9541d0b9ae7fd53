// Text: lines, words, which word goes with which, and how sure the model is. Nothing is drawn or asked here.

const whole = (text) => text.replace(/\p{Cs}/gu, "\ufffd");  // half a character cannot be sent
const linesOf = (text) => whole(text).split("\n");
const wordsOf = (text) => text.split(/\s+/).filter(Boolean);

// A line in order, as [number of the word or null, text].
function partsOf(line) {
  let count = 0;
  return line.split(/(\s+)/).filter(Boolean).map((part) => [part.trim() ? count++ : null, part]);
}

// The probability of each word: the product over its pieces. A bare space belongs to the next word. Null where pieces
// and words do not agree in number.
function sureness(tokens, count) {
  const totals = [];
  let inside = false, carried = 0;
  for (const { text, log_probability: value } of tokens ?? []) {
    const inner = wordsOf(text);
    if (!inner.length) {
      carried += value;
      inside = false;
      continue;
    }
    const begins = inner.length - (inside && !/^\s/.test(text) ? 1 : 0);
    for (let i = 0; i < begins; i++) totals.push(i ? 0 : carried);
    if (begins) carried = 0;
    totals[totals.length - 1] += value;
    inside = !/\s$/.test(text);
  }
  return totals.length === count ? totals.map(Math.exp) : null;
}
const LEVELS = [0.8, 0.5, 0.2];  // a word is marked more strongly below each
const level = (p) => LEVELS.filter((one) => p < one).length;

// What the server said of a line, as the page needs it.
function read(said) {
  const words = wordsOf(said.text), source = wordsOf(said.source);
  const links = { source: source.map(() => []), target: words.map(() => []) };
  for (const [from, to] of said.alignment ?? []) {
    if (!links.source[from] || !links.target[to]) continue;
    links.source[from].push(to);
    links.target[to].push(from);
  }
  return { text: said.text, sure: sureness(said.tokens, words.length), links: said.alignment ? links : null,
    flags: said.flags ?? [], others: [...new Set(said.alternatives ?? [])].filter((one) => one !== said.text) };
}

// Where a text differs from another: [the same, different, the same], by words.
function differing(text, from) {
  const ours = text.split(/(?<=\s)/), theirs = from.split(/(?<=\s)/);
  let first = 0, last = 0;
  const most = Math.min(ours.length, theirs.length);
  while (first < most && ours[first] === theirs[first]) first++;
  while (last < most - first && ours.at(-1 - last) === theirs.at(-1 - last)) last++;
  const end = ours.length - last;
  return [ours.slice(0, first), ours.slice(first, end), ours.slice(end)].map((some) => some.join(""));
}

// The number of the word that a place in a line is in, or beside; null where there is none.
function wordAt(line, place) {
  let begin = 0;
  for (const [number, part] of partsOf(line)) {
    const end = begin + part.length;
    if (number !== null && place >= begin && place <= end) return number;
    begin = end;
  }
  return null;
}

// A text as one word of a command, for the shells that people have.
const quoted = (text) => (/["$`!\\%]/.test(text) ? `'${text.replaceAll("'", "'\\''")}'` : `"${text}"`);
