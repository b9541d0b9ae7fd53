// The page: layout, keys, languages, themes.

const glossary = readJson("glossary");
const LANGUAGES = ["en", "pt", "ru"], THEMES = ["light", "dark", "projector"];
let parts = [];

function header() {
  const { trace } = context;
  return el("header", null, el("h1", null, el("bdi", { text: brief(trace.title || "heedful inspect", 60) })),
    el("div", { class: "controls" },
      trace.sentences?.length > 1 && choice(t("sentence"), trace.sentences.map((one, at) => [String(at), `${at + 1}. ${brief(one.source.text, 36)} (${brief(one.name, 24)})`]), String(state.sentence), (at) => set({ sentence: Number(at), step: 0, cell: null, node: null, other: null, ...new View(trace.sentences[at]).opening })),
      toggles(t("language"), LANGUAGES.map((one) => [one, one.toUpperCase()]), state.lang, (lang) => set({ lang })),
      toggles(t("look"), THEMES.map((one) => [one, t(one)]), state.theme, (theme) => set({ theme }))));
}
function about() {
  return panel("about", t("about"), ...["proof-1", "proof-2", "proof-3"].map((key) => el("p", { text: t(key) })), el("h3", { text: t("keys") }),
    el("dl", { class: "keys" }, ...[["\u2190 \u2192", "key-step"], ["\u2423", "key-play"], ["\u2191 \u2193", "key-head"], ["w", "key-level"], ["n", "key-reading"], ["h", "key-link"], ["p", "key-look"], ["l", "key-language"], ["1 \u2026 8", "key-panel"]]
      .map(([key, text]) => el("div", null, el("dt", null, el("kbd", { text: key })), el("dd", { text: t(text) })))));
}
function nav(nodes) {
  return el("nav", { "aria-label": t("panels") }, ...nodes.map((node, at) => el("a", { href: `#${node.id}`, onclick: (event) => { event.preventDefault(); go(node); } },
    el("span", { class: "quiet", text: `${at + 1} ` }), t(node.id))));
}
function go(node) {
  node.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  node.focus({ preventScroll: true });
}

const REBUILD = { lang: "page", theme: "page", sentence: "page", level: "sentence", place: "heads", sort: "heads", reading: "map", head: "map", pruned: "search", link: "links" };
const panelBuilders = { links: interlinear, steps: scrubber, heads: headsGrid, map: bigMap, arithmetic, search: searchTree, compare, film };
const built = {};
function rebuild(names) {
  for (const name of names) {
    const old = built[name];
    if (!old) continue;
    const focused = old.node.contains(document.activeElement) ? document.activeElement.closest("[data-key],[data-head]") : null;
    const key = focused?.dataset.key ?? focused?.dataset.head, scrolled = old.node.querySelector(".scroller")?.scrollLeft ?? 0;
    built[name] = panelBuilders[name]();
    old.node.replaceWith(built[name].node);
    const scroller = built[name].node.querySelector(".scroller");
    if (scroller) scroller.scrollLeft = scrolled;
    if (key) built[name].node.querySelector(`[data-key="${key}"],[data-head="${key}"]`)?.focus({ preventScroll: true });
    built[name].update(new Set(["all", "step", "node"]));
  }
}

async function renderPage() {
  document.documentElement.lang = state.lang;
  document.documentElement.dataset.theme = state.theme;
  words = { ...glossary.en, ...glossary[state.lang] };
  rescale();
  const { trace } = context, app = document.getElementById("app");
  for (const key of Object.keys(built)) delete built[key];
  if (trace.sentences?.length) {
    const at = clampState(state, trace).sentence;
    context.view = context.views[at] ??= new View(trace.sentences[at]);
    await context.view.open();
    state = clampState(state, trace, context.view);
    for (const name of ["links", "steps", "heads", "map", "arithmetic", "search", "compare"]) { const one = panelBuilders[name](); if (one) built[name] = one; }
  }
  const reel = film();
  if (reel) built.film = reel;
  const nodes = [...Object.values(built).map((one) => one.node), about()];
  const sentence = context.view?.sentence;
  const focused = app.contains(document.activeElement) ? document.activeElement.closest("[data-key]")?.dataset.key : null;
  app.replaceChildren(header(), nav(nodes), el("main", null, sentence ? el("p", { class: "about quiet", text: [sentence.name, sentence.about].filter(Boolean).map((one) => brief(one, 120)).join(" \u2014 ") }) : null, ...nodes),
    el("footer", { class: "quiet", text: `${t("made")} ${brief(trace.maker ?? "heedful", 60)}` }));
  const all = new Set(["all", "step", "node", "hover"]);
  for (const one of Object.values(built)) one.update(all);
  if (focused) app.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
}

