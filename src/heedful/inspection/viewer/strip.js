// The top bar, and the strip: the architecture as navigation. Every head is a small map; the selected one has a ring.

const context = { engine: null, recording: null };  // what panels share; `recording` is the sentence that is shown
const LANGUAGES = ["en", "pt", "ru"], THEMES = ["light", "dark", "projector"];
const THEME_ICONS = { light: "\u2600", dark: "\u263e", projector: "\u25a3" };
const headName = (head) => (head ? `${head[0] + 1}.${head[1] + 1}` : t("mean-short"));
const sameHead = (a, b) => String(a) === String(b);
const currentMap = () => context.recording.map(state.place, state.head);
const currentRow = (step = state.step) => alignedRow(state.place, state.reading, step, context.recording.maps[state.place]?.shape[2] ?? 1);
// "cross 3.2, shifted": what the stage and the map show.
const cellName = () => `${t("at-" + state.place)} ${headName(state.head)}${state.reading === "shifted" && state.place === "cross" ? `, ${t("shifted")}` : ""}`;

// A radio group: one stop for Tab, arrow keys choose.
function radios(label, options, value, act, attributes) {
  const choose = (event, at) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const key = options[(at + by + options.length) % options.length][0];
    event.currentTarget.parentElement.querySelector(`[data-key="${key}"]`).focus();
    act(key);
  };
  return el("div", { class: "segments", role: "radiogroup", "aria-label": label, ...attributes }, ...options.map(([key, text, name], at) =>
    button(text, () => act(key), { role: "radio", "aria-checked": String(key === value), "aria-label": name, title: name, tabindex: key === value ? "0" : "-1", "data-key": key, onkeydown: (event) => choose(event, at) })));
}

const mark = () => svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" },
  svg("path", { d: "M4 5C4 13 12 11 12 19M12 5c0 8 8 6 8 14", class: "mark-quiet" }), svg("path", { d: "M20 5C20 13 4 11 4 19", class: "mark-now" }));

// The sentence that is shown, or the list of all; a live page shows its only sentence in its form.
function sentenceChooser() {
  const { engine: { sentences }, recording } = context, sentence = recording?.sentence;
  if (!sentence || (liveForm && sentences.length === 1)) return [];
  if (sentences.length === 1) return [el("p", { class: "sentence", lang: sentence.source.language || null, dir: rightToLeft(sentence.source.text) ? "rtl" : "ltr" }, el("bdi", { text: brief(sentence.source.text || sentence.target.text, 200) }))];
  const name = ({ source, target, name: model }, at) => `${at + 1}. ${brief(source.text || target.text, 60)} (${brief(model, 24)})`;
  return [el("select", { class: "sentence", "aria-label": t("sentence"), "data-key": "sentence", onchange: (event) => openSentence(Number(event.target.value)) }, ...sentences.map((each, at) => el("option", { value: at, text: name(each, at), selected: at === state.sentence })))];
}

function topBar() {
  const { engine, recording } = context, sentence = recording?.sentence;
  const languages = sentence && [sentence.source.language, sentence.target.language].filter((code) => code && code !== "none").map((code) => brief(code, 12));
  const title = el("h1", null, el("bdi", { text: brief(engine.title, 32) }));
  return el("header", null, el("div", { class: "brand" }, mark(), title, languages?.length === 2 && el("small", { text: languages.join(" \u2192 ") })), el("div", { class: "chooser" }, ...sentenceChooser()), liveForm?.(sentence?.source.text),
    el("div", { class: "tools" },
      sentence && quizKinds(recording).length > 0 && button(t("quiz"), () => startQuiz(state.quiz ? "" : quizKinds(recording)[0]), { "aria-pressed": String(Boolean(state.quiz)), "data-key": "quiz" }),
      sentence && button(t("lecture"), () => openSlide(0), { "data-key": "lecture" }),
      radios(t("language"), LANGUAGES.map((code) => [code, code.toUpperCase()]), state.lang, (lang) => set({ lang })),
      radios(t("look"), THEMES.map((theme) => [theme, THEME_ICONS[theme], t(theme)]), state.theme, (theme) => set({ theme })),
      button("?", () => document.querySelector("dialog").showModal(), { "aria-label": t("help"), title: t("help"), "data-key": "help" })));
}
async function openSentence(sentence) {
  const turn = ++openCount, { place, head, step, slot, reading } = await describedState({ sentence });
  if (turn !== openCount) return;
  set({ sentence, place, head, step, slot, reading, node: null, other: null, quiz: "" });
}

