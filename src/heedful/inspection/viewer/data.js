// Data: what the trace says, decoded; words and pieces; maps and what can be counted about them. Nothing is drawn here.

const PLACES = ["encoder", "cross", "decoder"];
const readJson = (id) => JSON.parse(document.getElementById(id).textContent);

async function decode(blob) {
  const packed = Uint8Array.from(atob(blob.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = blob.shape.reduce((product, one) => product * one, 1);
  const numbers = new Float32Array(size);
  if (blob.kind === "sqrt8") for (let i = 0; i < size; i++) numbers[i] = (bytes[i] / 255) ** 2;
  else for (let i = 0; i < size; i++) numbers[i] = half(bytes[i] | (bytes[i + size] << 8));
  return { shape: blob.shape, numbers };
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// What cannot be seen, or would turn the text around it, is written out.
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/gu;
const plain = (text) => text.replace(hidden, (one) => "\\u" + one.codePointAt(0).toString(16).padStart(4, "0"));
function brief(text, most = 28) {
  if (!text.trim()) return "\u2423";
  const letters = Array.from(plain(text.length > 400 ? text.slice(0, 400) : text));
  return letters.length > most ? letters.slice(0, most - 1).join("") + "\u2026" : letters.join("");
}
const rightToLeft = (text) => /^[^\p{L}]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/u.test(text);

// Units: pieces that are shown as one, because they form a word, or because they are the bytes of one letter.
function unitsOf(pieces, level) {
  const units = [];
  let before = null;
  pieces.forEach((piece, at) => {
    const special = piece.word === undefined || piece.word === null;
    const letter = piece.letter === undefined || piece.letter === null ? null : "l" + piece.letter;
    const key = level === "words" && !special ? "w" + piece.word : letter ?? "p" + at;
    if (key !== before) units.push({ text: "", members: [], special, letters: new Set() });
    const unit = units[units.length - 1];
    unit.members.push(at);
    if (letter === null || !unit.letters.has(letter)) unit.text += piece.text;
    if (letter !== null) unit.letters.add(letter);
    before = key;
  });
  for (const unit of units) unit.text = level === "words" ? unit.text.trim() : unit.text.replace(/^ /, "\u2581");
  return units;
}

const isNumber = (value) => value !== undefined && value !== null;
// Bytes that a tokenizer spells out, read as the text they are.
function decodeByteTokens(text) {
  return text.replace(/(?:<0x[0-9A-F]{2}>)+/g, (run) => new TextDecoder().decode(Uint8Array.from(run.match(/[0-9A-F]{2}(?=>)/g), (byte) => parseInt(byte, 16))));
}

class View {
  constructor(sentence) {
    this.sentence = sentence;
    const { source, target } = sentence;
    // A decoder looks at what it has read: the start token, then every piece but the last.
    this.pieces = { source: source.pieces, target: target.pieces, input: [{ text: "<s>" }, ...target.pieces.slice(0, -1)] };
    this.units = {};
    for (const [side, pieces] of Object.entries(this.pieces)) this.units[side] = { words: unitsOf(pieces, "words"), pieces: unitsOf(pieces, "pieces") };
    this.maps = {};
    this.vectors = {};
    this.cache = new Map();
  }
  async open() {
    const { attention = {}, vectors = {} } = this.sentence;
    await Promise.all(Object.entries(attention).map(async ([place, blob]) => { this.maps[place] = await decode(blob); }));
    return this;
  }
  async arithmetic(place) {
    const layers = (this.sentence.vectors ?? {})[place];
    if (!layers || this.vectors[place]) return;
    const parts = ["queries", "keys", "values", "scores", "energy", "moved"];
    this.vectors[place] = await Promise.all(layers.map(async (layer) => {
      const found = { score: layer.score, normalizer: layer.normalizer ?? layer.normalize ?? layer.normalise ?? "soft" };  // the last two: older traces
      await Promise.all(parts.filter((part) => layer[part]).map(async (part) => { found[part] = await decode(layer[part]); }));
      return found;
    }));
  }
  get places() { return PLACES.filter((place) => this.maps[place]); }
  sides(place) { return place === "encoder" ? ["source", "source"] : place === "decoder" ? ["target", "input"] : ["target", "source"]; }
  // [T, S] of one head or of the mean of all, by pieces.
  raw(place, head) {
    const key = `${place} ${head}`;
    if (this.cache.has(key)) return this.cache.get(key);
    const { shape: [layers, heads, rows, columns], numbers } = this.maps[place];
    const size = rows * columns;
    let found;
    if (head) found = numbers.subarray((head[0] * heads + head[1]) * size, (head[0] * heads + head[1] + 1) * size);
    else {
      found = new Float32Array(size);
      for (let i = 0; i < numbers.length; i++) found[i % size] += numbers[i] / (layers * heads);
    }
    const map = { rows, columns, numbers: found };
    this.cache.set(key, map);
    return map;
  }
  // The same by units: the sum over the pieces of a source unit, the mean over those of a target unit.
  map(place, head, level, reading) {
    const key = `${place} ${head} ${level} ${reading}`;
    if (this.cache.has(key)) return this.cache.get(key);
    const raw = this.raw(place, head), [down, across] = this.sides(place);
    const rows = this.units[down][level];
    const columns = raw.columns === this.pieces[across].length ? this.units[across][level] : [{ text: "\u2211", members: [0], special: false }];
    const numbers = new Float32Array(rows.length * columns.length);
    rows.forEach((row, y) => columns.forEach((column, x) => {
      let sum = 0;
      for (let t of row.members) {
        if (place === "cross" && reading === "shifted") t = Math.min(t + 1, raw.rows - 1);
        for (const s of column.members) sum += raw.numbers[t * raw.columns + s];
      }
      numbers[y * columns.length + x] = sum / row.members.length;
    }));
    const map = { rows, columns, numbers, at: (y, x) => numbers[y * columns.length + x] };
    this.cache.set(key, map);
    return map;
  }
  heads(place) {
    const [layers, heads] = this.maps[place].shape;
    return Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);
  }
  // What can be counted about a head.
  facts(place, head) {
    const key = `facts ${place} ${head}`;
    if (this.cache.has(key)) return this.cache.get(key);
    const { rows, columns, numbers } = this.raw(place, head);
    let entropy = 0, diagonal = 0, before = 0, own = 0, next = 0, last = 0;
    for (let t = 0; t < rows; t++) for (let s = 0; s < columns; s++) {
      const w = numbers[t * columns + s];
      if (w > 0) entropy -= w * Math.log(w);
      diagonal += w * (1 - Math.abs((t + 0.5) / rows - (s + 0.5) / columns));
      if (s === t - 1) before += w;
      if (s === t) own += w;
      if (s === t + 1) next += w;
      if (s === columns - 1) last += w;
    }
    const flat = Math.log(Math.max(columns, 2));
    const reading = this.sentence.reading;
    const importance = ((this.sentence.importance ?? {})[place] ?? [])[head[0]]?.[head[1]];
    const facts = { entropy: entropy / rows / flat, diagonality: diagonal / rows, importance: importance ?? null, label: "" };
    if (place === "cross" && reading && reading.layer === head[0] && reading.head === head[1]) facts.label = "aligner";
    else if (place !== "cross" && (place === "encoder" ? before : own) / rows > 0.5) facts.label = "previous";  // slot t of a decoder is piece t - 1
    else if (place === "encoder" && own / rows > 0.5) facts.label = "itself";
    else if (place === "encoder" && next / rows > 0.5) facts.label = "next";
    else if (place !== "decoder" && last / rows > 0.5) facts.label = "end";
    else if (facts.entropy > 0.85) facts.label = "broad";
    this.cache.set(key, facts);
    return facts;
  }
  // How the sentence is best opened: the reading that training chose.
  get opening() {
    const { reading } = this.sentence;
    return { reading: reading?.step ?? "naive", head: reading && isNumber(reading.layer) && isNumber(reading.head) ? [reading.layer, reading.head] : null };  // of a layer's mean, the mean of all is the nearest there is
  }
  unitOf(side, level, piece) { return this.units[side][level].findIndex((unit) => unit.members.includes(piece)); }
  prob(step) { return Math.exp(this.sentence.steps[step].logp); }
}

// Where two answers part: the first piece that differs.
function firstDifference(one, other) {
  const a = one.sentence.target.pieces, b = other.sentence.target.pieces;
  let at = 0;
  while (at < a.length && at < b.length && a[at].text === b[at].text) at++;
  return at;
}

// The score of one query and one key, part by part, as the model's own function makes it.
function scoreParts(layer, head, t, s) {
  const take = (part, row) => {
    const [heads, rows, width] = part.shape, h = Math.min(head, heads - 1);
    return part.numbers.subarray((h * rows + row) * width, (h * rows + row + 1) * width);
  };
  const q = take(layer.queries, t), k = take(layer.keys, s);
  const width = Math.min(q.length, k.length), products = new Float32Array(width);
  if (layer.energy) {
    const v = layer.energy.numbers, moved = layer.moved;
    for (let j = 0; j < width; j++) {
      const [, rows, columns, wide] = moved ? moved.shape : [0, 0, 0, 0];
      const f = moved ? moved.numbers[(t * columns + s) * wide + j] : 0;
      products[j] = v[j] * Math.tanh(q[j] + k[j] + f);
    }
  } else for (let j = 0; j < width; j++) products[j] = q[j] * k[j];
  const sum = products.reduce((total, one) => total + one, 0);
  const divisor = layer.score === "scaled_dot" ? Math.sqrt(width) : 1;
  const [heads, rows, columns] = layer.scores.shape, h = Math.min(head, heads - 1);
  const row = layer.scores.numbers.subarray((h * rows + t) * columns, (h * rows + t + 1) * columns);
  return { q, k, products, sum, divisor, score: sum / divisor, row, width };
}