listeners.push((changed) => {
  const depths = new Set([...changed].map((key) => REBUILD[key]).filter(Boolean));
  if (depths.has("page")) { renderPage(); return; }
  const names = new Set();
  if (depths.has("sentence")) ["links", "steps", "map"].forEach((one) => names.add(one));
  if (depths.has("heads")) ["heads", "map", "links"].forEach((one) => names.add(one));
  if (depths.has("map")) ["map", "links"].forEach((one) => names.add(one));
  if (depths.has("search")) names.add("search");
  if (depths.has("links")) names.add("links");
  rebuild(names);
  for (const [name, one] of Object.entries(built)) if (!names.has(name)) one.update(changed);
});

document.addEventListener("keydown", (event) => {
  const slides = event.target.closest("input[type=range]"), written = event.target.closest("select, input") && !slides;
  if (event.ctrlKey || event.metaKey || event.altKey || written || (slides && /^(Arrow|Home|End|Page)/.test(event.key))) return;
  const cycle = (list, now, by = 1) => list[(list.indexOf(now) + by + list.length) % list.length];
  const onButton = event.target.closest("button, a");
  const acts = {
    ArrowRight: () => move(1), ArrowLeft: () => move(-1), " ": onButton ? null : () => play(!playing),
    ArrowDown: () => moveHead(1), ArrowUp: () => moveHead(-1),
    w: () => set({ level: cycle(["words", "pieces"], state.level) }), n: () => set({ reading: cycle(["naive", "shifted"], state.reading) }),
    h: () => set({ link: cycle(["soft", "hard"], state.link) }), p: () => set({ theme: cycle(THEMES, state.theme) }), l: () => set({ lang: cycle(LANGUAGES, state.lang) }),
  };
  const panels = document.querySelectorAll("main > .panel");
  const act = /^[1-9]$/.test(event.key) && panels[event.key - 1] ? () => go(panels[event.key - 1]) : acts[event.key];
  const everywhere = /^[1-9pl]$/.test(event.key);  // the others need a sentence
  if (!act || !(context.view || everywhere)) return;
  event.preventDefault();
  act();
});
function moveHead(by) {
  if (!context.view.places.length) return;
  const heads = [null, ...sortedHeads()], at = heads.findIndex((one) => JSON.stringify(one) === JSON.stringify(state.head));
  set({ head: heads[(at + by + heads.length) % heads.length] });
}

let resizing = null;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => built.links?.resize?.(), 150); });
addEventListener("hashchange", () => { state = { ...start, ...stateFromAddress() }; renderPage(); });

(async () => {
  context.trace = readJson("trace");
  const browserLanguage = (navigator.language || "en").slice(0, 2), dark = matchMedia("(prefers-color-scheme: dark)").matches;
  start = { ...DEFAULT_STATE, lang: LANGUAGES.includes(browserLanguage) ? browserLanguage : "en", theme: dark ? "dark" : "light" };
  const wanted = clampState({ ...start, ...stateFromAddress() }, context.trace);
  if (context.trace.sentences?.length) start = { ...start, ...new View(context.trace.sentences[wanted.sentence]).opening };
  state = { ...start, ...stateFromAddress() };
  await renderPage();
  if (document.fonts?.ready) document.fonts.ready.then(() => built.links?.resize?.());
  document.documentElement.dataset.ready = performance.now().toFixed(0);  // milliseconds since it was asked for
})();
