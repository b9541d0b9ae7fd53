// Data: what a trace contains, decoded; its pieces, words and maps, and what can be computed from them. Nothing is drawn here.

const PLACES = ["encoder", "cross", "decoder"];
const readJson = (id) => JSON.parse(document.getElementById(id).textContent);
const isNumber = (value) => value !== undefined && value !== null;

async function decode(blob) {
  if (blob.numbers) return blob;  // of an answer that was computed in this page
  const packed = Uint8Array.from(atob(blob.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = blob.shape.reduce((product, length) => product * length, 1);
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

// What is invisible, or would reverse the text around it, is written as an escape sequence.
const hidden = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/gu;  // joiners belong to the spelling of some scripts
const plain = (text) => text.replace(hidden, (letter) => "\\u" + letter.codePointAt(0).toString(16).padStart(4, "0"));
function brief(text, most = 28) {
  if (!text.trim()) return "\u2423";
  const letters = Array.from(plain(text.length > 400 ? text.slice(0, 400) : text));
  return letters.length > most ? letters.slice(0, most - 1).join("") + "\u2026" : letters.join("");
}
const rightToLeft = (text) => /^[^\p{L}]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/u.test(text);

// Byte tokens in the text of a candidate (<0xE2>), as the text that they encode.
function decodeByteTokens(text) {
  return text.replace(/(?:<0x[0-9A-F]{2}>)+/g, (run) => new TextDecoder().decode(Uint8Array.from(run.match(/[0-9A-F]{2}(?=>)/g), (byte) => parseInt(byte, 16))));
}

// The nodes of a search tree, which the page stores as columns.
function unpackNodes(packed) {
  if (Array.isArray(packed)) return packed;
  const columns = Object.fromEntries(Object.entries(packed).map(([key, column]) => [key, column.unique ? column.at.map((at) => column.unique[at]) : column])), keys = Object.keys(columns);
  return columns.step.map((_, at) => Object.fromEntries(keys.map((key) => [key, columns[key][at]])));
}

const isSpecial = (piece) => !isNumber(piece.word);
const continuesCharacter = (pieces, at) => isNumber(pieces[at].letter) && pieces[at].letter === pieces[at - 1]?.letter;
// The label of a piece: special pieces have a name, and of the bytes of one character only the first has a text.
function pieceLabel(pieces, at, most = 18) {
  const { text } = pieces[at];
  if (isSpecial(pieces[at]) && /^<\/?s>$|^\[SEP\]$/.test(text.trim())) return at === 0 && pieces.length > 1 ? t("start") : t("end");
  return continuesCharacter(pieces, at) ? "\u00b7" : brief(text.trim(), most);
}

// Pieces that form a word.
function groupWords(pieces) {
  const groups = [];
  pieces.forEach((piece, at) => {
    const previous = pieces[at - 1];
    if (at && !isSpecial(piece) && !isSpecial(previous) && piece.word === previous.word) groups[groups.length - 1].members.push(at);
    else groups.push({ members: [at], special: isSpecial(piece) });
  });
  for (const group of groups) {
    group.text = group.special ? pieceLabel(pieces, group.members[0])
      : group.members.map((at) => (continuesCharacter(pieces, at) ? "" : pieces[at].text)).join("").trim();
  }
  return groups;
}

const argmax = (numbers) => numbers.reduce((best, value, at) => (value > numbers[best] ? at : best), 0);

// A text without pieces gets an end token, so that every sentence has a step.
function completeSentence(sentence) {
  const { source, target } = sentence, complete = (text) => (text.pieces.length ? text : { ...text, pieces: [{ text: "</s>" }] });
  if (target.pieces.length) return sentence;  // without source pieces, it is of a language model
  return { ...sentence, source: complete(source), target: complete(target), steps: [{ logp: 0, top: [] }], latent: null, attention: {}, vectors: {}, contributions: {}, importance: {} };
}

// One recorded translation. A map is { rows, columns, numbers }: weights of pieces, row by row.
class Recording {
  constructor(sentence) {
    this.sentence = completeSentence(sentence);
    const { source, target } = this.sentence;
    // A decoder attends to what it has read: the start token, then every piece but the last.
    this.pieces = { source: source.pieces, target: target.pieces, input: [{ text: "<s>" }, ...target.pieces.slice(0, -1)] };
    this.maps = {};
    this.vectors = {};
    this.contributions = {};
    this.latent = null;  // the distribution over alignments, decoded
    this.cache = new Map();
  }
  async open() {
    const { attention = {}, vectors = {}, contributions = {}, latent } = this.sentence;
    const into = (target, blobs) => Object.entries(blobs).map(async ([name, blob]) => { target[name] = await decode(blob); });
    await Promise.all([...into(this.maps, attention), ...into(this.contributions, contributions)]);
    for (const [place, layers] of Object.entries(vectors)) this.vectors[place] = await Promise.all(layers.map((layer) => layer && decodeLayer(layer)));
    if (latent) this.latent = { ...latent, ...(await decode(latent.probabilities)) };
    for (const place of Object.keys(this.vectors)) this.recomputeWeights(place);
    return this;
  }
  // Weights of 8 bits would differ from the arithmetic in the last digit, so they are computed from the scores if there are any.
  recomputeWeights(place) {
    if (this.sentence.edits) return;  // those of an answer of this page are exact, and may have been edited
    const { shape: [, heads, rows, columns], numbers } = this.maps[place];
    this.vectors[place].forEach((layer, index) => {
      if (!layer) return;
      for (let head = 0; head < heads; head++) for (let row = 0; row < rows; row++) {
        const from = ((index * heads + head) * rows + row) * columns;
        numbers.set(normalizeScores(layer, scoresOf(layer, head, row)), from);
      }
    });
  }
  get places() { return PLACES.filter((place) => this.maps[place]); }
  // Whether the whole target was given, not only a prefix.
  get isForced() { return this.sentence.steps.every((step) => step.forced); }
  // A model that reads its source into one vector has a single column.
  get attendsToWords() { return Boolean(this.maps.cross) && this.maps.cross.shape[3] === this.pieces.source.length; }
  // The slots of a picture as a grid: its number of columns, and the position of every slot; null without a picture or a grid.
  get grid() {
    const { source } = this.pieces;
    if (!this.sentence.source.picture) return null;
    const [lefts, tops] = [0, 1].map((side) => [...new Set(source.map(({ box }) => box[side]))].sort((a, b) => a - b)), at = source.map(({ box }) => tops.indexOf(box[1]) * lefts.length + lefts.indexOf(box[0]));
    return new Set(at).size === lefts.length * tops.length && at.length === new Set(at).size ? { columns: lefts.length, rows: tops.length, at } : null;
  }
  // Cross-attention over a picture: the slots in their places, with their largest weight of all steps.
  inPlaces(place, head) {
    const { grid } = this;
    if (place !== "cross" || !grid || !this.attendsToWords) return null;
    const map = this.map(place, head), numbers = new Float32Array(grid.at.length);
    for (let row = 0; row < map.rows; row++) grid.at.forEach((at, slot) => { numbers[at] = Math.max(numbers[at], map.at(row, slot)); });
    return { rows: grid.rows, columns: grid.columns, numbers };
  }
  // The same with one tile per step, in lines whose shape is about that of a card.
  tiles(place, head) {
    const { grid } = this;
    if (place !== "cross" || !grid || !this.attendsToWords) return null;
    const map = this.map(place, head), wide = grid.columns + 1, high = grid.rows + 1, perLine = Math.max(1, Math.min(map.rows, Math.round(Math.sqrt((1.9 * map.rows * high) / wide))));
    const columns = perLine * wide - 1, rows = Math.ceil(map.rows / perLine) * high - 1, numbers = new Float32Array(rows * columns).fill(NaN);
    for (let step = 0; step < map.rows; step++) {
      const corner = Math.floor(step / perLine) * high * columns + (step % perLine) * wide;
      grid.at.forEach((at, slot) => { numbers[corner + Math.floor(at / grid.columns) * columns + (at % grid.columns)] = map.at(step, slot); });
    }
    return { rows, columns, numbers };
  }
  rowPieces(place) { return place === "encoder" ? this.pieces.source : this.pieces.target; }
  columnPieces(place) {
    const pieces = place === "decoder" ? this.pieces.input : this.pieces.source;
    return !this.maps[place] || this.maps[place].shape[3] === pieces.length ? pieces : [{ text: "\u2211", word: 0 }];
  }
  // The map of a head, or the mean of all heads (head is null).
  map(place, head) {
    const key = `${place} ${head}`;
    if (this.cache.has(key)) return this.cache.get(key);
    const { shape: [layers, heads, rows, columns], numbers } = this.maps[place];
    const size = rows * columns;
    let weights;
    if (head) weights = numbers.subarray((head[0] * heads + head[1]) * size, (head[0] * heads + head[1] + 1) * size);
    else {
      weights = new Float32Array(size);
      for (let i = 0; i < numbers.length; i++) weights[i % size] += numbers[i] / (layers * heads);
    }
    const map = { rows, columns, numbers: weights, at: (row, column) => weights[row * columns + column], row: (row) => weights.subarray(row * columns, (row + 1) * columns) };
    this.cache.set(key, map);
    return map;
  }
  // The same for words: the sum over the pieces of a source word, the mean over those of a target word.
  wordMap(place, head, reading) {
    const map = this.map(place, head), rows = groupWords(this.rowPieces(place)), columns = groupWords(this.columnPieces(place));
    const numbers = new Float32Array(rows.length * columns.length);
    rows.forEach((row, y) => columns.forEach((column, x) => {
      const sum = row.members.reduce((total, at) => total + column.members.reduce((part, slot) => part + map.at(alignedRow(place, reading, at, map.rows), slot), 0), 0);
      numbers[y * columns.length + x] = sum / row.members.length;
    }));
    return { rows, columns, numbers, at: (row, column) => numbers[row * columns.length + column] };
  }
  heads(place) {
    const [layers, heads] = this.maps[place].shape;
    return Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);
  }
  importance(place, head) { return (head && this.sentence.importance?.[place]?.[head[0]]?.[head[1]]) ?? null; }
  // What a head does, if one can tell from its map.
  describeHead(place, head) {
    const key = `facts ${place} ${head}`;
    if (this.cache.has(key)) return this.cache.get(key);
    const { rows, columns, numbers } = this.map(place, head);
    let entropy = 0, diagonal = 0, before = 0, own = 0, next = 0, last = 0;
    for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
      const weight = numbers[row * columns + column];
      if (weight > 0) entropy -= weight * Math.log(weight);
      diagonal += weight * (1 - Math.abs((row + 0.5) / rows - (column + 0.5) / columns));
      if (column === row - 1) before += weight;
      if (column === row) own += weight;
      if (column === row + 1) next += weight;
      if (column === columns - 1) last += weight;
    }
    const { reading } = this.sentence;
    const facts = { entropy: entropy / rows / Math.log(Math.max(columns, 2)), diagonality: diagonal / rows, importance: this.importance(place, head), label: "" };
    if (place === "cross" && reading && reading.layer === head[0] && reading.head === head[1]) facts.label = "aligner";
    else if (place !== "cross" && (place === "encoder" ? before : own) / rows > 0.5) facts.label = "previous";  // column t of a decoder is piece t - 1
    else if (place === "encoder" && own / rows > 0.5) facts.label = "itself";
    else if (place === "encoder" && next / rows > 0.5) facts.label = "next";
    else if (place !== "decoder" && last / rows > 0.5 && isSpecial(this.columnPieces(place)[columns - 1])) facts.label = "end";
    else if (facts.entropy > 0.85) facts.label = "broad";
    this.cache.set(key, facts);
    return facts;
  }
  probability(step) { return Math.exp(this.sentence.steps[step].logp); }
  // The index in `top` of the piece that was chosen; -1 if it is not among them.
  chosenIndex(step) {
    const { top, logp } = this.sentence.steps[step], { text } = this.pieces.target[step];
    const same = top.findIndex(([name, value]) => name === text && Math.abs(value - logp) < 1e-4);
    return same >= 0 ? same : top.findIndex(([, value]) => Math.abs(value - logp) < 1e-5);
  }
  // The state on which the page opens; docs/inspect.md explains the rule.
  get opening() {
    const { reading, steps } = this.sentence;
    const state = { place: this.maps.cross ? "cross" : this.places[0] ?? "cross", reading: reading?.step ?? "naive", head: this.openingHead, step: 0 };
    const words = steps.map((_, at) => at).filter((at) => !isSpecial(this.pieces.target[at]) && /\p{L}/u.test(this.pieces.target[at].text));
    const leastProbable = (candidates) => candidates.reduce((best, at) => (best === undefined || steps[at].logp < steps[best].logp ? at : best), undefined);
    const rescued = leastProbable(words.filter((at) => !steps[at].forced && steps[at].top.length && this.chosenIndex(at) !== 0));
    const reordered = this.attendsToWords && !this.sentence.source.picture && words.length ? this.findReordering(words, state) : undefined, unlikely = leastProbable(words.filter((at) => !steps[at].forced || this.isForced));
    return { ...state, step: rescued ?? reordered ?? unlikely ?? 0 };
  }
  // The head that training found to align words best. If that is the mean of all heads: the head that agrees with it most.
  get openingHead() {
    const { reading } = this.sentence, place = this.maps.cross ? "cross" : this.places[0];
    if (!place) return null;
    if (place === "cross" && reading && isNumber(reading.layer) && isNumber(reading.head)) return [reading.layer, reading.head];
    const mean = this.map(place, null), strongest = Array.from({ length: mean.rows }, (_, row) => argmax(mean.row(row))), heads = this.heads(place);
    return heads[argmax(heads.map((head) => strongest.reduce((sum, slot, row) => sum + this.map(place, head).at(row, slot), 0)))];
  }
  defaultHead(place) { return place === "cross" || !this.maps.cross ? this.openingHead : [0, 0]; }
  // What the rows of a map are named after: the piece that a step outputs or, with shifted reading, the one that it reads.
  rowNames(place, reading) { return place === "cross" && reading === "shifted" ? this.pieces.input : this.rowPieces(place); }
  // The step whose strongest source piece lies farthest after that of the next word: there the order of words changes.
  findReordering(words, { head, reading }) {
    const map = this.map("cross", isNumber(this.sentence.reading?.head) ? head : null), best = words.map((at) => argmax(map.row(alignedRow("cross", reading, at, map.rows))));
    const jumps = words.map((_, i) => (i + 1 < words.length ? best[i] - best[i + 1] : 0)), most = argmax(jumps);
    return jumps[most] >= 1 ? words[most] : undefined;
  }
}

// The row of a map that aligns a piece: that of the step that produces it or (shifted) of the one that reads it.
const alignedRow = (place, reading, step, rows) => Math.min(step + (place === "cross" && reading === "shifted" ? 1 : 0), rows - 1);

async function decodeLayer(layer) {
  const decoded = { score: layer.score, normalizer: layer.normalizer ?? layer.normalize ?? layer.normalise ?? "soft" };  // the last two: older traces
  const parts = ["queries", "keys", "values", "scores", "energy", "moved"].filter((part) => layer[part]);
  await Promise.all(parts.map(async (part) => { decoded[part] = await decode(layer[part]); }));
  return decoded;
}

const MASKED = -6e4;  // lower scores are masked: half precision ends at -65504
function vectorOf(part, head, row) {
  const [heads, rows, width] = part.shape, at = (Math.min(head, heads - 1) * rows + row) * width;
  return part.numbers.subarray(at, at + width);
}
// The scores of a row; -Infinity where a slot is masked.
const scoresOf = (layer, head, row) => Float32Array.from(vectorOf(layer.scores, head, row), (score) => (score < MASKED ? -Infinity : score));
function normalizeScores(layer, scores) {
  if (layer.normalizer === "hard") { const best = argmax(scores); return scores.map((_, at) => Number(at === best)); }
  const most = Math.max(...scores), exponentials = scores.map((score) => Math.exp(score - most)), sum = exponentials.reduce((total, value) => total + value, 0);
  return exponentials.map((value) => value / sum);
}
// The terms whose sum is the score of a query and a key, as the model's own function computes them.
function scoreTerms(layer, head, row, column) {
  const query = vectorOf(layer.queries, head, row), key = vectorOf(layer.keys, head, column), width = Math.min(query.length, key.length);
  if (!layer.energy) return { query, key, terms: Float32Array.from({ length: width }, (_, j) => query[j] * key[j]) };
  const moved = (j) => (layer.moved ? layer.moved.numbers[((head * layer.moved.shape[1] + row) * layer.moved.shape[2] + column) * layer.moved.shape[3] + j] : 0);
  return { query, key, terms: Float32Array.from({ length: width }, (_, j) => layer.energy.numbers[j] * Math.tanh(query[j] + key[j] + moved(j))) };
}

// Where two answers part: the first piece that differs.
function firstDifference(first, second) {
  const [a, b] = [first, second].map((recording) => recording.pieces.target);
  let at = 0;
  while (at < a.length && at < b.length && a[at].text === b[at].text) at++;
  return at;
}
