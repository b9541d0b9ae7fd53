// What if: the question that a live page answers, as a part of the state and of the address: a text, a search, and changes of the
// model. Changes are a forced beginning, silenced heads { place, head } and edited cells { place, head, step, slot, weight }; an
// edit without a head is one of all heads. Before and after have the same search, so that they differ only by the changes.

const description = readJson("live"), { generation } = description;
const CHANGES = { force: [], silence: [], edit: [] };
const SETTINGS = { search: generation.beam > 1 ? "beam" : "greedy", beam: Math.max(2, generation.beam), penalty: generation.length_penalty, temperature: 1, topk: 0, seed: 0 };
Object.assign(DEFAULT_STATE, { text: null }, SETTINGS, CHANGES);
const LIVE_KEYS = ["text", ...Object.keys(SETTINGS), ...Object.keys(CHANGES)];
ADDRESS_KEYS.push(...LIVE_KEYS);
ALLOWED.search = ["greedy", "beam", "sample"];

const placeAndHead = ({ place, head }) => `${place}-${formatters.head(head)}`;
Object.assign(formatters, {
  text: (text) => text.replace(/[\ud800-\udfff]/gu, "\ufffd"),  // half a character cannot be in an address
  force: JSON.stringify,
  silence: (heads) => heads.map(placeAndHead).join("_"),
  edit: (edits) => edits.map((edit) => [placeAndHead(edit), edit.step + 1, edit.slot + 1, Math.round(100 * edit.weight)].join("-")).join("_"),
});
// Values that are none throw, and parseState leaves them out.
const within = (least, most) => (text) => { const value = Number(text); if (!(value >= least && value <= most)) throw new RangeError(text); return value; };
const HEAD = "(encoder|cross|decoder)-(mean|[1-9]\\d?\\.[1-9]\\d?)";
const parseList = (text, pattern, read) => text.split("_").map((part) => { const [, place, head, ...rest] = new RegExp(`^${pattern}$`).exec(part); return read({ place, head: parsers.head(head) }, rest.map(Number)); });
Object.assign(parsers, {
  beam: (text) => Math.round(within(2, 12)(text)), penalty: within(0, 2), temperature: within(0.1, 2), topk: (text) => Math.round(within(0, 50)(text)), seed: (text) => Math.round(within(0, 1e6)(text)),
  force: (text) => { const names = JSON.parse(text); if (!Array.isArray(names) || !names.every((name) => typeof name === "string")) throw new TypeError(text); return names; },
  silence: (text) => parseList(text, HEAD, (head) => head).filter(({ head }) => head),
  edit: (text) => parseList(text, `${HEAD}-([1-9]\\d*)-([1-9]\\d*)-(\\d{1,3})`, (head, [step, slot, weight]) => ({ ...head, step: step - 1, slot: slot - 1, weight: Math.min(1, weight / 100) })),
});

// What the engine is asked.
function question() {
  const { text, search, beam: size, penalty, temperature, topk, seed, force, silence, edit } = state;
  const options = { greedy: { search }, beam: { search, size, lengthPenalty: penalty }, sample: { search, temperature, topK: topk || null, seed } }[search];
  const changes = {
    begin: force, silenced: silence.map(({ place, head: [layer, head] }) => ({ place, layer, head })),
    edits: edit.map(({ place, head, step, slot, weight }) => ({ place, ...(head && { layer: head[0], head: head[1] }), step, slot, weight })),
  };
  return { text, options, changes: hasChanges() ? changes : null };
}
// Whether the state still has the question of an answer.
const isAsked = (asked) => LIVE_KEYS.every((key) => JSON.stringify(asked[key]) === JSON.stringify(state[key]));
const hasChanges = () => Object.keys(CHANGES).some((key) => state[key].length);
// Ask about the sentence that is shown.
const ask = (change) => context.recording && set({ text: state.text ?? context.recording.sentence.source.text, ...change });

listeners.push((changed) => {
  const { engine } = context, isChosen = changed.has("sentence") && !changed.has("text");
  // A recording is shown as it is; the last answer with its question.
  if (isChosen) state = { ...state, text: null, ...CHANGES, ...(state.sentence === engine.liveAt ? engine.asked : {}) };
  else if (LIVE_KEYS.some((key) => changed.has(key))) run();
  showExperiment();
  if (panels.whatIf) panels.whatIf.update(changed);
});

