// The page: layout, tabs, keys, languages, themes. A panel is { node, update(changed), resize?, scroll? }.

const glossary = readJson("glossary");
const filmPanel = () => film(context.engine.film, context.engine.sentences[0]?.reading) ?? { node: el("p", { class: "remark", text: t(liveForm ? "live-empty" : "no-film") }), update() {} };
const TAB_PANELS = { next: nextWord, heads: headsGrid, map: mapPanel, alignment: () => alignmentPanel(), search: searchPanel, evidence: evidencePanel, compare: comparePanel, film: filmPanel };
// The keys of the state that a panel cannot show by an update.
const REBUILT_BY = { stage: ["place"], heads: ["place", "sort"], map: ["place", "reading"] };
const KEYS = [["\u2190 \u2192", "key-step"], ["\u2191 \u2193", "key-head"], ["\u2423", "play"], ["1 \u2013 8", "key-tab"], ["m", "mean"], ["n", "key-reading"], ["h", "key-link"], ["q", "quiz"], ["l", "lecture"], ["t", "look"], ["g", "language"], ["?", "help"]];
const panels = {};  // by name: strip, stage, dock
let dockName = "", renderCount = 0, openCount = 0;

const hasTab = { film: () => context.engine.film?.frames?.length, alignment: () => context.recording.latent };  // the others are always there
const availableTabs = () => TABS.filter((tab) => (context.recording ? hasTab[tab]?.() ?? !(tab in hasTab) : tab === "film"));
const nameOfDock = () => (state.quiz && context.recording ? "quiz" : availableTabs().includes(state.tab) ? state.tab : availableTabs()[0]);

function dock() {
  const name = nameOfDock(), inner = (name === "quiz" ? quizPanel : TAB_PANELS[name])();
  dockName = name;
  const tabs = availableTabs(), choose = (tab) => set({ tab });
  const list = name === "quiz" ? el("div", { class: "tabs" }, el("h2", { text: t("quiz") }))
    : el("div", { class: "tabs" }, el("div", { role: "tablist", "aria-label": t("panels") }, ...tabs.map((tab, at) => button(t(tab), () => choose(tab), {
      role: "tab", id: `tab-${tab}`, "aria-selected": String(tab === name), "aria-controls": "tab-body", tabindex: tab === name ? "0" : "-1", title: String(at + 1), "data-key": `tab-${tab}`,
      onkeydown: (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        event.stopPropagation();
        const next = (at + by + tabs.length) % tabs.length;
        event.currentTarget.parentElement.children[next].focus();
        choose(tabs[next]);
      } }))), el("p", { class: "question", text: t("question-" + name) }));
  const body = el("div", { class: "body", id: "tab-body", "data-tab": name, ...(name === "quiz" ? {} : { role: "tabpanel", "aria-labelledby": `tab-${name}` }) }, inner.node);
  const showTab = () => {
    const row = list.firstChild, tab = row.querySelector("[aria-selected=true]");
    if (tab) row.scrollLeft = tab.offsetLeft - row.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
  };
  return { node: el("section", { class: "dock panel", id: "dock", "aria-label": t("question-" + name) }, list, body), update: (changed) => inner.update(changed), resize: () => inner.resize?.(), scroll: () => { if (isNarrow()) showTab(); inner.scroll?.(); } };
}

function helpDialog() {
  const node = el("dialog", { "aria-label": t("help") }, el("h2", { text: t("proof") }), ...["proof-1", "proof-2", "proof-3"].map((key) => el("p", { text: t(key) })), el("h2", { text: t("keys") }),
    el("dl", { class: "keys" }, ...[...KEYS, ...(whatIf?.help ?? [])].map(([key, name]) => el("div", null, el("dt", null, el("kbd", { text: key })), el("dd", { text: t(name) })))),
    el("p", { class: "quiet", text: [`${t("made")} ${brief(context.engine.maker, 60)}`, context.recording?.sentence.about].filter(Boolean).map((text) => brief(text, 160)).join(" \u00b7 ") }), button(t("close"), () => node.close(), { "data-key": "close" }));
  return node;
}

