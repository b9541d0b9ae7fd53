// Map and arithmetic: one map with the selected cell, and how the weight of that cell is computed, in five scenes.

// The step whose row in the map this is: with shifted reading, the row below belongs to it.
const stepOfRow = (row) => Math.max(0, row - (state.place === "cross" && state.reading === "shifted" ? 1 : 0));

function mapPanel() {
  const { recording } = context;
  if (!recording.places.length) return { node: el("p", { class: "remark", text: t("no-heads") }), update() {} };
  const rows = recording.rowPieces(state.place), columns = recording.columnPieces(state.place);
  const tag = el("span", { class: "tag" }), cellText = el("bdi"), weight = el("b", { class: "now number" }), note = el("small", { class: "note", text: t("map-note") });
  const sheetPlace = el("div", { class: "sheet" }), marker = el("div", { class: "row-marker" }), chosen = el("div", { class: "cell-marker" });
  const board = el("div", { class: "map-board", tabindex: "0", role: "application", "aria-label": t("map-label"), "aria-describedby": "cell-readout", "data-key": "map" }, sheetPlace, marker, chosen);
  const names = recording.rowNames(state.place, state.reading);
  const label = (pieces, at) => el("span", { class: "label", title: plain(pieces[at].text.trim()).slice(0, 200) }, el("bdi", { text: pieceLabel(pieces, at, 14) }));
  const top = el("div", { class: "top", "aria-hidden": "true" }, ...columns.map((_, at) => label(columns, at))), left = el("div", { class: "left", "aria-hidden": "true" }, ...rows.map((_, at) => label(names, at)));
  const grid = el("div", { class: "map" }, el("span"), top, left, board), scroller = el("div", { class: "map-scroller scroller" }, grid);
  const sums = arithmetic();
  const node = el("div", { class: "two lens" }, el("div", { class: "stacked" }, el("div", { class: "panel-head", id: "cell-readout", "aria-live": "polite" }, tag, el("span", { class: "cell-name" }, cellText), weight), scroller, note), sums.node);
  let size = null, sheet = null;
  const layout = () => {
    const unit = rootSize(), longest = Math.min(7, Math.max(...rows.map((_, at) => pieceLabel(rows, at, 14).length)) * 0.5 + 1);
    const room = Math.floor(((scroller.clientWidth || 400) - longest * unit - 8) / columns.length), width = Math.max(11, Math.min(room, 5.2 * unit));
    const upright = room < 2.6 * unit;  // too narrow for words: they stand upright
    grid.classList.toggle("upright", upright);
    grid.style.setProperty("--wide", `${width}px`);
    grid.style.setProperty("--top-label", `${upright ? Math.min(0.88 * unit, width) : 0.88 * unit}px`);
    const height = Math.floor(((scroller.clientHeight || 300) - top.offsetHeight - 6) / rows.length);
    size = { width, height: Math.max(13, Math.min(isNarrow() ? 30 : height, 3 * unit)) };
    grid.style.setProperty("--high", `${size.height}px`);
    grid.style.setProperty("--label", `${Math.min(0.88 * unit, 0.95 * size.height)}px`);
    sheet = canvas(size.width * columns.length, size.height * rows.length, { "aria-hidden": "true" });
    sheetPlace.replaceChildren(sheet);
  };
  const drawMap = () => {
    const pen = sheet.getContext("2d"), map = currentMap(), { width, height } = size, withNumbers = width >= 20 && height >= 13;
    stretch(sheet, map, width * columns.length, height * rows.length);
    pen.fillStyle = cssColor("--panel");
    for (let column = 1; column < columns.length; column++) pen.fillRect(column * width - 1, 0, 1, height * rows.length);
    for (let row = 1; row < rows.length; row++) pen.fillRect(0, row * height - 1, width * columns.length, 1);
    whatIf?.markEdits(pen, size);
    if (!withNumbers) return;
    pen.font = `${Math.min(0.8 * rootSize(), height * 0.7)}px ${getComputedStyle(document.body).fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let row = 0; row < rows.length; row++) for (let column = 0; column < columns.length; column++) {
      const value = map.at(row, column);
      if (value < 0.1) continue;
      pen.fillStyle = inkOn(value);
      pen.fillText(String(Math.round(100 * value)), (column + 0.5) * width, (row + 0.53) * height);
    }
  };
  const cellAt = (event) => { const box = sheet.getBoundingClientRect(); return [Math.floor((event.clientY - box.top) / size.height), Math.floor((event.clientX - box.left) / size.width)]; };
  board.addEventListener("click", (event) => { const [row, column] = cellAt(event); if (row >= 0 && column >= 0 && row < rows.length && column < columns.length) set({ step: stepOfRow(row), slot: column }); });
  board.addEventListener("pointermove", (event) => { const [row, column] = cellAt(event); if (row >= 0 && column >= 0 && row < rows.length && column < columns.length) showCell(row, column); });
  board.addEventListener("pointerleave", () => showCell(currentRow(), state.slot));
  board.addEventListener("keydown", (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by || state.slide !== null) return;
    event.preventDefault();
    event.stopPropagation();
    set({ step: Math.max(0, Math.min(rows.length - 1, state.step + by[0])), slot: Math.max(0, Math.min(columns.length - 1, state.slot + by[1])) });
  });
  const showCell = (row, column) => {
    cellText.textContent = `${pieceLabel(names, row)} \u2192 ${pieceLabel(columns, column)}`;
    weight.textContent = percent(currentMap().at(row, column));
    weight.dataset.weight = currentMap().at(row, column).toFixed(5);
  };
  const put = (element, row, column, width, height) => { for (const [key, value] of [["top", row * size.height], ["left", column * size.width], ["width", width], ["height", height]]) element.style.setProperty(key, `${value}px`); };
  return {
    node,
    resize() { size = null; sums.resize(); this.update(new Set(["all"])); },
    scroll() { keepInView(scroller, chosen, [top.offsetHeight, left.offsetWidth]); },
    update(changed) {
      if (!size) layout();
      if (["all", "head", "theme"].some((key) => changed.has(key))) drawMap();
      const row = currentRow();
      put(marker, row, 0, size.width * columns.length, size.height);
      put(chosen, row, state.slot, size.width, size.height);
      tag.textContent = cellName();
      showCell(row, state.slot);
      [...top.children].forEach((element, at) => element.classList.toggle("now", at === state.slot));
      [...left.children].forEach((element, at) => element.classList.toggle("now", at === row));
      sums.update(changed);
    },
  };
}

// ----------------------------------------------------------------------------------------------------- arithmetic

const SCENES = 5, SCENE_SECONDS = 2.6;
const FORMULAS = {
  dot: "e = q \u00b7 k", scaled_dot: "e = q \u00b7 k / \u221ad", bilinear: "e = q \u00b7 W k", additive: "e = v \u00b7 tanh(W q + U k + b)",
  location: "e = (W q)\u209b", content_location: "e = v \u00b7 tanh(W q + U k + F f + b)",
};
const KEY_NAMES = { bilinear: "W k", additive: "U k + b", content_location: "U k + b", location: "w\u209b" };
const ease = (share) => (share < 0.5 ? 2 * share * share : 1 - 2 * (1 - share) * (1 - share));
const part = (value, from, to) => ease(Math.max(0, Math.min(1, (value - from) / (to - from))));
const mix = (from, to, share) => from + (to - from) * share;
let sceneTimer = null;

// Whether weights of this row of the selected head were chosen, in a live page.
const isEditedRow = ({ sentence: { edits = [] } }, row) => edits.some((edit) => edit.place === state.place && edit.step === row && (!isNumber(edit.head) || sameHead([edit.layer, edit.head], state.head)));

// Everything that the scenes show, computed once per cell.
function cellNumbers(recording) {
  const layer = recording.vectors[state.place]?.[state.head?.[0]];
  if (!layer) return null;
  const [, head] = state.head, row = currentRow(), scores = scoresOf(layer, head, row), isEdited = isEditedRow(recording, row), weights = isEdited ? currentMap().row(row) : normalizeScores(layer, scores);
  const { query, key, terms } = scoreTerms(layer, head, row, state.slot), width = terms.length;
  const divisor = layer.score === "scaled_dot" ? Math.sqrt(width) : 1;
  // Recorded scores of masked slots are lost: these are what the mask hides.
  const unmasked = Array.from(scores, (score, slot) => (score === -Infinity ? scoreTerms(layer, head, row, slot).terms.reduce((sum, term) => sum + term, 0) / divisor : score));
  const values = Array.from(weights, (_, slot) => vectorOf(layer.values, head, slot));
  const mixture = Float32Array.from({ length: values[0].length }, (_, j) => weights.reduce((sum, weight, slot) => sum + weight * values[slot][j], 0));
  return { layer, row, scores, unmasked, weights, query, key, terms, width, divisor, values, mixture, score: scores[state.slot], isEdited };
}

function arithmetic() {
  const { recording } = context, body = el("div", { class: "arithmetic" });
  const columns = recording.columnPieces(state.place), rows = recording.rowNames(state.place, state.reading);
  let shown = "", room = null, frame = () => {};
  const stop = () => { cancelAnimationFrame(sceneTimer); sceneTimer = null; };
  const playScenes = () => {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) { set({ scene: state.scene >= SCENES ? 1 : Math.floor(state.scene) + 1 }); return; }
    let scene = state.scene >= SCENES ? 0 : state.scene, before = performance.now();
    const tick = (now) => {
      scene = Math.min(SCENES, scene + (now - before) / 1000 / SCENE_SECONDS);
      before = now;
      set({ scene });
      sceneTimer = scene < SCENES && body.isConnected ? requestAnimationFrame(tick) : null;
    };
    stop();
    sceneTimer = requestAnimationFrame(tick);
  };
  const build = () => {
    stop();
    frame = () => {};
    if (!state.head) return body.replaceChildren(...ofMean());
    const numbers = cellNumbers(recording);
    if (!numbers) return body.replaceChildren(el("p", { class: "remark", text: t("no-vectors", state.place) }));
    const names = sceneNames(numbers.layer);
    const steps = names.map((name, at) => button(`${at + 1}  ${name}`, () => { stop(); set({ scene: at + 1 }); }, { "data-key": `scene-${at + 1}` }));
    const drawing = el("div", { class: "scene" }), sentence = el("p", { class: "equation", "aria-live": "polite" });
    const scrub = slider(t("scene"), 0, SCENES, 0.01, state.scene, (scene) => { stop(); set({ scene }); }, { "data-key": "scene" });
    body.replaceChildren(el("div", { class: "scenes" }, iconButton("play", t("play"), () => (sceneTimer ? stop() : playScenes()), { class: "icon main", "data-key": "play-scenes" }), el("ol", null, ...steps.map((element) => el("li", null, element)))), el("p", { class: "formula", text: `${FORMULAS[numbers.layer.score]}, ${numbers.layer.normalizer === "hard" ? "a = argmax e" : "a = softmax(e)"}, c = \u03a3 a v` }), drawing, sentence, scrub);
    frame = () => {
      const at = Math.min(SCENES - 1, Math.max(0, Math.ceil(state.scene) - 1)), share = Math.max(0, Math.min(1, state.scene - at));
      steps.forEach((element, index) => {
        element.style.setProperty("--filled", `${index < at ? 100 : index === at ? 100 * share : 0}%`);
        if (index === at) element.setAttribute("aria-current", "step"); else element.removeAttribute("aria-current");
      });
      scrub.show(state.scene);
      setContent(sentence, sceneSentence(at, numbers));
      room ??= { width: Math.max(280, drawing.clientWidth || 500), height: Math.max(150, drawing.clientHeight || 220), unit: rootSize() };
      drawing.replaceChildren(drawScene(at, share, numbers, { ...room, columns, rows }));
      sentence.dataset.score = String(numbers.score);
      sentence.dataset.weight = String(numbers.weights[state.slot]);
    };
    return undefined;
  };
  const ofMean = () => {
    const slots = recording.heads(state.place).map((head) => [head, recording.map(state.place, head).at(currentRow(), state.slot)]).sort((a, b) => b[1] - a[1]).slice(0, 10);
    return [el("p", { text: t("mean-note") }), el("div", { class: "bars", role: "group", "aria-label": t("heads") }, ...slots.map(([head, weight]) => {
      const node = button("", () => set({ head }), { class: "bar", "data-head": headName(head) });
      node.append(el("span", { class: "name", text: `${t("head")} ${headName(head)}` }), el("span", { class: "track" }, el("b", { style: { transform: `scaleX(${weight.toFixed(4)})` } })), el("span", { class: "value", text: percent(weight) }));
      return node;
    }))];
  };
  return {
    node: body,
    resize() { room = null; },
    update(changed) {
      const key = `${state.place} ${state.head} ${currentRow()} ${state.slot} ${state.lang} ${state.theme}`;
      if (key !== shown || changed.has("all")) build();
      shown = key;
      frame();
    },
  };
}

const sceneNames = (layer) => [layer.energy ? "v \u00b7 tanh" : layer.score === "location" ? "q \u00b7 w\u209b" : `q \u00b7 ${KEY_NAMES[layer.score] ?? "k"}`, layer.score === "scaled_dot" ? "\u00f7 \u221ad" : t("scale"), t("mask"), layer.normalizer === "hard" ? "argmax" : "softmax", "\u03a3 a v"];

function sceneSentence(at, { layer, scores, weights, width, divisor, score, isEdited }) {
  const value = (text) => el("b", { text }), isMasked = score === -Infinity;
  const product = () => (isMasked ? [t("scene-masked")] : [t(layer.energy ? "scene-energy" : "scene-product"), ` \u03a3 = `, value(number(score * divisor))]);
  const scaled = () => (divisor === 1 ? [t("scene-no-scale")] : isMasked ? [t("scene-masked")] : [t("scene-scale", width), ` ${number(score * divisor)} / ${number(divisor)} = `, value(number(score))]);
  const masked = () => [t(scores.includes(-Infinity) ? "scene-mask" : "scene-no-mask")];
  const softmax = () => (isEdited ? [t("live-edited-row"), " ", value(number(weights[state.slot], 3))] : layer.normalizer === "hard" ? [t("scene-hard"), " ", value(number(weights[state.slot], 3))]
    : [t("scene-softmax"), " e", el("sup", { text: number(score) }), " / \u03a3 = ", value(number(weights[state.slot], 3))]);
  return [product, scaled, masked, softmax, () => [t(whatIf?.isSilenced(state.place, state.head) ? "live-silenced-row" : "scene-mixture")]][at]();
}

// A scene as SVG: a pure function of its number, the share of it that has passed, and the numbers of the cell.
function drawScene(at, share, numbers, { width, height, unit, columns, rows }) {
  const children = [], { scores, weights, layer } = numbers;
  const text = (x, y, content, attributes) => children.push(svg("text", { x: x.toFixed(1), y: y.toFixed(1), ...attributes, text: content }));
  const rect = (x, y, wide, high, attributes) => children.push(svg("rect", { x: x.toFixed(1), y: y.toFixed(1), width: Math.max(0, wide).toFixed(1), height: Math.max(0, high).toFixed(1), ...attributes }));
  const line = (x1, x2, y) => children.push(svg("line", { x1, x2, y1: y, y2: y, class: "axis" }));
  const largest = (values) => Math.max(1e-9, ...Array.from(values, (value) => (Number.isFinite(value) ? Math.abs(value) : 0)));
  const sign = (value) => (value >= 0 ? "plus" : "minus");
  const finite = numbers.unmasked, raw = finite.map((score) => score * numbers.divisor);
  const slotLabel = (slot) => pieceLabel(columns, slot, 10);

  function products() {
    const from = 6.4 * unit, to = width - 6.2 * unit, each = (to - from) / numbers.width, high = height / 3, live = share * numbers.width;
    const lines = [[numbers.query, layer.energy ? "W q" : "q", pieceLabel(rows, numbers.row, 10)], [numbers.key, KEY_NAMES[layer.score] ?? "k", slotLabel(state.slot)], [numbers.terms, layer.energy ? "v \u2299 tanh" : "q \u2299 k", ""]];
    lines.forEach(([values, name, word], index) => {
      const middle = high * (index + 0.5), most = largest(values);
      line(from, to, middle);
      text(from - 0.7 * unit, middle + (word ? -0.05 : 0.3) * unit, name, { class: "formula end", "font-size": 1.25 * unit });
      if (word) text(from - 0.7 * unit, middle + 1.15 * unit, word, { class: "word quiet end", "font-size": unit });
      for (let j = 0; j < numbers.width; j++) {
        const seen = index < 2 ? 1 : Math.max(0, Math.min(1, live - j)), size = (Math.abs(values[j]) / most) * high * 0.42 * seen;
        rect(from + (j + 0.12) * each, values[j] >= 0 ? middle - size : middle, each * 0.76, size, { class: share < 1 && Math.abs(j - live + 0.5) < 0.6 ? "now" : sign(values[j]), opacity: index < 2 && j > live ? 0.45 : null });
      }
    });
    const whole = numbers.terms.reduce((sum, term) => sum + term, 0), soFar = numbers.terms.reduce((sum, term, j) => sum + term * Math.max(0, Math.min(1, live - j)), 0);
    const isMasked = numbers.score === -Infinity, exact = isMasked ? whole : numbers.score * numbers.divisor;  // the recorded score is more precise than the recorded vectors
    const below = Math.min(high * 2.5 + 1.5 * unit, height - 0.5 * unit);
    text(to + 0.9 * unit, below - 1.7 * unit, "\u03a3", { class: "formula", "font-size": 1.2 * unit });
    text(to + 0.9 * unit, below, number(share >= 1 ? exact : soFar), { class: "word now", "font-size": 1.6 * unit });
  }

  function bars(values, zero, scaleOf, { ghost = null, ghostScale = 1, format = number, masked = () => 0 }) {
    const from = 0.6 * unit, each = (width - 1.2 * unit) / values.length, small = each < 3.4 * unit;
    line(from, width - from, zero);
    values.forEach((value, slot) => {
      const isNow = slot === state.slot, high = Math.max(1, Math.abs(value) * scaleOf), top = value >= 0 ? zero - high : zero, middle = from + (slot + 0.5) * each, gone = masked(slot);
      if (ghost) rect(from + (slot + 0.16) * each, ghost[slot] >= 0 ? zero - ghost[slot] * ghostScale : zero, each * 0.68, Math.abs(ghost[slot]) * ghostScale, { class: "ghost", rx: 3 });
      rect(from + (slot + 0.16) * each, top, each * 0.68, high, { class: isNow ? "now" : sign(value), rx: 2, opacity: (1 - 0.85 * gone).toFixed(2) });
      if (!small || isNow) {
        const x = small ? Math.max(2 * unit, Math.min(width - 2 * unit, middle)) : middle;
        if (gone > 0.5) text(x, zero - 0.5 * unit, "\u2212\u221e", { class: "middle", "font-size": 1.1 * unit });
        else text(x, value >= 0 ? top - 0.35 * unit : top + high + 1.05 * unit, format(value), { class: `middle${isNow ? " now" : ""}`, "font-size": (isNow ? 1.05 : 0.9) * unit });
        text(x, height - 0.35 * unit, slotLabel(slot), { class: `word middle${isNow ? " now" : ""}`, "font-size": Math.min(1.05, small ? 1.05 : (each / unit) / 4.4) * unit });
      }
    });
  }
  const fit = (values) => { const up = Math.max(0.01, ...values), down = Math.max(0, ...values.map((value) => -value)), factor = (height - 5.2 * unit) / (up + down); return [1.7 * unit + up * factor, factor]; };

  function scale() {
    const [zeroBefore, before] = fit(raw), [zeroAfter, after] = fit(finite), moved = part(share, 0, 0.6), zoomed = part(share, 0.6, 1);
    bars(raw.map((value, slot) => mix(value, finite[slot], moved)), mix(zeroBefore, zeroAfter, zoomed), mix(before, after, zoomed), { ghost: zoomed < 0.5 && numbers.divisor !== 1 ? raw : null, ghostScale: before });
  }
  function mask() {
    const [zero, factor] = fit(finite);
    bars(finite, zero, factor, { masked: (slot) => (scores[slot] === -Infinity ? ease(share) : 0) });
  }
  function normalize() {
    const most = Math.max(...scores), exponentials = Array.from(scores, (score) => Math.exp(score - most)), [zero, factor] = fit(finite), moved = part(share, 0, 0.5), divided = part(share, 0.5, 1);
    const isHard = layer.normalizer === "hard";
    const values = finite.map((value, slot) => (scores[slot] === -Infinity ? 0 : mix(mix(value, isHard ? weights[slot] : exponentials[slot], moved), weights[slot], divided)));
    bars(values, mix(zero, height - 2.2 * unit, moved), mix(factor, height - 4.2 * unit, moved), { format: (value) => (divided > 0.5 ? percent(value) : number(value)) });
    const sum = values.reduce((total, value) => total + value, 0), isRight = argmax(weights) >= weights.length / 2;  // the sum is where no bar is high
    text(isRight ? 0.6 * unit : width - 0.6 * unit, 1.1 * unit, `\u03a3 = ${number(sum)}`, { class: isRight ? "quiet" : "quiet end", "font-size": unit });
  }
  function mixture() {
    const order = Array.from(weights.keys()), limit = Math.max(3, Math.floor((height - 2.6 * unit) / (0.95 * unit)));
    const kept = order.length <= limit ? order : order.sort((a, b) => weights[b] - weights[a]).slice(0, limit).sort((a, b) => a - b);
    const from = 10 * unit, to = width - 0.5 * unit, size = numbers.mixture.length, each = (to - from) / size, high = Math.min(1.9 * unit, (height - 2.6 * unit) / kept.length);
    const most = Math.max(...kept.map((slot) => largest(numbers.values[slot]))), mostMixed = largest(numbers.mixture), faded = part(share, 0, 0.5), shown = part(share, 0.5, 1);
    kept.forEach((slot, index) => {
      const top = index * high, isNow = slot === state.slot, visible = mix(1, Math.max(0.03, weights[slot]), faded);
      text(from - 4.6 * unit, top + high * 0.72, slotLabel(slot), { class: `word end${isNow ? " now" : ""}`, "font-size": Math.min(1.02 * unit, high * 0.85) });
      text(from - 0.6 * unit, top + high * 0.72, percent(weights[slot]), { class: `end${isNow ? " now" : " quiet"}`, "font-size": Math.min(0.92 * unit, high * 0.8) });
      numbers.values[slot].forEach((value, j) => rect(from + j * each, top + 1, each - (each > 3 ? 1 : 0), high - 2, { class: sign(value), opacity: ((Math.abs(value) / most) * visible).toFixed(3) }));
    });
    const top = kept.length * high + 0.4 * unit;
    text(from - 0.6 * unit, top + 1.25 * unit, "c = \u03a3 a v", { class: "formula end", "font-size": 1.1 * unit });
    numbers.mixture.forEach((value, j) => rect(from + j * each, top, each - (each > 3 ? 1 : 0), 1.7 * unit, { class: sign(value), opacity: ((Math.abs(value) / mostMixed) * shown).toFixed(3) }));
    rect(from, top, to - from, 1.7 * unit, { class: "frame" });
  }
  [products, scale, mask, normalize, mixture][at]();
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": sceneNames(layer)[at] }, ...children);
}
