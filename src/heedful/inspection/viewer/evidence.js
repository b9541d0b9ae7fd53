// Evidence: what the model used, measured by experiments, beside attention; and what each layer would have said.

const METHODS = ["attention", "head", "erasure", "gradients", "random"];
function evidencePanel() {
  const { recording } = context, { sentence } = recording, { lens = [], neighbors = {}, deletion = {} } = sentence;
  const parts = [recording.contributions.erasure || recording.contributions.gradients ? contributionsTable() : null, Object.keys(deletion).length ? deletionCurves(deletion) : null,
    lens.length ? lensTable(lens) : null, Object.keys(neighbors).length ? neighborLists(neighbors) : null].filter(Boolean);
  if (!parts.length) return { node: el("p", { class: "remark", text: t("no-evidence") }), update() {} };
  return { node: el("div", { class: "evidence" }, ...parts.map((part) => part.node)), update(changed) { for (const part of parts) part.update(changed); }, resize() { for (const part of parts) part.resize?.(); }, scroll() { for (const part of parts) part.scroll?.(); } };
}
const card = (title, note, shape, ...children) => el("section", { class: `stacked ${shape}`, tabindex: "0", "aria-label": title }, el("h3", { text: title }), el("small", { text: note }), ...children);

function contributionsTable() {
  const { recording } = context, source = recording.pieces.source;
  const methods = ["erasure", "gradients"].filter((method) => recording.contributions[method]);
  const attentionName = el("th", { scope: "col" }), body = el("tbody"), top = el("thead", null, el("tr", null, el("th", { scope: "col", text: t("source") }), ...(recording.attendsToWords ? [attentionName] : []), ...methods.map((method) => el("th", { scope: "col", text: t("method-" + method), title: t(`method-${method}-note`) }))));
  const scroller = el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("contributions") }, el("table", { class: "contributions" }, top, body));
  const signed = (value, most) => el("td", null, el("span", { class: "signed" }, el("b", { class: value < 0 ? "negative" : "", style: { width: `${Math.min(50, (50 * Math.abs(value)) / most)}%` } })), el("span", { class: "number", text: number(value) }));
  return {
    node: card(t("contributions"), t("contributions-note"), "tall", scroller),
    scroll() { const row = body.querySelector(".now"); if (row && !isNarrow()) keepInView(scroller, row, [top.offsetHeight, 0]); },
    update() {
      const step = stepOfTarget(), row = (method) => { const { shape: [, columns], numbers } = recording.contributions[method]; return numbers.subarray(step * columns, (step + 1) * columns); };
      const values = methods.map(row), most = values.map((numbers) => Math.max(1e-6, ...numbers.map(Math.abs)));
      const head = state.place === "cross" ? state.head : recording.openingHead, attention = recording.attendsToWords ? recording.map("cross", head).row(alignedRow("cross", state.reading, step, recording.pieces.target.length)) : null;
      attentionName.textContent = `${t("method-attention-now")} ${headName(head)}`;
      const isSelected = (slot) => slot === state.slot && state.place !== "decoder" && recording.attendsToWords;
      body.replaceChildren(...source.map((_, slot) => el("tr", { class: isSelected(slot) ? "now" : "" }, el("th", { scope: "row" }, el("bdi", { text: pieceLabel(source, slot, 14) })),
        ...(attention ? [el("td", null, el("span", { class: "track" }, el("b", { style: { transform: `scaleX(${attention[slot].toFixed(4)})` } })), el("span", { class: "number", text: percent(attention[slot]) }))] : []),
        ...values.map((numbers, index) => signed(numbers[slot], most[index])))));
    },
  };
}