// What a change implies: another cell exists, and its slot is the one that was attended to most.
completeState = (change) => {
  const { recording } = context;
  if (!recording || "sentence" in change) return change;
  const leavesEncoder = state.place === "encoder" && TARGET_TABS.includes(change.tab) && !("place" in change) && recording.maps.cross;
  if (leavesEncoder) return completeState({ ...change, place: "cross", head: recording.openingHead });
  const wanted = clampState({ ...state, ...change }, context.engine.sentences.length, recording), moved = ["place", "head", "step", "reading", "quiz"].some((key) => key in change && JSON.stringify(change[key]) !== JSON.stringify(state[key]));
  if (wanted.quiz) wanted.slot = 0;  // the strongest slot is the answer
  else if (moved && !("slot" in change)) wanted.slot = strongestSlot(recording, wanted);
  return wanted;
};
function strongestSlot(recording, { place, head, step, reading }) {
  if (!recording.maps[place]) return 0;
  const map = recording.map(place, head);
  return argmax(map.row(alignedRow(place, reading, step, map.rows)));
}

// The state that an address or a slide describes: what it does not mention is as the page opens on that sentence.
async function describedState(mentioned) {
  const { engine } = context, count = engine.sentences.length;
  if (!count) return { ...start, ...mentioned, slide: null };
  const { sentence } = clampState({ ...DEFAULT_STATE, ...mentioned }, count), recording = await engine.answer(sentence);
  const described = clampState({ ...start, ...recording.opening, ...mentioned, sentence }, count, recording);
  return "slot" in mentioned ? described : { ...described, slot: strongestSlot(recording, described) };
}
// What is mentioned, and what a visitor set meanwhile; null if a newer address, sentence or slide was chosen meanwhile.
async function openState(mentioned) {
  const turn = ++openCount;
  meanwhile = {};
  const described = await describedState(mentioned);
  if (turn !== openCount) return null;
  state = { ...described, ...meanwhile };
  return { ...mentioned, ...meanwhile };
}
async function openAddress() {
  const asked = stateFromAddress(), address = knownAddress;
  let mentioned = await openState(asked);
  if (mentioned && state.slide !== null) {
    context.recording = await context.engine.answer(state.sentence);
    const slide = slideAt(state.slide);
    mentioned = await openState({ ...slide?.state, ...mentioned, slide: slide?.index ?? null });
  }
  if (!mentioned) return;
  await renderPage();
  if (location.hash !== address) writeAddress();  // meanwhile, it was written without what has opened now
  whatIf?.open(mentioned);
}

function focusKey(root) { const focused = root.contains(document.activeElement) ? document.activeElement.closest("[data-key],[data-head],[data-at]") : null; return focused && ["key", "head", "side", "at"].filter((name) => focused.dataset[name]).map((name) => `[data-${name}="${CSS.escape(focused.dataset[name])}"]`).join(""); }
function replacePanel(name, build) {
  const old = panels[name], key = focusKey(old.node);
  panels[name] = build();
  old.node.replaceWith(panels[name].node);
  if (key) panels[name].node.querySelector(key)?.focus({ preventScroll: true });
  panels[name].update(new Set(["all"]));
}
// Panels scroll to the current step in the frame after a change, because reading a position before the layout is done is slow.
function scrollPanels() { for (const panel of Object.values(panels)) panel.scroll?.(); }

// The texts of the page; some differ if the source is a picture, a recording or a graph, or if there is no source.
function glossaryOf(source) {
  const texts = Object.fromEntries(Object.entries(glossary).map(([key, translations]) => [key, translations[LANGUAGES.indexOf(state.lang)]]));
  const prefixes = [source?.picture && "picture: ", source?.pieces[0]?.interval && "sound: ", source?.edges && "graph: ", source && !source.pieces.length && "no source: "];
  for (const prefix of prefixes) for (const key of Object.keys(texts)) if (prefix && key.startsWith(prefix)) texts[key.slice(prefix.length)] = texts[key];
  return texts;
}

async function renderPage() {
  const turn = ++renderCount, { engine } = context;
  if (engine.sentences.length) {
    const recording = await engine.answer(clampState(state, engine.sentences.length).sentence);
    if (turn !== renderCount) return;
    context.recording = recording;
    state = clampState(state, engine.sentences.length, recording);
    start = { ...start, ...recording.opening };
  }
  document.documentElement.lang = state.lang;
  Object.assign(document.documentElement.dataset, { theme: state.theme, view: state.view ?? "" });
  words = glossaryOf(context.recording?.sentence.source);
  rescale();
  const app = document.getElementById("app"), key = focusKey(app);
  for (const name of Object.keys(panels)) delete panels[name];
  if (context.recording) Object.assign(panels, { strip: strip(), stage: stage(), ...(whatIf && { whatIf: whatIf.panel() }) });
  panels.dock = dock();
  const notes = el("aside", { class: "notes", "aria-label": t("notes") });
  app.replaceChildren(topBar(), el("main", null, ...Object.values(panels).map((panel) => panel.node)), notes, el("div", { class: "toast", role: "status" }), helpDialog());
  showNotes(notes);
  forgetRootSize();
  for (const panel of Object.values(panels)) attempt(() => panel.update(new Set(["all"])));
  scrollPanels();
  if (key) app.querySelector(key)?.focus({ preventScroll: true });
}

