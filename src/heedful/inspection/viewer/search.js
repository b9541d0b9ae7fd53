// Panels of the search, of two answers side by side, and of the film of a training run.

// A map with its words beside it, to look at only.
function labeled(map, room) {
  const wide = map.columns.length, high = map.rows.length, cell = Math.max(9, Math.min(22, Math.floor(room / Math.max(wide, high))));
  const sheet = canvas(cell * wide, cell * high, { role: "img", "aria-label": t("map") });
  stretch(sheet, map, cell * wide, cell * high);
  const name = (unit) => el("span", { class: "label" }, el("bdi", { text: brief(unit.text, 14) })), size = { "--cell": `${cell}px` };
  return el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("map") }, el("div", { class: "sheet" }, el("span"),
    el("div", { class: "top", style: size }, ...map.columns.map(name)), el("div", { class: "left", style: size }, ...map.rows.map(name)), sheet));
}

const COLUMN = 92, LINE = 24, USUAL_SIZE = 15;  // pixels
function searchTree() {
  const { view } = context, { tree, reference } = view.sentence;
  if (!tree || !tree.nodes?.length) return { node: panel("search", t("search"), note(t("no-tree"))), update() {} };
  const nodes = tree.nodes.map((one, index) => ({ ...one, index, parent: one.parent ?? null }));
  const winner = new Set();
  for (let at = tree.best ?? null; at !== null; at = nodes[at].parent) winner.add(at);
  const visible = nodes.filter((one) => state.pruned || one.fate !== "pruned");
  const line = new Map(), used = new Map();  // rows of a step are its candidates in the order of their rank
  for (const one of [...visible].sort((a, b) => a.step - b.step || a.rank - b.rank)) {
    line.set(one.index, used.get(one.step) ?? 0);
    used.set(one.step, (used.get(one.step) ?? 0) + 1);
  }
  const steps = Math.max(...nodes.map((one) => one.step)), lines = Math.max(...used.values());
  const grown = parseFloat(getComputedStyle(document.documentElement).fontSize) / USUAL_SIZE || 1;
  const x = (one) => 14 + (one.step - 1) * COLUMN, y = (one) => 18 + line.get(one.index) * LINE, wide = 30 + steps * COLUMN, high = 24 + lines * LINE;
  const drawing = svg("svg", { width: wide * grown, height: high * grown, viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": t("search") });
  const greedy = new Set();
  for (let at = null, step = 1; step <= steps; step++) {
    const next = nodes.filter((one) => one.step === step && one.parent === at).sort((a, b) => b.logp - a.logp)[0];
    if (!next) break;
    greedy.add(next.index);
    at = next.index;
  }
  for (const one of visible) {
    if (one.parent === null) continue;
    const from = nodes[one.parent], thick = 0.75 + 4 * Math.exp(one.logp);
    drawing.append(svg("path", { class: `edge ${one.fate}${winner.has(one.index) ? " winner" : ""}${greedy.has(one.index) ? " greedy" : ""}`, "stroke-width": thick.toFixed(2),
      d: `M${x(from)} ${y(from)} C${x(from) + 40} ${y(from)} ${x(one) - 40} ${y(one)} ${x(one)} ${y(one)}` }));
  }
  const marks = { kept: "\u25cf", finished: "\u25c6", cut: "\u25c6", pruned: "\u25cb" };
  const shapes = new Map();
  for (const one of visible) {
    const label = svg("g", { class: `node ${one.fate}${winner.has(one.index) ? " winner" : ""}`, transform: `translate(${x(one)} ${y(one)})`, onclick: () => set({ node: one.index }) },
      svg("text", { class: "dot", x: -5, y: 5, text: marks[one.fate] }), svg("text", { x: 8, y: 4.5, text: brief(one.text, 10) }));
    shapes.set(one.index, label);
    drawing.append(label);
  }
  const said = el("dl", { class: "facts node-facts" });
  const prefix = (at) => {
    const parts = [];
    for (let one = nodes[at].fate === "finished" ? nodes[at].parent : at; one !== null; one = nodes[one].parent) parts.push(nodes[one].text);
    return decodeByteTokens(parts.reverse().join("")).trim();
  };
  const list = el("select", { "aria-label": t("candidates"), onchange: (event) => set({ node: Number(event.target.value) }) },
    ...visible.map((one) => el("option", { value: one.index, text: `${one.step}. ${brief(one.text, 16)} (${t("fate-" + one.fate)})` })));
  const ended = nodes.filter((one) => one.score !== undefined && one.score !== null).sort((a, b) => b.score - a.score).slice(0, 5);
  const finals = el("ol", { class: "finals" }, ...ended.map((one) => el("li", null, el("bdi", { text: plain(prefix(one.index)).slice(0, 300) }), el("span", { class: "value", text: number(one.score, 3) }))));
  const same = tree.greedy === view.sentence.target.text;
  const node = panel("search", t("search"),
    el("p", { class: "quiet", text: `${t("search-" + tree.kind) === "search-" + tree.kind ? tree.kind : t("search-" + tree.kind)}${tree.size > 1 ? ` ${tree.size}` : ""}; ${t("score")} = ${tree.length || "log p"}` }),
    el("div", { class: "controls" }, toggles(t("pruned"), [["yes", t("with-pruned")], ["no", t("without-pruned")]], state.pruned ? "yes" : "no", (key) => set({ pruned: key === "yes" })),
      el("label", { class: "choice" }, el("span", { text: t("candidates") }), list)),
    el("div", { class: "scroller tree", tabindex: "0", role: "group", "aria-label": t("search") }, drawing), said,
    el("p", { class: "legend quiet", text: t("tree-legend") }), el("h3", { text: t("finished") }), finals,
    tree.greedy !== undefined && tree.greedy !== null && el("p", null, el("b", { text: t("greedy") + " " }), el("bdi", { text: plain(tree.greedy).slice(0, 300) }), el("span", { class: "quiet", text: ` ${number(tree.greedy_score, 3)}${same ? ", " + t("greedy-same") : ""}` })),
    reference && el("p", { class: "verdict" }, el("b", { text: t("reference") + " " }), el("bdi", { text: plain(reference.text).slice(0, 300) }), el("span", { class: "quiet", text: ` ${number(reference.score, 3)} ` }), el("strong", { text: t("verdict-" + reference.verdict) })));
  return {
    node,
    update(changed) {
      if (!changed.has("node") && !changed.has("all")) return;
      for (const one of drawing.querySelectorAll(".picked")) one.classList.remove("picked");
      const at = line.has(state.node) ? state.node : tree.best ?? 0, one = nodes[at];
      if (!one) return;
      list.value = String(at);
      shapes.get(at)?.classList.add("picked");
      said.replaceChildren(...[["prefix", plain(prefix(at)).slice(0, 300)], ["p", percent(Math.exp(one.logp))], ["total", number(one.total, 3)], ["rank", String(one.rank + 1)],
        ["fate", `${t("fate-" + one.fate)}${one.why ? `: ${plain(words["why: " + one.why] ?? one.why)}` : ""}`], ...(one.score === undefined || one.score === null ? [] : [["score", number(one.score, 3)]])]
        .map(([key, text]) => el("div", null, el("dt", { text: t(key) }), el("dd", null, el("bdi", { text })))));
    },
  };
}

// -------------------------------------------------------------------------------------------------------- compare

function compare() {
  const { view, trace } = context, others = trace.sentences.map((one, at) => [one, at])
    .filter(([one, at]) => at !== state.sentence && one.source.text === view.sentence.source.text);
  if (!others.length) return null;
  const body = el("div"), chosen = () => (others.some(([, at]) => at === state.other) ? state.other : others[0][1]);
  const node = panel("compare", t("compare"), el("div", { class: "controls" },
    choice(t("against"), others.map(([one, at]) => [String(at), brief(one.name, 40)]), String(chosen()), (at) => set({ other: Number(at) }))), body);
  const row = (one, from) => el("div", { class: "answer compared", dir: rightToLeft(one.sentence.target.text) ? "rtl" : "ltr" },
    ...one.sentence.target.pieces.map((piece, at) => el("span", { class: `said${at === from ? " parting" : at > from ? " after" : ""}`, title: percent(one.prob(at)) },
      el("bdi", { text: continuesCharacter(one.sentence.target.pieces, at) ? "" : brief(piece.text) }), el("span", { class: "chance", style: { transform: `scaleX(${one.prob(at).toFixed(3)})` } }))));
  const small = (one) => {
    if (!one.maps.cross) return note(t("blind"));
    const { head, reading } = one.opening;
    return labeled(one.map("cross", head, "words", reading), 300);
  };
  const rule = (one) => one.sentence.tree?.length ?? "";  // scores by different rules cannot be compared
  const draw = async () => {
    const other = context.views[chosen()] ??= new View(trace.sentences[chosen()]);
    if (!Object.keys(other.maps).length) await other.open();
    const from = firstDifference(view, other), same = from >= view.sentence.target.pieces.length && from >= other.sentence.target.pieces.length;
    body.replaceChildren(el("p", { class: "verdict", text: same ? t("same-answer") : t("they-part", from + 1) }),
      el("div", { class: "two" }, ...[view, other].map((one) => el("div", null, el("h3", { text: brief(one.sentence.name, 40) }), row(one, from),
        el("dl", { class: "facts" }, ...[["answer-logp", number(one.sentence.logp, 3)], ...(rule(one) === rule(view) && rule(one) === rule(other) ? [["score", number(one.sentence.score, 3)]] : [])].map(([key, text]) => el("div", null, el("dt", { text: t(key) }), el("dd", { text })))), small(one)))));
  };
  return { node, update(changed) { if (changed.has("other") || changed.has("all")) draw(); } };
}

// ----------------------------------------------------------------------------------------------------------- film

function film() {
  const { trace } = context, { film: reel } = trace, reading = trace.sentences?.[0]?.reading;
  if (!reel?.frames?.length) return null;
  const frames = reel.frames, slider = el("input", { type: "range", min: "0", max: String(frames.length - 1), "aria-label": t("training-step"), oninput: (event) => set({ frame: Number(event.target.value) }) });
  let running = null;
  const start_ = button("\u25b6", () => {
    if (running) { clearInterval(running); running = null; } else {
      if (state.frame >= frames.length - 1) set({ frame: 0 });
      running = setInterval(() => { if (state.frame >= frames.length - 1 || !start_.isConnected) { clearInterval(running); running = null; start_.textContent = "\u25b6"; } else set({ frame: state.frame + 1 }); }, 500);
    }
    start_.textContent = running ? "\u2016" : "\u25b6";
  }, { "aria-label": t("play") });
  const body = el("div", { class: "reel" }), values = frames.map((one) => one.chrf ?? one.bleu ?? 0), top = Math.max(1, ...values);
  const x = (at) => 8 + (at * 304) / Math.max(1, frames.length - 1), y = (value) => 72 - (value / top) * 60;
  const dot = svg("circle", { r: 4, class: "now" });
  const curve = svg("svg", { viewBox: "0 0 320 80", class: "curve", role: "img", "aria-label": "chrF" }, svg("polyline", { points: values.map((value, at) => `${x(at)},${y(value)}`).join(" ") }), dot);
  const node = panel("film", t("film"), el("div", { class: "controls" }, start_, slider,
    reel.sources.length > 1 && choice(t("sentence"), reel.sources.map((one, at) => [String(at), brief(one.text, 40)]), String(state.take), (at) => set({ take: Number(at) }))), curve, body);
  const known = new Map();
  const draw = async () => {
    const at = Math.min(state.frame, frames.length - 1), frame = frames[at], source = reel.sources[state.take] ?? reel.sources[0], take = frame.takes[state.take] ?? frame.takes[0];
    slider.value = at;
    dot.setAttribute("cx", x(at));
    dot.setAttribute("cy", y(values[at]));
    const key = `${at} ${state.take}`;
    if (take.attention && !known.has(key)) {
      const view = new View({ source, target: take.target, steps: [] });
      view.maps.cross = await decode(take.attention);
      known.set(key, view);
    }
    if (at !== Math.min(state.frame, frames.length - 1)) return;
    const view = known.get(key), parts = [el("p", { class: "readout", text: `${t("training-step")} ${frame.step}${frame.chrf === undefined ? "" : `, chrF ${number(frame.chrf, 1)}`}${frame.bleu === undefined ? "" : `, BLEU ${number(frame.bleu, 1)}`}` }),
      el("p", null, el("bdi", { text: plain(source.text).slice(0, 300) })), el("p", { class: "said-film" }, el("bdi", { text: plain(take.target.text).slice(0, 300) || "\u2423" }))];
    if (view) {  // by the head that aligns best in the end, where it was filmed
      const [layers, heads] = view.maps.cross.shape, there = reading?.layer < layers && reading?.head < heads;
      parts.push(labeled(view.map("cross", there ? [reading.layer, reading.head] : null, "words", there ? reading.step ?? "naive" : "naive"), 340));
    }
    body.replaceChildren(...parts);
  };
  return { node, update(changed) { if (changed.has("frame") || changed.has("take") || changed.has("all")) draw(); } };
}