// Log p of the answer as the most important source pieces are deleted: the faster a curve falls, the better the method knows what the model used.
function deletionCurves(deletion) {
  const methods = METHODS.filter((method) => deletion[method]?.length > 1), curves = methods.map((method) => deletion[method]);
  const count = Math.max(...curves.map((curve) => curve.length)), high = Math.max(...curves.flat()), low = Math.min(...curves.flat());
  const area = (curve) => curve.reduce((sum, value) => sum + value, 0) / curve.length, best = methods.filter((method) => method !== "random").sort((a, b) => area(deletion[a]) - area(deletion[b]))[0];
  const isBetter = best && (!deletion.random || area(deletion[best]) < area(deletion.random));
  const order = [...methods].sort((a, b) => area(deletion[a]) - area(deletion[b])), chart = svg("svg", { class: "curves", role: "img", "aria-label": t("deletion") });
  let isDrawn = false;
  const draw = () => {
    const unit = rootSize(), box = chart.getBoundingClientRect(), width = box.width || 26 * unit, height = box.height || 16 * unit, left = 3.4 * unit, top = 0.7 * unit, plotWidth = width - left - 11 * unit, plotHeight = height - top - 2.5 * unit, legendAt = left + plotWidth + 0.7 * unit;
    const x = (at) => left + (plotWidth * at) / (count - 1), y = (value) => top + (plotHeight * (high - value)) / (high - low || 1), legendY = (at) => top + (0.9 + 1.2 * at) * unit;
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.replaceChildren(svg("path", { class: "axis", d: `M${left} ${top}v${plotHeight}h${plotWidth}` }),
      ...[high, (high + low) / 2, low].map((value) => svg("text", { x: left - 0.4 * unit, y: y(value) + 0.3 * unit, class: "end quiet", text: number(value, 1) })),
      ...[0, Math.round((count - 1) / 2), count - 1].map((at) => svg("text", { x: x(at), y: top + plotHeight + 1.05 * unit, class: "middle quiet", text: String(at) })), svg("text", { x: left + plotWidth / 2, y: height - 0.4 * unit, class: "middle quiet", text: t("deletion-axis") }),
      ...methods.map((method) => svg("polyline", { class: `curve ${method}`, points: deletion[method].map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") })),
      ...order.flatMap((method, at) => [svg("line", { class: `curve ${method}`, x1: legendAt, x2: legendAt + 1.4 * unit, y1: legendY(at) - 0.28 * unit, y2: legendY(at) - 0.28 * unit }), svg("text", { x: legendAt + 1.8 * unit, y: legendY(at), class: isBetter && method === best ? "best" : "", text: t("method-" + method) })]));
    isDrawn = true;
  };
  return { node: card(t("deletion"), t("deletion-note"), "tall", best ? el("p", { class: "why", text: isBetter ? t("deletion-best", t("method-" + best)) : t("deletion-none") }) : null, chart), resize: draw, update() { if (!isDrawn) draw(); } };
}

function lensTable(lens) {
  const { recording } = context, body = el("tbody"), chosen = el("th", { scope: "col" });
  return {
    node: card(t("lens"), t("lens-note"), "", el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("lens") }, el("table", { class: "lens-table" }, el("thead", null, el("tr", null, el("th", { scope: "col", text: t("layer") }), el("th", { scope: "col", text: t("lens-best") }), chosen)), body))),
    update() {
      const step = stepOfTarget();
      chosen.textContent = quoted(pieceLabel(recording.pieces.target, step, 12));
      body.replaceChildren(...lens.map((layer, at) => {
        const { top = [], logp, rank } = layer[step];
        return el("tr", null, el("th", { scope: "row", text: String(at + 1) }), el("td", null, ...top.slice(0, 2).flatMap(([text, value], index) => [el("bdi", { class: rank === index ? "now" : "", text: candidateLabel(text) }), el("small", { text: ` ${percent(Math.exp(value))}  ` })])),
          el("td", { text: `${percent(Math.exp(logp))}, ${t("rank")} ${rank + 1}` }));
      }));
    },
  };
}

function neighborLists(neighbors) {
  const { recording } = context, body = el("dl", { class: "neighbors" });
  return {
    node: el("section", { class: "stacked", tabindex: "0", "aria-label": t("neighbors") }, el("h3", null, `${t("neighbors")} `, el("small", { text: t("neighbors-note") })), body),
    update() {
      const sides = [["source", state.place === "decoder" || !recording.attendsToWords ? null : state.slot], ["target", stepOfTarget()]].filter(([side, at]) => at !== null && neighbors[side]?.[at]);
      body.replaceChildren(...sides.flatMap(([side, at]) => [el("dt", null, el("bdi", { text: pieceLabel(recording.pieces[side], at) })), el("dd", null, ...neighbors[side][at].flatMap(([text, cosine]) => [el("bdi", { text: candidateLabel(text) }), el("small", { text: ` ${number(cosine)}  ` })]))]));
    },
  };
}
