// Panels of the search, and of two answers side by side.

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