// ---------------------------------------------------------------------------------------------------------- strip

const THUMBNAIL_CELLS = 32;
// A map of at most THUMBNAIL_CELLS rows and columns, each the maximum of what it covers.
function shrink({ rows, columns, numbers }) {
  const high = Math.min(rows, THUMBNAIL_CELLS), wide = Math.min(columns, THUMBNAIL_CELLS);
  if (high === rows && wide === columns) return { rows, columns, numbers };
  const small = new Float32Array(high * wide);
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
    const at = Math.floor((row * high) / rows) * wide + Math.floor((column * wide) / columns);
    small[at] = Math.max(small[at], numbers[row * columns + column]);
  }
  return { rows: high, columns: wide, numbers: small };
}
const thumbnail = (place, head, map = context.recording.inPlaces(place, head)) => { const small = picture(map ?? shrink(context.recording.map(place, head))); small.setAttribute("aria-hidden", "true"); return small; };
const headLabel = (place, head) => {
  const worth = context.recording.importance(place, head);
  return `${t("at-" + place)}, ${t("layer")} ${head[0] + 1}, ${t("head")} ${head[1] + 1}${worth === null ? "" : `, ${t("worth", number(worth))}`}`;
};

function strip() {
  const { recording } = context, { sentence } = recording;
  const buttons = [];
  const group = (place, layer) => {
    const heads = recording.maps[place].shape[1];
    const nodes = Array.from({ length: heads }, (_, head) => {
      const at = [layer, head], label = headLabel(place, at);
      const node = button("", () => set({ place, head: at }), { class: whatIf?.isSilenced(place, at) ? "head silenced" : "head", "aria-label": label, title: label, tabindex: "-1", "data-head": `${place} ${headName(at)}` });
      node.append(thumbnail(place, at));
      buttons.push({ node, place, head: at });
      return node;
    });
    return el("div", { class: "heads", "data-place": place, style: { "--columns": String(Math.ceil(heads / 2)) } }, ...nodes);
  };
  const layersOf = (place) => recording.maps[place]?.shape[0] ?? 0;
  const arrow = () => svg("svg", { class: "arrow", viewBox: "0 0 30 10", "aria-hidden": "true" }, svg("path", { d: "M0 5h26M22 1.5L27 5l-5 3.5" }));
  const block = (name, count, ...layers) => el("div", { class: "block" }, el("div", { class: "caption" }, el("b", { text: t(name) }), count ? el("small", { text: `\u00d7 ${count}` }) : null), el("div", { class: "layers" }, ...layers));
  const layer = (at, ...children) => el("div", { class: "layer", "data-layer": at + 1 }, ...children);
  const encoder = block("encoder", layersOf("encoder"), ...(layersOf("encoder") ? Array.from({ length: layersOf("encoder") }, (_, at) => layer(at, group("encoder", at))) : [el("small", { class: "plain", text: t("no-self-attention") })]));
  const decoderLayers = Math.max(layersOf("decoder"), layersOf("cross"));
  const decoder = block("decoder", decoderLayers, ...(decoderLayers ? Array.from({ length: decoderLayers }, (_, at) => layer(at,
    ...(at < layersOf("decoder") ? [el("span", { class: "kind", text: t("self") }), group("decoder", at)] : []),
    ...(at < layersOf("cross") ? [el("span", { class: "kind", text: t("cross") }), group("cross", at)] : []))) : [el("small", { class: "plain", text: t("no-heads") })]));
  const said = el("small", { class: "said" }), what = el("p", { class: "what" }), worth = el("small", { class: "worth" });
  const all = button(t("all-heads"), () => set({ head: state.head ? null : recording.defaultHead(state.place) }), { "data-key": "mean" });
  const silence = recording.places.length > 0 && whatIf?.silenceButton(), actions = [recording.places.some((place) => recording.heads(place).length > 1) && all, silence].filter(Boolean);
  const card = el("div", { class: "showing", role: "status" }, worth, what, actions.length > 0 && el("div", { class: "buttons" }, ...actions));
  const { pieces, picture: png } = sentence.source;
  const source = pieces.length ? [el("div", { class: "node" }, el("b", { text: t("embedding") }), el("small", { text: t(png ? "patches" : "tokens", pieces.length) })), arrow(), encoder, arrow()] : [];
  const node = el("nav", { class: "strip panel", "aria-label": t("architecture") }, ...source, decoder, arrow(),
    el("div", { class: "node" }, el("b", { text: t("softmax") }), said), card);
  // One stop for Tab; arrow keys go from head to head.
  node.addEventListener("keydown", (event) => {
    const at = buttons.findIndex((entry) => entry.node === event.target), by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (at < 0 || !by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = buttons[(at + by + buttons.length) % buttons.length];
    set({ place: next.place, head: next.head });
    next.node.focus();
  });
  // Heads are as large as they can be: in two to four lines, so that all layers fit beside each other.
  const fitHeads = () => {
    const groups = [...node.querySelectorAll(".heads")], unit = rootSize();
    if (!groups.length || isNarrow()) return;
    const tryHeads = (size, lines) => {
      for (const entry of groups) entry.style.setProperty("--columns", String(Math.ceil(entry.children.length / lines)));
      node.style.setProperty("--head", `${size}px`);
      return node.scrollWidth <= node.clientWidth;
    };
    const largest = (lines) => {
      let [low, high] = [6, (3.44 * unit) / lines - 0.1 * unit];
      if (tryHeads(high, lines)) return high;
      while (high - low > 0.5) { const middle = (low + high) / 2; if (tryHeads(middle, lines)) low = middle; else high = middle; }
      return low;
    };
    const sizes = [2, 3, 4].map((lines) => [largest(lines), lines]), best = sizes.reduce((winner, candidate) => (candidate[0] > winner[0] + 0.5 ? candidate : winner));
    tryHeads(...best);
  };
  let isFitted = false;
  return {
    node,
    resize() { fitHeads(); },
    update(changed) {
      node.inert = Boolean(state.quiz);  // its maps would tell the answers
      if (!isFitted) { fitHeads(); isFitted = true; }
      if (silence) silence.show();
      if (changed.has("place") || changed.has("head") || changed.has("all")) {
        for (const entry of buttons) {
          const isCurrent = entry.place === state.place && sameHead(entry.head, state.head);
          entry.node.setAttribute("aria-current", String(isCurrent));
          entry.node.tabIndex = isCurrent || (!state.head && entry === buttons[0]) ? 0 : -1;
        }
        for (const entry of node.querySelectorAll(".heads")) entry.classList.toggle("all", !state.head && entry.dataset.place === state.place);
        all.setAttribute("aria-pressed", String(!state.head));
        const worthOf = recording.importance(state.place, state.head);
        worth.textContent = t("showing") + (worthOf === null ? "" : ` \u00b7 ${t("worth", number(worthOf))}`);
        worth.title = worthOf === null ? "" : t("worth-note");
        what.replaceChildren(...(recording.places.length ? [el("em", { text: t("at-" + state.place) }), ` \u00b7 ${state.head ? `${t("layer")} ${state.head[0] + 1} \u00b7 ${t("head")} ${state.head[1] + 1}` : t("mean")}`] : [t("no-heads")]));
      }
      const isTarget = state.place !== "encoder" && !state.quiz;
      said.textContent = isTarget ? `${pieceLabel(recording.pieces.target, state.step, 12)} ${percent(recording.probability(state.step))}` : "";
    },
  };
}