// A slide that asks the model shows this panel beside its own.
const showExperiment = () => document.body.classList.toggle("experiment", state.slide !== null && state.text !== null);
// The slide's panel and notes are shown at once, its cell with the answer.
function askSlide(mentioned, slide) {
  const { sentence, place, head, step, slot, ...shown } = { ...start, ...mentioned, slide };
  state = { ...state, ...Object.fromEntries(LIVE_KEYS.map((key) => [key, shown[key]])) };
  set(shown);
  run(mentioned);
}

// ------------------------------------------------------------------------------------------------------------ changes

const isSilenced = (place, head) => Boolean(head) && state.silence.some((other) => other.place === place && sameHead(other.head, head));
function toggleSilence() {
  const { place, head } = state;
  if (!head || !context.recording.maps[place]) return;
  ask({ silence: isSilenced(place, head) ? state.silence.filter((other) => other.place !== place || !sameHead(other.head, head)) : [...state.silence, { place, head }] });
}
function silenceButton() {
  const node = button(t("live-silence"), toggleSilence, { "data-key": "silence" });
  node.show = () => { node.setAttribute("aria-pressed", String(isSilenced(state.place, state.head))); node.disabled = !state.head; };
  return node;
}

// The answer so far, then this piece; a recording has no names of its pieces, but those of the most probable ones.
function force(name) {
  const { recording } = context, { steps, target } = recording.sentence, at = stepOfTarget();
  ask({ force: [...steps.slice(0, at).map((step, index) => step.name ?? step.top[recording.chosenIndex(index)]?.[0] ?? target.pieces[index].text), name] });
}

// Edits of a row of the selected map: those of other cells, and these { slot: weight }. Weights are whole percents.
const isOfRow = (edit, row) => edit.place === state.place && sameHead(edit.head, state.head) && edit.step === row;
function editsWith(row, cells, edits = state.edit) {
  const { place, head } = state, others = edits.filter((edit) => !isOfRow(edit, row) || !(edit.slot in cells));
  const left = 1 - others.reduce((sum, edit) => sum + (isOfRow(edit, row) ? edit.weight : 0), 0);
  return [...others, ...Object.entries(cells).map(([slot, weight]) => ({ place, head, step: row, slot: Number(slot), weight: Math.round(100 * Math.max(0, Math.min(left, weight))) / 100 }))];
}
const canEdit = (row, slot) => { const map = context.recording.maps[state.place] && currentMap(); return Boolean(map) && map.columns > 1 && row >= 0 && slot >= 0 && row < map.rows && slot < map.columns && (state.place !== "decoder" || slot <= row); };
function changeWeight(by) {
  const row = currentRow(), chosen = state.edit.find((edit) => isOfRow(edit, row) && edit.slot === state.slot);
  if (canEdit(row, state.slot)) ask({ edit: editsWith(row, { [state.slot]: (chosen?.weight ?? currentMap().at(row, state.slot)) + by }) });
}
// The edited cells of the selected map have a dashed frame.
function markEdits(pen, { width, height }) {
  pen.setLineDash([4, 3]);
  pen.lineWidth = 2;
  pen.strokeStyle = cssColor("--accent");
  for (const { place, head, step, slot } of state.edit) if (place === state.place && (!head || sameHead(head, state.head))) pen.strokeRect(slot * width + 2, step * height + 2, width - 5, height - 5);
  pen.setLineDash([]);
}

// ----------------------------------------------------------------------------------------------------------- the panel

function chipTexts() {
  const { recording } = context, at = ({ place, head }) => `${t("at-" + place)} ${headName(head)}`;
  const slotName = ({ place, slot }) => { const pieces = recording.columnPieces(place); return pieces[slot] ? quoted(pieceLabel(pieces, slot, 12)) : slot + 1; };
  const without = (key, index) => ({ [key]: state[key].filter((_, other) => other !== index) });
  return [
    ...(state.force.length ? [[t("live-begin", quoted(brief(decodeByteTokens(state.force.join("")).trim(), 40))), { force: [] }]] : []),
    ...state.silence.map((head, index) => [t("live-silenced", at(head)), without("silence", index)]),
    ...state.edit.map((edit, index) => [t("live-edit", at(edit), edit.step + 1, slotName(edit), percent(edit.weight)), without("edit", index)]),
  ];
}

