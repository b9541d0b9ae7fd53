// State: one value, changed by `set`, told to everybody who listens, and kept in the address (#step=4&head=2.5).

const USUAL = {
  sentence: 0, step: 0, place: "cross", head: null, level: "words", reading: "naive", link: "soft", least: 0.1,
  sort: "layer", cell: null, node: null, other: null, frame: 0, take: 0, pruned: true, theme: "", lang: "", hover: null,
};
let state = { ...USUAL };
const listeners = [];
let waiting = null, remembering = null;

function set(change) {
  const keys = Object.keys(change).filter((key) => JSON.stringify(state[key]) !== JSON.stringify(change[key]));
  if (!keys.length) return;
  state = { ...state, ...change };
  if (waiting) keys.forEach((key) => waiting.add(key));
  else {
    waiting = new Set(keys);
    requestAnimationFrame(() => {
      const changed = waiting;
      waiting = null;
      for (const listen of listeners) listen(changed);
      clearTimeout(remembering);  // browsers forbid to change the address too often
      remembering = setTimeout(remember, 200);
    });
  }
}

const spell = {
  head: (head) => (head ? `${head[0] + 1}.${head[1] + 1}` : "mean"),
  cell: (cell) => (cell ? cell.map((one) => one + 1).join(".") : ""),
  step: (step) => String(step + 1), sentence: (at) => String(at + 1), frame: (at) => String(at + 1), take: (at) => String(at + 1),
};
const pair = (text) => {
  const found = /^(\d+)\.(\d+)$/.exec(text);
  return found && found[1] > 0 && found[2] > 0 ? [found[1] - 1, found[2] - 1] : null;
};
const count = (text) => Math.max(0, (Number.parseInt(text, 10) || 1) - 1);
const readers = { head: pair, cell: pair, step: count, sentence: count, frame: count, take: count, least: Number,
  pruned: (text) => text !== "false", node: Number, other: Number };
const kept = ["sentence", "step", "place", "head", "level", "reading", "link", "least", "sort", "cell", "frame", "take", "theme", "lang"];

function remember() {
  const parts = kept.filter((key) => JSON.stringify(state[key]) !== JSON.stringify(start[key]) && state[key] !== "")
    .map((key) => `${key}=${encodeURIComponent((spell[key] ?? String)(state[key]))}`);
  try { history.replaceState(null, "", parts.length ? "#" + parts.join("&") : location.pathname + location.search); } catch { /* a frame without an address */ }
}

function recalled() {
  const found = {};
  for (const part of location.hash.slice(1).split("&")) {
    const [key, value] = part.split("=");
    if (!kept.includes(key) || value === undefined) continue;
    try { found[key] = (readers[key] ?? String)(decodeURIComponent(value)); } catch { /* not ours */ }
  }
  const allowed = { place: PLACES, level: ["words", "pieces"], reading: ["naive", "shifted"], link: ["soft", "hard"],
    sort: ["layer", "entropy", "diagonality", "importance"], theme: ["light", "dark", "projector"], lang: ["en", "pt", "ru"] };
  for (const [key, values] of Object.entries(allowed)) if (key in found && !values.includes(found[key])) delete found[key];
  return found;
}
let start = { ...USUAL };

// A state that this trace has: an address can say anything.
function clamped(wanted, trace, view) {
  const most = (value, count) => Math.max(0, Math.min(value, count - 1)), found = { ...wanted };
  found.least = Number.isFinite(found.least) ? Math.max(0, Math.min(0.6, found.least)) : USUAL.least;
  found.sentence = most(found.sentence, trace.sentences?.length ?? 0);
  if (!view) return found;
  found.step = most(found.step, view.sentence.steps.length);
  if (!view.places.includes(found.place)) found.place = view.places.includes("cross") ? "cross" : view.places[0] ?? "cross";
  if (!view.maps[found.place]) return { ...found, head: null, cell: null };
  const [layers, heads, rows, columns] = view.maps[found.place].shape;
  if (found.head && (found.head[0] >= layers || found.head[1] >= heads)) found.head = null;
  if (found.cell && (found.cell[0] >= rows || found.cell[1] >= columns)) found.cell = null;
  return found;
}
