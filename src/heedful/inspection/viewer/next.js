// Next word: the distribution of this step, and all steps side by side.

const stepOfTarget = () => Math.min(state.step, context.recording.pieces.target.length - 1);
const candidateLabel = (text) => (/^<\/s>$/.test(text.trim()) ? t("end") : brief(text.trim() || text, 18));
const MAX_BARS = 10;
// A row of the bar chart, which is used again at every step, so that its bar moves.
function bar(_, at) {
  const name = el("bdi", { class: "name" }), part = el("b"), value = el("span", { class: "value" }), parts = [name, el("span", { class: "track" }, part), value];
  let piece = "";
  const node = whatIf ? button("", () => whatIf.force(piece), { class: "bar", title: t("live-force"), "data-key": `bar-${at}` }) : el("li", { class: "bar" });
  node.append(...parts);
  return {
    node: whatIf ? el("li", null, node) : node,
    show(text, share, isChosen, named) {
      piece = named;
      name.textContent = text;
      part.style.setProperty("transform", `scaleX(${Math.max(0, Math.min(1, share)).toFixed(4)})`);
      value.textContent = percent(share);
      node.dataset.p = share.toFixed(6);
      node.classList.toggle("chosen", isChosen);
    },
  };
}
// "probability of “black” 10 %": a fact with its name above it.
const fact = (name, value) => el("div", null, el("dt", { text: name }), el("dd", { text: value }));

// Why a word was chosen that is not the most probable one.
function whyChosen({ tree, score }) {
  if (tree?.kind === "sample") return "why-sampled";
  return tree?.kind === "beam" && isNumber(tree.greedy_score) && score > tree.greedy_score ? "why-rescued" : "why-unlikely";
}

function nextWord() {
  const { recording } = context, { steps, target } = recording.sentence;
  const totals = steps.reduce((sums, step) => [...sums, (sums[sums.length - 1] ?? 0) + step.logp], []);
  const facts = el("dl", { class: "facts" }), why = el("p", { class: "why" }), bars = Array.from({ length: MAX_BARS }, bar), list = el("ol", { class: "bars", "aria-label": t("question-next") }, ...bars.map((row) => row.node));
  const columns = steps.map((step, at) => {
    const chosen = recording.chosenIndex(at), others = step.top.filter((_, index) => index !== chosen).slice(0, 5).map(([text, logp]) => [text, Math.exp(logp)]).filter(([, share]) => share > 0.018);
    const parts = [...others.reverse().map(([text, share]) => [candidateLabel(text), share, ""]), [pieceLabel(target.pieces, at), recording.probability(at), "chosen"]];
    const stack = el("span", { class: "stack", "aria-hidden": "true" }, ...parts.map(([text, share, kind]) => el("span", { class: kind, style: { "flex-basis": `${100 * share}%` }, title: `${text} ${percent(share)}` }, share > 0.07 ? el("bdi", { text }) : null)));
    const label = pieceLabel(target.pieces, at);
    const node = button("", () => set({ step: at, ...(state.place === "encoder" ? { place: "cross", head: recording.openingHead } : {}) }), { class: "column", tabindex: "-1", title: `${t("step")} ${at + 1}: ${label} ${percent(recording.probability(at))}` });
    node.append(stack, el("bdi", { class: "label", text: label }));
    return node;
  });
  const skyline = el("div", { class: "skyline scroller", role: "group", tabindex: "0", "aria-label": t("all-steps") }, ...columns);
  const node = el("div", { class: "two next" }, el("div", { class: "stacked" }, facts, why, list),
    el("div", { class: "stacked" }, el("div", { class: "panel-head" }, el("h3", { text: t("all-steps") }), el("small", { text: t("all-steps-note") })), skyline));
  let current = -1, height = 0;
  return {
    node,
    resize() { height = 0; this.update(); },
    scroll() {
      const column = columns[current], left = column.offsetLeft - skyline.offsetLeft;
      if (left < skyline.scrollLeft || left + column.offsetWidth > skyline.scrollLeft + skyline.clientWidth) skyline.scrollLeft = left - skyline.clientWidth / 2;
    },
    update() {
      const at = stepOfTarget(), step = steps[at];
      if (!step) return;
      columns[current]?.removeAttribute("aria-current");
      columns[at].setAttribute("aria-current", "step");
      current = at;
      height ||= list.parentElement.clientHeight;
      const said = pieceLabel(target.pieces, at), chosen = recording.chosenIndex(at), share = recording.probability(at);
      facts.replaceChildren(fact(t("probability-of", quoted(said)), percent(share)), ...(isNumber(step.entropy) ? [fact(t("undecided"), t("count-words", number(Math.exp(step.entropy), 1)))] : []), fact(t("total"), number(totals[at])));
      why.textContent = step.forced ? t("why-forced") : chosen !== 0 && step.top.length ? t(whyChosen(recording.sentence)) : "";
      why.hidden = !why.textContent;
      const room = isNarrow() ? 8 : Math.max(4, Math.min(MAX_BARS, Math.floor((height / rootSize() - (why.hidden ? 4.2 : 6)) / 1.75)));
      const shown = step.top.slice(0, room).map(([text, logp], index) => [candidateLabel(text), Math.exp(logp), index === chosen, text]);
      if (chosen < 0 || chosen >= shown.length) shown.splice(Math.min(shown.length, room - 1), 1, [said, share, true, step.name ?? target.pieces[at].text]);
      bars.forEach((row, index) => {
        row.node.hidden = index >= shown.length;
        row.show(...(shown[index] ?? ["", 0, false, ""]));
      });
    },
  };
}