function whatIfPanel() {
  showExperiment();
  const modes = el("div", { class: "modes" }), chips = el("ul", { class: "chips", "aria-label": t("live-changes") }), hint = el("p", { class: "quiet", text: t("live-hint") }), outcome = el("div", { class: "outcome", "aria-live": "polite" });
  const reset = button(t("live-reset"), () => ask(CHANGES), { class: "button", "data-key": "live-reset" });
  const setting = (mode, key, name, [least, most, by], format) => {
    const value = el("output"), input = slider(t(name), least, most, by, state[key], (chosen) => { value.textContent = format(chosen); ask({ [key]: chosen }); }, { "data-key": `live-${key}` });
    return { mode, node: el("label", { class: "setting" }, el("span", { text: t(name) }), input, value), show() { input.show(state[key]); value.textContent = format(state[key]); } };
  };
  const settings = [
    setting("beam", "beam", "live-size", [2, 12, 1], String), ...(generation.length_rule === "none" ? [] : [setting("beam", "penalty", "live-penalty", [0, 2, 0.05], number)]),
    setting("sample", "temperature", "live-temperature", [0.1, 2, 0.05], number), setting("sample", "topk", "live-topk", [0, 50, 1], (value) => (value ? String(value) : t("live-all"))),
  ];
  const again = button(t("live-again"), () => ask({ seed: state.seed + 1 }), { class: "button", "data-key": "live-again" });
  const compareAnswers = () => {
    const { before, answered: after, asked } = context.engine;
    if (!after || !hasChanges() || (!isDragging() && !isAsked(asked))) return [];
    const isSame = before.target.text === after.target.text;
    return [el("p", { class: "difference", dir: rightToLeft(after.target.text) ? "rtl" : "ltr" }, ...(isSame ? [t("live-same")] : markDifference(before.target.text, after.target.text))), el("small", { class: "number", text: `log p ${number(before.logp)} \u2192 ${number(after.logp)}` })];
  };
  const node = el("section", { class: "what-if panel", id: "what-if", "aria-label": t("live-question") }, el("div", { class: "panel-head" }, el("h2", { text: t("live-question") }), modes), ...settings.map((entry) => entry.node), again,
    el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("live-changes") }, hint, outcome, chips), reset);
  return {
    node,
    update(changed) {
      const has = (...keys) => changed.has("all") || keys.some((key) => changed.has(key));
      if (has("search")) {
        const key = focusKey(modes);
        modes.replaceChildren(radios(t("search"), ALLOWED.search.map((mode) => [mode, t("live-" + mode)]), state.search, (search) => ask({ search })));
        if (key) modes.querySelector(key)?.focus();
      }
      for (const entry of settings) { entry.node.hidden = entry.mode !== state.search; entry.show(); }
      again.hidden = state.search !== "sample";
      if (!has("sentence", ...Object.keys(CHANGES))) return;
      reset.hidden = !hasChanges();
      hint.hidden = hasChanges();
      const key = focusKey(chips);
      chips.replaceChildren(...chipTexts().map(([text, change], index) => el("li", null, button(`${text} \u00d7`, () => ask(change), { class: "chip", "aria-label": t("live-remove", text), title: t("live-remove", text), "data-key": `chip-${index}` }))));
      if (key) (chips.querySelector(key) ?? chips.querySelector("button"))?.focus();
      if (changed.has("all") || !hasChanges()) setContent(outcome, compareAnswers());  // else the last comparison stays until the next answer
    },
  };
}

// ------------------------------------------------------------------------------------------------------------ dragging

// A cell of the map is dragged up or down; the end of a link to another source word, which then has the weight of both. Until
// the answer is there, the page shows the row as the engine will compute it. With a finger, only the selected cell and word can
// be dragged, so that the page still scrolls.
const DRAG_START = 5, DRAG_RANGE = 8, LINK_REACH = 2;  // in pixels; in rem from 0 to 1; in rem around the end of a link
let drag = null, preview = null;  // { row, slot, weights, isMoving, ... }; { weights, before }
const isDragging = () => Boolean(drag?.isMoving);

