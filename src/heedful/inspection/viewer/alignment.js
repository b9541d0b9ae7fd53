// Alignment as a latent variable: the trellis of CTC (states by slots), or the slots that attention may draw (steps by slots).

const BLANK_LABEL = "\u2013";
function alignmentPanel() {
  const { recording } = context, { latent } = recording, { source, target } = recording.pieces, isTrellis = latent.kind === "ctc";
  const [heads, numRows, numColumns] = latent.shape, perSlot = numColumns / source.length, numLabels = (numRows - 1) / 2;
  const rowName = (row) => (!isTrellis ? pieceLabel(target, row, 14) : row % 2 ? pieceLabel(target, (row - 1) / 2, 14) : BLANK_LABEL);
  const rowOfStep = (step) => (!isTrellis ? Math.min(step, numRows - 1) : step < numLabels ? 2 * step + 1 : numRows - 1);
  const stepOfRow = (row) => (isTrellis ? Math.min(target.length - 1, Math.floor(row / 2)) : row);
  const slotOf = (column) => Math.floor(column / perSlot), headOf = () => Math.min(state.place === "cross" && state.head ? state.head[1] : 0, heads - 1);
  const tag = el("span", { class: "tag" }), cellText = el("bdi"), probability = el("b", { class: "now number" });
  const sheetPlace = el("div", { class: "sheet" }), path = svg("svg", { class: "alignment-path", "aria-hidden": "true" }), marker = el("div", { class: "row-marker" }), chosen = el("div", { class: "cell-marker" });
  const board = el("div", { class: "map-board", tabindex: "0", role: "application", "aria-label": t("alignment-label"), "aria-describedby": "alignment-readout", "data-key": "alignment" }, sheetPlace, path, marker, chosen);
  const label = (text) => el("span", { class: "label", title: text }, el("bdi", { text }));
  const top = el("div", { class: "top", "aria-hidden": "true" }, ...source.map((_, at) => label(pieceLabel(source, at, 14)))), left = el("div", { class: "left", "aria-hidden": "true" }, ...Array.from({ length: numRows }, (_, row) => label(rowName(row))));
  const grid = el("div", { class: "map" }, el("span"), top, left, board), scroller = el("div", { class: "map-scroller scroller" }, grid), total = el("p", { class: "alignment-total" });
  const node = el("div", { class: "stacked alignment" }, el("div", { class: "panel-head", id: "alignment-readout", "aria-live": "polite" }, tag, el("span", { class: "cell-name" }, cellText), probability), scroller, total, el("small", { class: "quiet", text: t("alignment-note-" + latent.kind) }));
  let size = null, sheet = null;
  const numbers = () => latent.numbers.subarray(headOf() * numRows * numColumns, (headOf() + 1) * numRows * numColumns);
  const at = (row, column) => numbers()[row * numColumns + column];
  // The most probable cell of a row among the slots of one source piece.
  const columnOf = (row, slot) => slot * perSlot + argmax(Array.from({ length: perSlot }, (_, part) => at(row, slot * perSlot + part)));
  const layout = () => {
    const unit = rootSize(), room = Math.floor(((scroller.clientWidth || 400) - 6 * unit) / numColumns), width = Math.max(Math.ceil(11 / perSlot), Math.min(room, 5.2 * unit));
    const upright = width * perSlot < 2.6 * unit, wide = width * perSlot;
    grid.classList.toggle("upright", upright);
    grid.style.setProperty("--wide", `${wide}px`);
    grid.style.setProperty("--top-label", `${upright ? Math.min(0.88 * unit, wide) : 0.88 * unit}px`);
    const height = Math.floor(((scroller.clientHeight || 300) - top.offsetHeight - 6) / numRows);
    size = { width, height: Math.max(13, Math.min(isNarrow() ? 24 : height, 2.2 * unit)) };
    grid.style.setProperty("--high", `${size.height}px`);
    grid.style.setProperty("--label", `${Math.min(0.88 * unit, 0.95 * size.height)}px`);
    sheet = canvas(width * numColumns, size.height * numRows, { "aria-hidden": "true" });
    sheetPlace.replaceChildren(sheet);
  };
  const draw = () => {
    const { width, height } = size, [across, down] = [width * numColumns, height * numRows], pen = sheet.getContext("2d"), steps = latent.paths[headOf()];
    stretch(sheet, { rows: numRows, columns: numColumns, numbers: numbers() }, across, down);
    pen.fillStyle = cssColor("--panel");
    for (let slot = 1; slot < source.length; slot++) pen.fillRect(slot * width * perSlot - 1, 0, 1, down);
    for (let row = 1; row < numRows; row++) pen.fillRect(0, row * height - 1, across, 1);
    if (!isTrellis && width >= 20) {
      pen.font = `${Math.min(0.8 * rootSize(), height * 0.6)}px ${getComputedStyle(document.body).fontFamily}`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      for (let row = 0; row < numRows; row++) for (let column = 0; column < numColumns; column++) {
        if (at(row, column) < 0.1 && steps[row] !== column) continue;
        pen.fillStyle = inkOn(at(row, column));
        pen.fillText(String(Math.round(100 * at(row, column))), (column + 0.5) * width, (row + 0.53) * height);
      }
    }
    const points = steps.map((value, index) => (isTrellis ? [index, value] : [value, index])).map(([column, row]) => [(column + 0.5) * width, (row + 0.5) * height]);
    path.setAttribute("viewBox", `0 0 ${across} ${down}`);
    path.style.setProperty("width", `${across}px`);
    path.style.setProperty("height", `${down}px`);
    path.replaceChildren(...(isTrellis ? [svg("polyline", { points: points.map((point) => point.join(",")).join(" ") })] : []), ...points.map(([x, y]) => svg("circle", { cx: x, cy: y, r: Math.max(2, Math.min(width, height) * (isTrellis ? 0.16 : 0.44)), class: isTrellis ? "dot" : "ring" })));
    const whole = latent.total ?? recording.sentence.logp, share = isTrellis ? Math.exp(latent.logps[0] - whole) : Math.exp(latent.logps[headOf()]);
    total.textContent = t("alignment-total-" + latent.kind, percent(Math.min(1, share)), number(whole));
    total.dataset.share = share.toFixed(4);
  };
  const cellAt = (event) => { const box = sheet.getBoundingClientRect(); return [Math.floor((event.clientY - box.top) / size.height), Math.floor((event.clientX - box.left) / size.width)]; };
  const isCell = ([row, column]) => row >= 0 && column >= 0 && row < numRows && column < numColumns;
  const showCell = (row, column) => {
    const part = perSlot > 1 ? ` ${(column % perSlot) + 1}/${perSlot}` : "";
    cellText.textContent = `${pieceLabel(source, slotOf(column))}${part} \u2192 ${isTrellis && row % 2 === 0 ? t("blank") : rowName(row)}`;
    probability.textContent = percent(at(row, column));
    probability.dataset.probability = at(row, column).toFixed(5);
  };
  const showCurrent = () => { const row = rowOfStep(state.step); showCell(row, columnOf(row, Math.min(state.slot, source.length - 1))); };
  board.addEventListener("click", (event) => { const cell = cellAt(event); if (isCell(cell)) set({ place: "cross", step: stepOfRow(cell[0]), slot: slotOf(cell[1]) }); });
  board.addEventListener("pointermove", (event) => { const cell = cellAt(event); if (isCell(cell)) showCell(...cell); });
  board.addEventListener("pointerleave", showCurrent);
  board.addEventListener("keydown", (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by || state.slide !== null) return;
    event.preventDefault();
    event.stopPropagation();
    set({ place: "cross", step: Math.max(0, Math.min(target.length - 1, state.step + by[0])), slot: Math.max(0, Math.min(source.length - 1, state.slot + by[1])) });
  });
  const put = (element, row, slot, slots) => { for (const [key, value] of [["top", row * size.height], ["left", slot * perSlot * size.width], ["width", slots * perSlot * size.width], ["height", size.height]]) element.style.setProperty(key, `${value}px`); };
  return {
    node,
    resize() { size = null; this.update(new Set(["all"])); },
    scroll() { keepInView(scroller, chosen, [top.offsetHeight, left.offsetWidth]); },
    update(changed) {
      if (!size) layout();
      if (["all", "head", "place", "theme"].some((key) => changed.has(key))) draw();
      const row = rowOfStep(state.step), slot = Math.min(state.slot, source.length - 1);
      put(marker, row, 0, source.length);
      put(chosen, row, slot, 1);
      tag.textContent = isTrellis ? "CTC" : headName([0, headOf()]);
      showCurrent();
      [...top.children].forEach((element, index) => element.classList.toggle("now", index === slot));
      [...left.children].forEach((element, index) => element.classList.toggle("now", index === row));
    },
  };
}
