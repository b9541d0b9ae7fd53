// Search: every continuation that the search considered, as a tree that fits its panel, and what it finished.

const FITTING_STEPS = 14;  // a longer tree follows the current step
function searchPanel() {
  const { recording } = context, { tree, reference } = recording.sentence;
  if (!tree?.nodes) return { node: el("p", { class: "remark", text: t("no-tree") }), update() {} };
  const nodes = unpackNodes(tree.nodes).map((node, index) => ({ ...node, index, parent: node.parent ?? null }));
  const pathTo = (at) => { const path = []; for (let node = at; node !== null; node = nodes[node].parent) path.unshift(node); return path; };
  const isEnd = (node) => node.fate === "finished" || /^<\/s>$/.test(node.text.trim());
  const textOf = (at) => decodeByteTokens(pathTo(at).filter((node) => !isEnd(nodes[node])).map((node) => nodes[node].text).join("")).trim();
  // The log-probability of the text so far, and the probability of its last piece.
  const numbersOf = (node) => `log p ${number(node.total)} \u00b7 ${quoted(candidateLabel(node.text))} ${percent(Math.exp(node.logp))}`;
  const answer = new Set(isNumber(tree.best) ? pathTo(tree.best) : []), greedy = new Set(greedyPath(nodes));
  const kind = (node) => (answer.has(node.index) ? "answer" : node.fate === "pruned" || node.fate === "cut" ? "pruned" : "kept");
  const isSampled = tree.kind === "sample", isGreedy = (node) => !isSampled && greedy.has(node.index);
  const scored = uniqueBy(nodes.filter((node) => isNumber(node.score)).sort((a, b) => b.score - a.score), (node) => textOf(node.index)), ended = scored.slice(0, 5);
  // A search goes on until nothing better can come; the tree ends with what is listed.
  const lastStep = isNumber(tree.best) && ended.length ? Math.max(nodes[tree.best].step, ...ended.map((node) => node.step)) : Infinity;
  const steps = Math.min(lastStep, Math.max(...nodes.map((node) => node.step))), drawn = nodes.filter((node) => node.step <= steps), byStep = Array.from({ length: steps }, (_, at) => nodes.filter((node) => node.step === at + 1).sort((a, b) => a.rank - b.rank));
  const worst = ended.length ? ended[ended.length - 1].score : 0, range = ended.length ? ended[0].score - worst || 1 : 1;
  const finished = el("ol", { class: "finished" }, ...ended.map((node, at) => el("li", { class: at === 0 && !isSampled ? "best" : "" }, el("bdi", { text: plain(textOf(node.index)).slice(0, 300) || "\u2423" }), el("span", { class: "number", text: number(node.score, 3) }),
    el("span", { class: "score-bar", "aria-hidden": "true" }, el("b", { style: { width: `${4 + (96 * (node.score - worst)) / range}%` } })))));
  const drawing = el("div", { class: "tree scroller", tabindex: "0", role: "group", "aria-label": t("question-search") }), facts = el("p", { class: "node-facts", "aria-live": "polite" });
  const list = el("select", { "aria-label": t("candidates"), "data-key": "candidate", onchange: (event) => set({ node: Number(event.target.value) }) },
    ...drawn.map((node) => el("option", { value: node.index, text: `${node.step}. ${candidateLabel(node.text)} (${t("fate-" + node.fate)})` })));
  const searchName = t("search-" + tree.kind) === "search-" + tree.kind ? brief(tree.kind, 40) : t("search-" + tree.kind);
  const legend = el("p", { class: "legend", "aria-hidden": "true" }, ...[["answer", "answer"], ...(isSampled ? [] : [["kept", "kept"], ["greedy", "greedy"]]), ["pruned", isSampled ? "not-drawn" : "pruned"]].map(([style, name]) => el("span", { class: "key" }, el("span", { class: `pill ${style}` }), el("small", { text: t(name) }))));
  const goOn = whatIf && el("div", { class: "buttons" }, button(t("live-from-here"), () => whatIf.begin(pathTo(Number(list.value)).map((at) => nodes[at].text)), { "data-key": "from-here" }));
  const side = el("div", { class: "stacked side", tabindex: "0", role: "group", "aria-label": t(isSampled ? "drawn" : "finished") }, el("h3", { text: t(isSampled ? "drawn" : "finished") }), finished, facts, goOn,
    isNumber(tree.greedy_score) && tree.greedy !== undefined ? el("p", { class: "greedy-line" }, el("small", { text: `${t("greedy-says")} ` }), tree.greedy === recording.sentence.target.text ? el("small", { text: t("same") }) : el("bdi", { text: plain(tree.greedy).slice(0, 300) }), el("small", { text: ` ${number(tree.greedy_score, 3)}` })) : null,
    reference ? el("p", { class: "verdict" }, el("small", { text: `${t("reference")} ` }), el("bdi", { text: plain(reference.text).slice(0, 300) }), el("small", { text: ` ${number(reference.score, 3)} ` }), el("strong", { text: t("verdict-" + reference.verdict) })) : null,
    el("small", { class: "rule", text: `${searchName}${tree.size > 1 ? ` ${tree.size}` : ""} \u00b7 ${t("score")} = ${brief(tree.length || "log p", 60)}` }));
  const node = el("div", { class: "two search" }, el("div", { class: "stacked" }, drawing, el("div", { class: "panel-head" }, legend, el("label", { class: "choice" }, el("span", { text: t("candidates") }), list))), side);
  let shapes = null, columnWidth = 0;
  const draw = () => {
    const unit = rootSize(), fits = Math.min(steps, isNarrow() ? 5 : FITTING_STEPS), most = Math.max(...byStep.map((column) => column.length));
    columnWidth = Math.max(3.4 * unit, ((drawing.clientWidth || 700) - 0.6 * unit) / fits);
    const width = Math.max(drawing.clientWidth || 700, columnWidth * steps), height = Math.max((drawing.clientHeight || 260) - (width > drawing.clientWidth ? 14 : 2), most * 1.25 * unit);
    const lineHeight = height / most, pillHeight = Math.min(lineHeight * 0.84, 1.8 * unit), size = Math.min(1.02 * unit, pillHeight * 0.66), places = new Map();
    byStep.forEach((column, at) => column.forEach((candidate, row) => {
      const label = candidateLabel(candidate.text), fitted = Math.min(columnWidth * 0.8, Math.max(pillHeight * 1.1, label.length * size * 0.56 + size * 1.2));
      places.set(candidate.index, { x: at * columnWidth + 2, y: (row + 0.5) * lineHeight, width: fitted, size: Math.min(size, (fitted - size * 0.6) / Math.max(1, label.length * 0.54)), label });
    }));
    const edges = [], pills = [];
    shapes = new Map();
    for (const candidate of [...drawn].sort((a, b) => "pruned kept answer".indexOf(kind(a)) - "pruned kept answer".indexOf(kind(b)))) {
      const to = places.get(candidate.index), from = candidate.parent === null ? null : places.get(candidate.parent);
      if (from) {
        const x = from.x + from.width, bend = Math.max(8, (to.x - x) * 0.55);
        edges.push(svg("path", { class: `edge ${kind(candidate)}${isGreedy(candidate) ? " greedy" : ""}`, d: `M${x} ${from.y}C${x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x} ${to.y}`, "stroke-width": kind(candidate) === "pruned" ? 1 : (1 + 2.6 * Math.exp(candidate.logp)).toFixed(2) }));
      }
      const shape = svg("g", { class: `pill ${kind(candidate)}${isEnd(candidate) ? " end" : ""}${isGreedy(candidate) ? " greedy" : ""}`, "data-node": candidate.index, onclick: () => set({ node: candidate.index, ...(state.place !== "encoder" ? { step: Math.min(candidate.step - 1, recording.pieces.target.length - 1) } : {}) }) },
        svg("rect", { x: to.x, y: to.y - pillHeight / 2, width: to.width, height: pillHeight, rx: pillHeight / 2 }), svg("text", { x: to.x + to.width / 2, y: to.y + to.size * 0.34, "font-size": to.size.toFixed(1), text: to.label }), svg("title", { text: `${plain(textOf(candidate.index)).slice(0, 200)} \u00b7 ${numbersOf(candidate)}` }));
      shapes.set(candidate.index, shape);
      pills.push(shape);
    }
    drawing.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...edges, ...pills));
  };
  return {
    node,
    resize() { shapes = null; this.update(); },
    update() {
      if (!shapes) draw();
      const at = nodes[state.node]?.step <= steps ? state.node : tree.best ?? 0, candidate = nodes[at];
      for (const shape of drawing.querySelectorAll(".selected")) shape.classList.remove("selected");
      shapes.get(at)?.classList.add("selected");
      list.value = String(at);
      facts.replaceChildren(el("bdi", { text: plain(textOf(at)).slice(0, 300) || "\u2423" }), el("small", { text: ` ${numbersOf(candidate)} \u00b7 ${t("rank")} ${candidate.rank + 1} \u00b7 ${t("fate-" + candidate.fate)}${candidate.why ? `: ${plain(words["why: " + candidate.why] ?? candidate.why)}` : ""}` }));
    },
    scroll() {
      if (steps > FITTING_STEPS) drawing.scrollLeft = columnWidth * (stepOfTarget() + 0.5) - drawing.clientWidth / 2;
    },
  };
}
const uniqueBy = (items, keyOf) => items.filter((item, at) => items.findIndex((other) => keyOf(other) === keyOf(item)) === at);
// Where greedy search would have gone: always to the most probable continuation.
function greedyPath(nodes) {
  const path = [];
  for (let at = null; ;) {
    const next = nodes.filter((node) => node.parent === at && node.step === path.length + 1).sort((a, b) => b.logp - a.logp)[0];
    if (!next) return path;
    path.push(next.index);
    at = next.index;
  }
}