function previewRow(row, edits) {
  const weights = currentMap().row(row);
  preview ??= { weights, before: weights.slice() };
  weights.set(editRow(preview.before, edits.filter((edit) => isOfRow(edit, row))));
  panels.stage.update(new Set(["hover"]));
  panels.dock.update(new Set(["head"]));
}
function endPreview() {
  preview?.weights.set(preview.before);
  preview = null;
}

// What is at a point: a cell of the map, or the end of a link of this step.
function cellAt({ target, clientX, clientY, pointerType }) {
  const board = target.closest("[data-key=map]");
  if (!board || (pointerType === "touch" && !target.closest(".cell-marker"))) return null;
  const { left, top, width, height } = board.querySelector("canvas").getBoundingClientRect(), { rows, columns } = currentMap();
  return { kind: "cell", row: Math.floor(((clientY - top) / height) * rows), slot: Math.floor(((clientX - left) / width) * columns) };
}
function linkAt({ target, clientX, clientY, pointerType }) {
  if (!target.closest("#stage .board") || target.closest(".target")) return null;
  const reach = LINK_REACH * rootSize(), isAcross = isNarrow();
  const ends = [...document.querySelectorAll("#stage .source .piece")].map((node) => {
    const { left, right, top, bottom } = node.getBoundingClientRect(), end = isAcross ? [right, (top + bottom) / 2] : [(left + right) / 2, bottom];
    return { node, distance: node.contains(target) ? 0 : Math.hypot(clientX - end[0], clientY - end[1]) };
  });
  const nearest = ends.reduce((best, end) => (end.distance < best.distance ? end : best), { distance: reach });
  if (!nearest.node || (pointerType === "touch" && !nearest.node.matches(".lit"))) return null;
  return { kind: "link", row: currentRow(), slot: Number(nearest.node.dataset.at) };
}

const DRAGS = {
  cell: ({ slot, y, from }, { clientY }) => ({ [slot]: from[slot] + (y - clientY) / (DRAG_RANGE * rootSize()) }),
  link: ({ row, slot, from }, { clientX, clientY }) => {
    const piece = document.elementFromPoint(clientX, clientY)?.closest("#stage .source .piece"), to = piece ? Number(piece.dataset.at) : slot;
    return to === slot || !canEdit(row, to) ? null : { [slot]: 0, [to]: from[slot] + from[to] };
  },
};
document.addEventListener("pointerdown", (event) => {
  const { recording } = context;
  if (event.button !== 0 || !recording?.maps[state.place] || state.quiz || (state.slide !== null && state.text === null)) return;
  const grabbed = cellAt(event) ?? linkAt(event);
  if (!grabbed || !canEdit(grabbed.row, grabbed.slot)) return;
  drag = { ...grabbed, x: event.clientX, y: event.clientY, from: currentMap().row(grabbed.row).slice(), before: state.edit, isMoving: false };
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  if (!drag.isMoving && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < DRAG_START) return;
  if (!drag.isMoving) set({ slot: drag.slot, ...(drag.kind === "cell" && { step: stepOfRow(drag.row) }) });
  drag.isMoving = true;
  event.preventDefault();
  const cells = DRAGS[drag.kind](drag, event), edit = cells ? editsWith(drag.row, cells, drag.before) : drag.before;
  previewRow(drag.row, edit);
  ask({ edit, hover: null });
});
for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => {
  const wasMoving = isDragging();
  drag = null;
  if (!wasMoving) return;
  const ignore = (event) => { event.preventDefault(); event.stopPropagation(); };  // the end of a drag is no click
  document.addEventListener("click", ignore, { capture: true });
  setTimeout(() => document.removeEventListener("click", ignore, { capture: true }));
  if (!live.isRunning && !LIVE_KEYS.some((key) => changedKeys?.has(key))) run();
});

whatIf = {
  panel: whatIfPanel, askSlide, force, isSilenced, silenceButton, markEdits,
  begin: (names) => ask({ force: names }),
  // The page has opened: answer the question of its address.
  open: (mentioned) => run(mentioned),
  keys: { s: toggleSilence, r: () => ask(CHANGES), "+": () => changeWeight(0.1), "-": () => changeWeight(-0.1) },
  help: [["s", "live-silence"], ["+ \u2212", "live-weight"], ["r", "live-reset"]],
};
