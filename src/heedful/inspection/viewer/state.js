// State: one value, changed by `set`, passed to all listeners, and written into the address (#step=4&head=2.5).
// place, head, step and slot are the selected cell, which all panels share.

const TABS = ["next", "heads", "map", "alignment", "search", "evidence", "compare", "film"];
const TARGET_TABS = ["next", "alignment", "search", "evidence"];  // about a step of the target: the encoder has none
const DEFAULT_STATE = {
  sentence: 0, place: "cross", head: null, step: 0, slot: 0, tab: "next", reading: "naive", link: "soft", threshold: 0.15, sort: "layer", scene: 1,
  node: null, other: null, frame: 0, take: 0, theme: "", lang: "", hover: null, quiz: "", slide: null,
};
let state = { ...DEFAULT_STATE };
let start = { ...DEFAULT_STATE };  // what the address does not mention
const listeners = [];
let completeState = (change) => change;  // derives what a change implies; main.js sets it
let changedKeys = null, addressTimer = null;
let knownAddress = "";  // what the page read or wrote last
let meanwhile = {};  // what was set since the last address began to open, of what an address can say

// A panel that fails must not keep the others from following.
function attempt(act) { try { act(); } catch (error) { reportError(error); } }

function set(change) {
  const whole = completeState(change);
  const keys = Object.keys(whole).filter((key) => JSON.stringify(state[key]) !== JSON.stringify(whole[key]));
  if (!keys.length) return;
  state = { ...state, ...whole };
  for (const key of keys) if (ADDRESS_KEYS.includes(key)) meanwhile[key] = whole[key];
  if (changedKeys) keys.forEach((key) => changedKeys.add(key));
  else {
    changedKeys = new Set(keys);
    requestAnimationFrame(() => {
      const changed = changedKeys;
      changedKeys = null;
      for (const listen of listeners) attempt(() => listen(changed));
      clearTimeout(addressTimer);  // browsers limit how often an address may change
      addressTimer = setTimeout(writeAddress, 200);
    });
  }
}

const oneBased = (at) => String(at + 1);
const formatters = {
  head: (head) => (head ? `${head[0] + 1}.${head[1] + 1}` : "mean"), step: oneBased, slot: oneBased, sentence: oneBased, frame: oneBased, take: oneBased, slide: oneBased,
  scene: (scene) => String(Math.round(100 * scene) / 100),
};
const parseIndex = (text) => Math.max(0, (Number.parseInt(text, 10) || 1) - 1);
const parsers = {
  head: (text) => { const match = /^(\d+)\.(\d+)$/.exec(text); return match && match[1] > 0 && match[2] > 0 ? [match[1] - 1, match[2] - 1] : null; },
  step: parseIndex, slot: parseIndex, sentence: parseIndex, frame: parseIndex, take: parseIndex, slide: parseIndex, threshold: Number, scene: Number,
};
const ADDRESS_KEYS = ["sentence", "step", "slot", "place", "head", "tab", "reading", "link", "threshold", "sort", "scene", "frame", "take", "slide", "theme", "lang"];
const ALLOWED = {
  place: PLACES, tab: TABS, reading: ["naive", "shifted"], link: ["soft", "hard"], sort: ["layer", "entropy", "diagonality", "importance"],
  theme: ["light", "dark", "projector"], lang: ["en", "pt", "ru"],
};

function writeAddress() {
  if (location.hash !== knownAddress) return;  // a visitor has just changed it: the page is about to open that address
  const differs = (key) => JSON.stringify(state[key]) !== JSON.stringify(start[key]);
  // The slot of an opening state follows from the rest. In a quiz it would tell the answer.
  const isWritten = (key) => (key === "slot" ? !state.quiz && ["place", "head", "step", "slot", "reading"].some(differs) : differs(key));
  const parts = ADDRESS_KEYS.filter(isWritten).map((key) => `${key}=${encodeURIComponent((formatters[key] ?? String)(state[key]))}`);
  try { history.replaceState(null, "", parts.length ? "#" + parts.join("&") : location.pathname + location.search); } catch { /* a frame without an address */ }
  knownAddress = location.hash;
}

function parseState(text) {
  const parsed = {};
  for (const part of text.split("&")) {
    const [key, value] = part.split("=");
    if (!ADDRESS_KEYS.includes(key) || value === undefined) continue;
    try { parsed[key] = (parsers[key] ?? String)(decodeURIComponent(value)); } catch { /* not ours */ }
  }
  for (const [key, values] of Object.entries(ALLOWED)) if (key in parsed && !values.includes(parsed[key])) delete parsed[key];
  for (const key of ["threshold", "scene"]) if (key in parsed && !Number.isFinite(parsed[key])) delete parsed[key];
  if (!("text" in parsed)) for (const key of ["force", "silence", "edit"]) delete parsed[key];  // changes of no question
  return parsed;
}
function stateFromAddress() {
  clearTimeout(addressTimer);  // it would write the old state over this address
  knownAddress = location.hash;
  return parseState(knownAddress.slice(1));
}

// The nearest state that exists for a recording: an address can contain anything.
function clampState(wanted, count, recording) {
  const most = (value, length) => Math.max(0, Math.min(value, length - 1)), clamped = { ...wanted };
  clamped.threshold = Math.max(0, Math.min(0.6, clamped.threshold));
  clamped.scene = Math.max(0, Math.min(5, clamped.scene));
  clamped.sentence = most(clamped.sentence, count);
  if (!recording) return clamped;
  if (!recording.places.includes(clamped.place)) clamped.place = recording.maps.cross ? "cross" : recording.places[0] ?? "cross";
  if (clamped.place === "encoder" && recording.maps.cross && TARGET_TABS.includes(clamped.tab)) clamped.tab = "map";
  clamped.step = most(clamped.step, recording.rowPieces(clamped.place).length);
  if (!recording.maps[clamped.place]) return { ...clamped, head: null, slot: 0 };
  const [layers, heads, , columns] = recording.maps[clamped.place].shape;
  if (clamped.head && (clamped.head[0] >= layers || clamped.head[1] >= heads)) clamped.head = null;
  clamped.slot = most(clamped.slot, columns);
  return clamped;
}
