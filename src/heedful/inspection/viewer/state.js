// State: one value, changed by `set`, passed to all listeners, and written into the address (#step=4&head=2.5).

const DEFAULT_STATE = {
  sentence: 0, step: 0, place: "cross", head: null, level: "words", reading: "naive", link: "soft", least: 0.1,
  sort: "layer", cell: null, node: null, other: null, frame: 0, take: 0, pruned: true, theme: "", lang: "", hover: null,
};
let state = { ...DEFAULT_STATE };
const listeners = [];
let changedKeys = null, addressTimer = null;

function set(change) {
  const keys = Object.keys(change).filter((key) => JSON.stringify(state[key]) !== JSON.stringify(change[key]));
  if (!keys.length) return;
  state = { ...state, ...change };
  if (changedKeys) keys.forEach((key) => changedKeys.add(key));
  else {
    changedKeys = new Set(keys);
    requestAnimationFrame(() => {
      const changed = changedKeys;
      changedKeys = null;
      for (const listen of listeners) listen(changed);
      clearTimeout(addressTimer);  // browsers forbid to change the address too often
      addressTimer = setTimeout(writeAddress, 200);
    });
  }
}

const formatters = {
  head: (head) => (head ? `${head[0] + 1}.${head[1] + 1}` : "mean"),
  cell: (cell) => (cell ? cell.map((one) => one + 1).join(".") : ""),
  step: (step) => String(step + 1), sentence: (at) => String(at + 1), frame: (at) => String(at + 1), take: (at) => String(at + 1),
};
const pair = (text) => {
  const found = /^(\d+)\.(\d+)$/.exec(text);
  return found && found[1] > 0 && found[2] > 0 ? [found[1] - 1, found[2] - 1] : null;
};
const count = (text) => Math.max(0, (Number.parseInt(text, 10) || 1) - 1);
const parsers = { head: pair, cell: pair, step: count, sentence: count, frame: count, take: count, least: Number,
  pruned: (text) => text !== "false", node: Number, other: Number };
const ADDRESS_KEYS = ["sentence", "step", "place", "head", "level", "reading", "link", "least", "sort", "cell", "frame", "take", "theme", "lang"];

function writeAddress() {
  const parts = ADDRESS_KEYS.filter((key) => JSON.stringify(state[key]) !== JSON.stringify(start[key]) && state[key] !== "")
    .map((key) => `${key}=${encodeURIComponent((formatters[key] ?? String)(state[key]))}`);
  try { history.replaceState(null, "", parts.length ? "#" + parts.join("&") : location.pathname + location.search); } catch { /* a frame without an address */ }
}

function stateFromAddress() {
  const found = {};
  for (const part of location.hash.slice(1).split("&")) {
    const [key, value] = part.split("=");
    if (!ADDRESS_KEYS.includes(key) || value === undefined) continue;
    try { found[key] = (parsers[key] ?? String)(decodeURIComponent(value)); } catch { /* not ours */ }
  }
  const allowed = { place: PLACES, level: ["words", "pieces"], reading: ["naive", "shifted"], link: ["soft", "hard"],
    sort: ["layer", "entropy", "diagonality", "importance"], theme: ["light", "dark", "projector"], lang: ["en", "pt", "ru"] };
  for (const [key, values] of Object.entries(allowed)) if (key in found && !values.includes(found[key])) delete found[key];
  return found;
}
let start = { ...DEFAULT_STATE };

// The nearest state that exists in this trace: an address can contain anything.
function clampState(wanted, trace, view) {
  const most = (value, count) => Math.max(0, Math.min(value, count - 1)), found = { ...wanted };
  found.least = Number.isFinite(found.least) ? Math.max(0, Math.min(0.6, found.least)) : DEFAULT_STATE.least;
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