listeners.push((changed) => {
  if (["lang", "theme", "sentence"].some((key) => changed.has(key))) { renderPage(); return; }
  if (changed.has("slide")) { showNotes(document.querySelector(".notes")); resizePanels(); }
  for (const [name, build] of [["strip", strip], ["stage", stage], ["dock", dock]]) {
    if (!panels[name]) continue;
    const isOther = name === "dock" && nameOfDock() !== dockName;
    const isRebuilt = isOther || REBUILT_BY[name === "dock" ? dockName : name]?.some((key) => changed.has(key));
    attempt(() => (isRebuilt ? replacePanel(name, build) : panels[name].update(changed)));
  }
  if (["step", "slot", "head", "place", "tab"].some((key) => changed.has(key))) requestAnimationFrame(scrollPanels);
});

function resizePanels() { forgetRootSize(); for (const panel of Object.values(panels)) panel.resize?.(); }
document.addEventListener("keydown", (event) => {
  const onSlider = event.target.closest("input[type=range]"), isTyping = event.target.closest("select, input") && !onSlider;
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping || event.target.closest("dialog") || (onSlider && state.slide === null && /^(Arrow|Home|End|Page)/.test(event.key))) return;
  const cycle = (list, now) => list[(list.indexOf(now) + 1) % list.length], onButton = event.target.closest("button, a, summary");
  const always = { t: () => set({ theme: cycle(THEMES, state.theme) }), g: () => set({ lang: cycle(LANGUAGES, state.lang) }), "?": () => document.querySelector("dialog").showModal() };
  const inLecture = { ...whatIf?.keys, ArrowRight: () => openSlide(state.slide + 1), PageDown: () => openSlide(state.slide + 1), " ": onButton ? null : () => openSlide(state.slide + 1), ArrowLeft: () => openSlide(state.slide - 1), PageUp: () => openSlide(state.slide - 1), Escape: () => openSlide(null), n: () => document.querySelector("[data-key=notes]").click() };
  const inQuiz = { Enter: onButton ? null : () => document.querySelector("[data-key=next-question]")?.click(), ArrowRight: () => document.querySelector("[data-key=next-question]")?.click(), Escape: () => startQuiz(""), q: () => startQuiz("") };
  const normal = { ArrowRight: () => move(1), ArrowLeft: () => move(-1), " ": onButton ? null : () => play(!playing), ArrowDown: () => moveHead(1), ArrowUp: () => moveHead(-1), m: () => set({ head: state.head ? null : context.recording.defaultHead(state.place) }),
    n: () => set({ reading: cycle(ALLOWED.reading, state.reading) }), h: () => set({ link: cycle(ALLOWED.link, state.link) }), q: () => startQuiz(quizKinds(context.recording)[0] ?? ""), l: () => openSlide(0), ...whatIf?.keys };
  const tab = /^[1-8]$/.test(event.key) && !state.quiz && state.slide === null ? availableTabs()[event.key - 1] : null;
  const act = tab ? () => set({ tab }) : always[event.key] ?? (context.recording ? (state.slide !== null ? inLecture : state.quiz ? inQuiz : normal)[event.key] : null);
  if (!act) return;
  event.preventDefault();
  act();
});

let resizing = null;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(resizePanels, 120); });
addEventListener("hashchange", openAddress);

(async () => {
  context.engine = makeEngine(readJson("trace"));
  const { engine } = context, language = (navigator.language || "en").slice(0, 2), isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  start = { ...DEFAULT_STATE, lang: LANGUAGES.includes(language) ? language : "en", theme: isDark ? "dark" : "light", frame: Math.max(0, (engine.film?.frames?.length ?? 0) - 1) };
  await openAddress();
  if (document.fonts?.ready) document.fonts.ready.then(resizePanels);
  document.documentElement.dataset.ready = performance.now().toFixed(0);  // milliseconds since navigation
  context.engine.start?.();
})();
