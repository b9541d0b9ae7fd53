// Next word: the distribution of this step, and all steps side by side.

const stepOfTarget = () => Math.min(state.step, context.recording.pieces.target.length - 1);
const candidateLabel = (text) => (/^<\/s>$/.test(text.trim()) ? t("end") : brief(text.trim() || text, 18));
function bar(name, share, attributes, value = percent(share)) {
  return el("li", { class: "bar", ...attributes }, el("bdi", { class: "name", text: name }), el("span", { class: "track" }, el("b", { style: { transform: `scaleX(${Math.max(0, Math.min(1, share)).toFixed(4)})` } })), el("span", { class: "value", text: value }));
}
// "probability of “black” 10 %": a fact with its name above it.
const fact = (name, value) => el("div", null, el("dt", { text: name }), el("dd", { text: value }));

function nextWord() {
  const { recording } = context, { steps, target } = recording.sentence;
  const totals = steps.reduce((sums, step) => [...sums, (sums[sums.length - 1] ?? 0) + step.logp], []);
  const facts = el("dl", { class: "facts" }), why = el("p", { class: "why" }), list = el("ol", { class: "bars", "aria-label": t("question-next") });
  const columns = steps.map((step, at) => {
    const chosen = recording.chosenIndex(at), others = step.top.filter((_, index) => index !== chosen).slice(0, 5).map(([text, logp]) => [text, Math.exp(logp)]).filter(([, share]) => share > 0.018);
    const parts = [...others.reverse().map(([text, share]) => [candidateLabel(text), share, ""]), [pieceLabel(target.pieces, at), recording.probability(at), "chosen"]];
    const stack = el("span", { class: "stack" }, ...parts.map(([text, share, kind]) => el("span", { class: kind, style: { "flex-basis": `${100 * share}%` }, title: `${text} ${percent(share)}` }, share > 0.07 ? el("bdi", { text }) : null)));
    const label = pieceLabel(target.pieces, at);
    const node = button("", () => set({ step: at, ...(state.place === "encoder" ? { place: "cross", head: recording.openingHead } : {}) }), { class: "column", tabindex: "-1", "aria-label": `${t("step")} ${at + 1}: ${label} ${percent(recording.probability(at))}` });
    node.append(stack, el("bdi", { class: "label", text: label }));
    return node;
  });
  const skyline = el("div", { class: "skyline scroller", role: "group", tabindex: "0", "aria-label": t("all-steps") }, ...columns);
  const node = el("div", { class: "two next" }, el("div", { class: "stacked" }, facts, why, list),
    el("div", { class: "stacked" }, el("div", { class: "panel-head" }, el("h3", { text: t("all-steps") }), el("small", { text: t("all-steps-note") })), skyline));
  let current = -1;
  return {
    node,
    update() {
      const at = stepOfTarget(), step = steps[at];
      if (!step) return;
      columns[current]?.removeAttribute("aria-current");
      columns[at].setAttribute("aria-current", "step");
      if (current !== at) {
        const left = columns[at].offsetLeft - skyline.offsetLeft;
        if (left < skyline.scrollLeft || left + columns[at].offsetWidth > skyline.scrollLeft + skyline.clientWidth) skyline.scrollLeft = left - skyline.clientWidth / 2;
      }
      current = at;
      const said = pieceLabel(target.pieces, at), chosen = recording.chosenIndex(at), share = recording.probability(at);
      facts.replaceChildren(fact(t("probability-of", quoted(said)), percent(share)), ...(isNumber(step.entropy) ? [fact(t("undecided"), t("count-words", number(Math.exp(step.entropy), 1)))] : []), fact(t("total"), number(totals[at])));
      why.textContent = step.forced ? t("why-forced") : chosen !== 0 && step.top.length ? t(recording.sentence.tree?.kind === "sample" ? "why-sampled" : "why-rescued") : "";
      why.hidden = !why.textContent;
      const room = isNarrow() ? 8 : Math.max(4, Math.min(10, Math.floor((list.parentElement.clientHeight / rootSize() - (why.hidden ? 4.2 : 6)) / 1.75)));
      const shown = step.top.slice(0, room).map(([text, logp], index) => [candidateLabel(text), Math.exp(logp), index === chosen]);
      if (chosen < 0 || chosen >= shown.length) shown.splice(Math.min(shown.length, room - 1), 1, [said, share, true]);
      list.replaceChildren(...shown.map(([text, value, isChosen]) => bar(text, value, { class: `bar${isChosen ? " chosen" : ""}`, "data-p": value.toFixed(6) })));
    },
  };
}
