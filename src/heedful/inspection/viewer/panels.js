// Panels of one sentence: words and their links, the steps, the heads, one map, its arithmetic.
// A panel is { node, update(changed) }; `context` holds what they share.

const context = { views: [], view: null, trace: null };
const headOf = () => state.head;
const currentMap = () => context.view.map("cross", state.place === "cross" ? headOf() : alignHead(), state.level, state.reading);
const alignHead = () => context.view.opening.head;
const stepUnit = () => context.view.unitOf("target", state.level, state.step);

function token(unit, side, at, given) {
  const text = brief(unit.text);
  return el("button", { type: "button", class: "token" + (unit.special ? " special" : ""), "data-side": side, "data-unit": at,
    title: plain(unit.text).slice(0, 200), ...given }, el("bdi", { text }));
}
function hoverable(node, side, at) {
  node.addEventListener("pointerenter", () => set({ hover: { side, at } }));
  node.addEventListener("pointerleave", () => set({ hover: null }));
  node.addEventListener("focus", () => set({ hover: { side, at } }));
  node.addEventListener("blur", () => set({ hover: null }));
  return node;
}
function lightHover(root) {
  for (const one of root.querySelectorAll(".lit")) one.classList.remove("lit");
  if (!state.hover) return;
  for (const one of root.querySelectorAll(`[data-side="${state.hover.side}"][data-unit="${state.hover.at}"]`)) one.classList.add("lit");
}

// ------------------------------------------------------------------------------------------------ words and links

function interlinear() {
  const { view } = context, { source, target } = view.sentence;
  const hasMap = Boolean(view.maps.cross) && view.maps.cross.shape[3] === source.pieces.length;
  const rows = {};
  for (const side of ["source", "target"]) {
    rows[side] = view.units[side][state.level].map((unit, at) => hoverable(token(unit, side, at, side === "target"
      ? { onclick: () => set({ step: unit.members[0], hover: null }) } : {}), side, at));
  }
  const row = (side) => el("div", { class: "row", dir: rightToLeft(view.sentence[side].text) ? "rtl" : "ltr",
    role: "group", "aria-label": t(side) }, ...rows[side]);
  const arcs = el("div", { class: "arcs" }), inner = el("div", { class: "inner" }, row("source"), arcs, row("target"));
  const scroller = el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("links") }, inner);
  const said = el("p", { class: "readout", "aria-live": "polite" });
  const copy = button(t("copy"), async () => {
    said.textContent = pharaoh();  // to be selected, where a frame may not use the clipboard
    try { await navigator.clipboard.writeText(pharaoh()); } catch { /* it is shown */ }
  }, { class: "small" });
  const controls = el("div", { class: "controls" },
    toggles(t("level"), [["words", t("words")], ["pieces", t("pieces")]], state.level, (level) => set({ level })),
    hasMap && toggles(t("reading"), [["naive", t("naive")], ["shifted", t("shifted")]], state.reading, (reading) => set({ reading })),
    hasMap && toggles(t("link"), [["soft", t("soft")], ["hard", t("hard")]], state.link, (link) => set({ link })),
    hasMap && el("label", { class: "choice" }, el("span", { text: t("least") }),
      el("input", { type: "range", min: "0", max: "0.6", step: "0.02", value: state.least, oninput: (event) => set({ least: Number(event.target.value) }) })),
    hasMap && copy);
  const node = panel("links", t("links"), controls, scroller, hasMap ? said : note(t("blind")));
  let places = null, drawing = null, marked = -1, colors = null;
  const links = () => {
    const map = currentMap(), found = [];
    for (let y = 0; y < map.rows.length; y++) {
      let best = 0;
      for (let x = 1; x < map.columns.length; x++) if (map.at(y, x) > map.at(y, best)) best = x;
      for (let x = 0; x < map.columns.length; x++) {
        const weight = map.at(y, x);
        if (state.link === "hard" ? x === best && weight >= state.least : weight >= Math.max(0.01, state.least)) found.push([x, y, weight]);
      }
    }
    return found;
  };
  const pharaoh = () => {
    const { rows: down, columns } = currentMap(), count = (units, at) => units.slice(0, at).filter((unit) => !unit.special).length;
    return links().filter(([x, y]) => !columns[x].special && !down[y].special).sort((a, b) => a[0] - b[0] || a[1] - b[1])
      .map(([x, y]) => `${count(columns, x)}-${count(down, y)}`).join(" ");
  };
  let found = null;
  const measure = () => {
    const middle = (one) => one.offsetLeft + one.offsetWidth / 2;
    places = { source: rows.source.map(middle), target: rows.target.map(middle), width: inner.scrollWidth, height: 110 };
    drawing = canvas(places.width, places.height, { "aria-hidden": "true" });
    arcs.replaceChildren(drawing);
  };
  const draw = () => {
    if (!hasMap) return;
    if (!places) measure();
    const pen = drawing.getContext("2d"), active = stepUnit(), hover = state.hover;
    colors ??= ["--line", "--strong"].map((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    const [rgbOf, strong] = colors, key = `${state.level} ${state.reading} ${state.link} ${state.least} ${state.head} ${state.place}`;
    if (found?.key !== key) found = { key, links: links() };
    pen.clearRect(0, 0, places.width, places.height);
    for (const [x, y, weight] of found.links) {
      const chosen = hover ? (hover.side === "source" ? x === hover.at : y === hover.at) : y === active;
      pen.strokeStyle = `rgba(${chosen ? strong : rgbOf},${chosen ? Math.min(1, 0.25 + weight) : 0.08 + 0.55 * weight})`;
      pen.lineWidth = 1 + 5 * weight;
      pen.beginPath();
      const [from, to] = [places.source[x], places.target[y]], deep = places.height;
      pen.moveTo(from, 2);
      pen.bezierCurveTo(from, deep * 0.5, to, deep * 0.5, to, deep - 2);
      pen.stroke();
    }
    said.textContent = describeWeights(hover);
  };
  const describeWeights = (hover) => {
    const map = currentMap(), side = hover?.side ?? "target", at = hover?.at ?? stepUnit();
    const many = side === "target" ? map.columns.map((unit, x) => [unit, map.at(at, x)]) : map.rows.map((unit, y) => [unit, map.at(y, at)]);
    const name = (side === "target" ? map.rows : map.columns)[at];
    if (!name) return "";
    const best = many.filter(([, weight]) => weight >= 0.02).sort((a, b) => b[1] - a[1]).slice(0, 4);
    return `${brief(name.text)} ${side === "target" ? "\u2190" : "\u2192"} ${best.map(([unit, weight]) => `${brief(unit.text)} ${number(weight)}`).join("  ")}`;
  };
  return {
    node,
    resize() { places = null; draw(); },
    update(changed) {
      const now = stepUnit();
      if (now !== marked) {
        rows.target[marked]?.removeAttribute("aria-current");
        rows.target[now]?.setAttribute("aria-current", "step");
        marked = now;
      }
      if (changed.has("hover")) lightHover(node);
      if (changed.has("step")) keepSeen(scroller, rows.target[stepUnit()]);
      draw();
    },
  };
}
function keepSeen(scroller, node) {
  if (!node) return;
  const left = node.offsetLeft, right = left + node.offsetWidth;
  if (left < scroller.scrollLeft || right > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = left - scroller.clientWidth / 2;
}

// ---------------------------------------------------------------------------------------------------------- steps

let playing = null;
function play(on) {
  if (playing) clearInterval(playing);
  playing = null;
  if (on) playing = setInterval(() => {
    const last = context.view.sentence.steps.length - 1;
    if (state.step >= last) play(false);
    else set({ step: state.step + 1, hover: null });
  }, 700);
  for (const one of document.querySelectorAll("[data-play]")) one.textContent = playing ? "\u2016" : "\u25b6";
}
const move = (by) => set({ hover: null, step: Math.max(0, Math.min(context.view.sentence.steps.length - 1, state.step + by)) });

const continuesCharacter = (pieces, at) => isNumber(pieces[at].letter) && pieces[at].letter === pieces[at - 1]?.letter;  // one more byte of a character
function scrubber() {
  const { view } = context, { steps, source, target } = view.sentence;
  const hasMap = Boolean(view.maps.cross) && view.maps.cross.shape[3] === source.pieces.length;
  const slider = el("input", { type: "range", min: "0", max: String(steps.length - 1), value: state.step, "aria-label": t("step"),
    oninput: (event) => set({ step: Number(event.target.value) }) });
  const controls = el("div", { class: "controls" },
    button("\u00ab", () => set({ step: 0 }), { "aria-label": t("first") }), button("\u2039", () => move(-1), { "aria-label": t("back") }),
    button(playing ? "\u2016" : "\u25b6", () => play(!playing), { "aria-label": t("play"), "data-play": true }), button("\u203a", () => move(1), { "aria-label": t("next") }), slider);
  const answer = el("div", { class: "answer", dir: rightToLeft(target.text) ? "rtl" : "ltr" });
  const pieces = target.pieces.map((piece, at) => el("span", { class: "said", onclick: () => set({ step: at }) }, el("bdi", { text: continuesCharacter(target.pieces, at) ? "" : piece.text.trim() ? brief(piece.text) : " " })));
  answer.append(...pieces);
  const facts = el("dl", { class: "facts" });
  const cells = ["p", "logp", "undecided", "total"].map((key) => { const dd = el("dd"); facts.append(el("div", null, el("dt", { text: t(key) }), dd)); return dd; });
  const most = steps.reduce((top, step) => Math.max(top, step.top.length), 0);
  const bars = Array.from({ length: most + 1 }, () => {
    const name = el("bdi", { class: "name" }), bar = el("span", { class: "bar" }), value = el("span", { class: "value" });
    return { row: el("li", null, name, el("span", { class: "track" }, bar), value), name, bar, value };
  });
  const list = el("ol", { class: "bars", "aria-label": t("distribution") }, ...bars.map((one) => one.row));
  const columns = hasMap ? view.units.source[state.level] : [];
  const tints = columns.map((unit, at) => {
    const text = el("span", { class: "tint" }, el("bdi", { text: brief(unit.text) })), level = el("span", { class: "level" });
    return { node: hoverable(el("span", { class: "cover", "data-side": "source", "data-unit": at }, text, el("span", { class: "well" }, level)), "source", at), text, level };
  });
  const cover = hasMap && el("div", { class: "covers", dir: rightToLeft(source.text) ? "rtl" : "ltr", role: "group", "aria-label": t("coverage") }, ...tints.map((one) => one.node));
  const node = panel("steps", t("steps"), controls, answer, el("div", { class: "two" }, el("div", null, facts, list), el("div", null,
    hasMap ? el("h3", { text: t("looking") }) : null, cover || note(t("blind")), hasMap ? note(t("coverage-note")) : null)));
  const running = [];
  let before = -1, ended = null;
  const put = (one, name, value) => { if (one[name] !== value) { one[name] = value; one.style.setProperty(name, value); } };
  steps.reduce((sum, step) => { running.push(sum + step.logp); return sum + step.logp; }, 0);
  const covered = () => {
    const key = `cover ${headOf()} ${state.level} ${state.reading} ${state.place}`;
    if (view.cache.has(key)) return view.cache.get(key);
    const raw = view.raw("cross", state.place === "cross" ? headOf() : alignHead()), found = [];
    const sums = new Float32Array(columns.length);
    let counted = 0;
    for (let step = 0; step < steps.length; step++) {
      const from = state.reading === "shifted" ? Math.min(step + 1, steps.length - 1) : step;
      const look = (at) => columns.map((unit) => unit.members.reduce((sum, s) => sum + raw.numbers[at * raw.columns + s], 0));
      const row = look(from);
      for (; counted <= from; counted++) look(counted).forEach((one, at) => { sums[at] += one; });  // every step once, whichever way it is read
      found.push({ row, sums: Float32Array.from(sums) });
    }
    view.cache.set(key, found);
    return found;
  };
  return {
    node,
    update(changed) {
      const step = steps[state.step];
      if (!step) return;
      slider.value = state.step;
      slider.setAttribute("aria-valuetext", `${state.step + 1} / ${steps.length}: ${brief(target.pieces[state.step].text)}`);
      const [low, high] = before < 0 ? [0, pieces.length - 1] : [Math.min(before, state.step), Math.max(before, state.step)];
      for (let at = low; at <= high; at++) pieces[at].className = at === state.step ? "said now" : at < state.step ? "said" : "said later";
      before = state.step;
      const p = Math.exp(step.logp);
      [percent(p), number(step.logp, 3), step.entropy === undefined || step.entropy === null ? "\u2013" : number(Math.exp(step.entropy), 1), number(running[state.step], 2)]
        .forEach((text, at) => { cells[at].textContent = text; });
      const own = target.pieces[state.step].text, top = step.top.map(([text, logp]) => [text, Math.exp(logp)]);
      let said = top.findIndex(([text], at) => text === own && Math.abs(step.top[at][1] - step.logp) < 1e-4);
      if (said < 0) said = step.top.findIndex(([, logp]) => Math.abs(logp - step.logp) < 1e-5);
      if (said < 0) said = top.push([own, p]) - 1;
      bars.forEach((one, at) => {
        one.row.hidden = at >= top.length;
        if (at >= top.length) return;
        const [text, share] = top[at], chosen = at === said;
        one.name.textContent = brief(text, 18);
        one.bar.style.setProperty("transform", `scaleX(${share.toFixed(4)})`);
        one.value.textContent = percent(share);
        one.row.dataset.p = share.toFixed(6);
        one.row.className = chosen ? (step.forced ? "forced" : "chosen") : "";
      });
      if (hasMap) {
        const { row, sums } = covered()[state.step], last = state.step === steps.length - 1, over = ended;
        ended = last;
        tints.forEach((one, at) => {
          put(one.text, "background-color", rgb(row[at]));
          put(one.text, "color", inkOn(row[at]));
          put(one.level, "transform", `scaleX(${Math.min(1, sums[at]).toFixed(2)})`);
          if (last || over) one.node.classList.toggle("dropped", last && sums[at] < 0.2 && !columns[at].special);
        });
      }
      if (changed.has("hover")) lightHover(node);
    },
  };
}

// ---------------------------------------------------------------------------------------------------------- heads

const SORTS = { entropy: (facts) => facts.entropy, diagonality: (facts) => -facts.diagonality, importance: (facts) => -(facts.importance ?? -Infinity) };
function sortedHeads() {
  const heads = context.view.heads(state.place);
  if (state.sort === "layer") return heads;
  return [...heads].sort((a, b) => SORTS[state.sort](context.view.facts(state.place, a)) - SORTS[state.sort](context.view.facts(state.place, b)));
}
function headsGrid() {
  const { view } = context;
  if (!view.places.length) return { node: panel("heads", t("heads"), note(t("no-heads"))), update() {} };
  const layers = view.maps[state.place].shape[1];
  const grid = el("div", { class: "grid" + (state.sort === "layer" ? " layered" : ""), style: { "--heads": String(layers) }, role: "group", "aria-label": t("heads") });
  const size = 64;
  const buttons = sortedHeads().map((head) => {
    const facts = view.facts(state.place, head), raw = view.raw(state.place, head);
    const small = canvas(size, size, { "aria-hidden": "true" });
    stretch(small, raw, size, size);
    const shown = state.sort === "layer" ? facts.importance : state.sort === "importance" ? facts.importance : facts[state.sort];
    const value = shown === null ? "" : number(shown, 2), name = formatters.head(head), label = facts.label ? t("head-" + facts.label) : "";
    const one = button("", () => set({ head: JSON.stringify(state.head) === JSON.stringify(head) ? null : head }), {
      class: "head", "data-head": name, "aria-label": [t("head"), name, value, label].join(" "), title: label });
    one.append(small, el("span", { class: "name" }, el("b", { text: name }), " ", el("span", { text: value })), " ", el("span", { class: "mark", text: label || "\u00a0" }));
    return one;
  });
  grid.append(...buttons);
  const controls = el("div", { class: "controls" },
    toggles(t("place"), view.places.map((place) => [place, t(place)]), state.place, (place) => set({ place, head: place === "cross" ? alignHead() : null, cell: null })),
    choice(t("sort"), [["layer", t("layer")], ["entropy", t("entropy")], ["diagonality", t("diagonality")],
      ...(view.sentence.importance?.[state.place] ? [["importance", t("importance")]] : [])], state.sort, (sort) => set({ sort })),
    button(t("mean"), () => set({ head: null }), { "data-mean": true }));
  const node = panel("heads", t("heads"), controls, grid, note(t(view.sentence.importance?.[state.place] ? "heads-note" : "heads-note-plain")));
  return {
    node,
    update() {
      const name = formatters.head(state.head);
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.head === name)));
      node.querySelector("[data-mean]").setAttribute("aria-pressed", String(!state.head));
    },
  };
}

// ------------------------------------------------------------------------------------------------------- one map

// The row that aligns a piece: of the step that produces it, or (shifted) of the one that reads it.
const alignedRow = (row, rows) => Math.min(row + (state.place === "cross" && state.reading === "shifted" ? 1 : 0), rows - 1);

function bigMap() {
  const { view } = context;
  if (!view.places.length) return { node: panel("map", t("map"), note(t("no-heads"))), update() {} };
  const [down, across] = view.sides(state.place);
  const map = view.map(state.place, state.head, state.level, state.reading);
  const wide = map.columns.length, high = map.rows.length;
  const grown = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15 || 1;  // larger for a projector
  const cell = Math.round(grown * Math.max(12, Math.min(30, Math.floor(Math.min(520 / wide, 620 / high)))));
  const sheet = canvas(cell * wide, cell * high, { "aria-hidden": "true" });
  stretch(sheet, map, cell * wide, cell * high);
  const marker = el("div", { class: "marker" }), chosen = el("div", { class: "marker cell" });
  const board = el("div", { class: "board", tabindex: "0", role: "application", "aria-label": t("map-label"), "aria-describedby": "map-said" }, sheet, marker, chosen);
  const label = (unit, side, at) => hoverable(el("span", { class: "label", "data-side": side, "data-unit": at, title: plain(unit.text).slice(0, 200) }, el("bdi", { text: brief(unit.text, 16) })), side, at);
  const top = el("div", { class: "top", style: { "--cell": `${cell}px` } }, ...map.columns.map((unit, at) => label(unit, across, at)));
  const left = el("div", { class: "left", style: { "--cell": `${cell}px` } }, ...map.rows.map((unit, at) => label(unit, down, at)));
  const said = el("p", { class: "readout", id: "map-said", "aria-live": "polite" });
  const at = (event) => {
    const box = sheet.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / cell), Math.floor((event.clientX - box.left) / cell)];
  };
  const inside = ([y, x]) => y >= 0 && x >= 0 && y < high && x < wide;
  const aligned = (row) => alignedRow(row, view.raw(state.place, state.head).rows);
  const toPieces = ([y, x]) => {  // of words, the two pieces that look at each other most
    const raw = view.raw(state.place, state.head);
    let best = [map.rows[y].members[0], map.columns[x].members[0]], most = -1;
    for (const row of map.rows[y].members) for (const column of map.columns[x].members) {
      const weight = raw.numbers[aligned(row) * raw.columns + column];
      if (weight > most) [best, most] = [[row, column], weight];
    }
    return best;
  };
  const ofPieces = ([row, column]) => [map.rows.findIndex((unit) => unit.members.includes(row)), map.columns.findIndex((unit) => unit.members.includes(column))];
  const pick = (place) => set({ cell: toPieces(place), ...(down === "target" ? { step: map.rows[place[0]].members[0] } : {}) });
  board.addEventListener("pointermove", (event) => {
    const [y, x] = at(event);
    if (!inside([y, x])) return;
    said.textContent = `${brief(map.rows[y].text)} \u2192 ${brief(map.columns[x].text)}: ${number(map.at(y, x), 3)}`;
    set({ hover: { side: across, at: x } });
  });
  board.addEventListener("pointerleave", () => set({ hover: null }));
  board.addEventListener("click", (event) => { const place = at(event); if (inside(place)) pick(place); });
  board.addEventListener("keydown", (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const [y, x] = state.cell ? ofPieces(state.cell) : [0, -by[1]];
    pick([Math.max(0, Math.min(high - 1, y + by[0])), Math.max(0, Math.min(wide - 1, x + by[1]))]);
  });
  const title = `${t(state.place)}, ${state.head ? `${t("head")} ${formatters.head(state.head)}` : t("mean")}`;
  const node = panel("map", t("map"), el("p", { class: "quiet" }, el("span", { text: title }), " ",
    button("SVG", () => save("map.svg", new Blob([figureText(map)], { type: "image/svg+xml" })), { class: "small" }), " ",
    button("PNG", () => figurePng(map), { class: "small" })),
  el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": title }, el("div", { class: "sheet" }, el("span"), top, left, board)), said);
  const put = (one, y, x, h, w) => { for (const [key, value] of [["top", y], ["left", x], ["height", h], ["width", w]]) one.style.setProperty(key, `${value * cell}px`); };
  return {
    node,
    update(changed) {
      const row = down === "target" ? view.unitOf("target", state.level, state.step) : state.cell ? ofPieces(state.cell)[0] : 0;
      put(marker, row, 0, 1, wide);
      chosen.hidden = !state.cell;
      if (state.cell) {
        const [y, x] = ofPieces(state.cell);
        put(chosen, y, x, 1, 1);
        if (!changed.has("hover") && inside([y, x])) said.textContent = `${brief(map.rows[y].text)} \u2192 ${brief(map.columns[x].text)}: ${number(map.at(y, x), 3)}`;
      }
      if (changed.has("hover")) lightHover(node);
    },
  };
}

const escaped = (text) => plain(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[one]));
function figureText(map) {
  const cell = 26, side = 20 + 8.2 * Math.max(...map.rows.map((unit) => brief(unit.text).length)), above = 30 + 6.2 * Math.max(...map.columns.map((unit) => brief(unit.text).length));
  const wide = side + cell * map.columns.length + above * 0.75, high = above + cell * map.rows.length + 12, parts = [];
  map.columns.forEach((unit, x) => { const at = side + cell * (x + 0.5); parts.push(`<text x="${at}" y="${above - 8}" transform="rotate(-45 ${at} ${above - 8})">${escaped(brief(unit.text))}</text>`); });
  map.rows.forEach((unit, y) => {
    parts.push(`<text x="${side - 8}" y="${above + cell * y + 18}" text-anchor="end">${escaped(brief(unit.text))}</text>`);
    map.columns.forEach((_, x) => parts.push(`<rect x="${side + cell * x}" y="${above + cell * y}" width="${cell - 1}" height="${cell - 1}" fill="${rgb(map.at(y, x))}"/>`));
  });
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim(), paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim();
  return `<svg xmlns="${NS}" width="${wide}" height="${high}" viewBox="0 0 ${wide} ${high}" font-family="Helvetica, Arial, sans-serif" font-size="14" fill="${ink}"><rect width="${wide}" height="${high}" fill="${paper}"/>${parts.join("")}</svg>\n`;
}
function figurePng(map) {
  const image = new Image(), text = figureText(map);
  image.addEventListener("load", () => {
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [image.width * 2, image.height * 2];
    const pen = sheet.getContext("2d");
    pen.scale(2, 2);
    pen.drawImage(image, 0, 0);
    sheet.toBlob((blob) => save("map.png", blob), "image/png");
  });
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
}

// ----------------------------------------------------------------------------------------------------- arithmetic

const FORMULAS = {
  dot: "e = q \u00b7 k", scaled_dot: "e = q \u00b7 k / \u221ad", bilinear: "e = q \u00b7 W k", additive: "e = v \u00b7 tanh(W q + U k + b)",
  location: "e = (W q)\u1d62", content_location: "e = v \u00b7 tanh(W q + U k + F f + b)",
};
function strip(name, numbers, most) {
  const wide = Math.min(512, Math.max(160, numbers.length * 4)), node = canvas(wide, 16, { role: "img", "aria-label": `${name}: ${numbers.length}` });
  const pen = node.getContext("2d"), each = wide / numbers.length;
  const style = getComputedStyle(document.documentElement), plus = style.getPropertyValue("--plus").trim(), minus = style.getPropertyValue("--minus").trim();
  for (let j = 0; j < numbers.length; j++) {
    pen.fillStyle = `rgba(${numbers[j] >= 0 ? plus : minus},${Math.min(1, Math.abs(numbers[j]) / (most || 1)).toFixed(3)})`;
    pen.fillRect(j * each, 0, Math.ceil(each), 16);
  }
  const first = Array.from(numbers.slice(0, 4), (one) => number(one)).join("  ");
  return el("tr", null, el("th", { scope: "row", text: name }), el("td", null, node), el("td", { class: "numbers", text: first + (numbers.length > 4 ? " \u2026" : "") }));
}
function arithmetic() {
  const body = el("div", { class: "sums" }), node = panel("arithmetic", t("arithmetic"), body);
  const { view } = context;
  const draw = () => {
    const head = state.head ?? (state.place === "cross" ? alignHead() : null) ?? (view.places.length ? [0, 0] : null);
    if (!head) return body.replaceChildren(note(t("no-heads")));
    const raw = view.raw(state.place, head), [down, across] = view.sides(state.place);
    const names = (side, count) => (count === view.pieces[side].length ? view.pieces[side].map((one) => brief(one.text, 16)) : ["\u2211"]);
    const rows = names(down, raw.rows), columns = names(across, raw.columns);
    let [said, column] = state.cell ?? [down === "target" ? Math.min(state.step, raw.rows - 1) : 0, -1];
    said = Math.min(said, raw.rows - 1);
    const row = alignedRow(said, raw.rows);
    const weights = raw.numbers.subarray(row * raw.columns, (row + 1) * raw.columns);
    if (column < 0 || column >= raw.columns) column = weights.reduce((best, one, at) => (one > weights[best] ? at : best), 0);
    const heading = el("p", null, el("b", { text: `${rows[said]} \u2192 ${columns[column]}` }),
      ` \u2014 ${t(state.place)}, ${t("head")} ${formatters.head(head)}${down === "target" ? `, ${t("step")} ${row + 1}` : ""}`);
    const layer = view.vectors[state.place]?.[head[0]];
    if (!layer) {
      body.replaceChildren(heading, table(columns, weights, null, column), note(t("no-vectors", state.place)));
      return undefined;
    }
    const parts = scoreParts(layer, head[1], row, column);
    const most = Math.max(...parts.q.map(Math.abs), ...parts.k.map(Math.abs)), top = Math.max(...parts.products.map(Math.abs));
    const additive = Boolean(layer.energy);
    const strips = el("table", { class: "strips" }, el("tbody", null, strip(additive ? "W q" : "q", parts.q, most),
      strip({ additive: "U k + b", content_location: "U k + b", bilinear: "W k", location: "w\u1d62" }[layer.score] ?? "k", parts.k, most),
      strip(additive ? "v \u2299 tanh" : "q \u2299 k", parts.products, top)));
    const sum = `\u03a3 = ${number(parts.sum, 3)}` + (parts.divisor !== 1 ? `,  / \u221a${parts.width} = ${number(parts.score, 3)}` : "");
    const context_ = new Float32Array(layer.values.shape[2]), wide = context_.length, [vh, vrows] = layer.values.shape, h = Math.min(head[1], vh - 1);
    weights.forEach((weight, s) => { for (let j = 0; j < wide; j++) context_[j] += weight * layer.values.numbers[(h * vrows + s) * wide + j]; });
    const value = layer.values.numbers.subarray((h * vrows + column) * wide, (h * vrows + column + 1) * wide);
    const largest = Math.max(...value.map(Math.abs), ...context_.map(Math.abs));
    body.replaceChildren(heading, el("p", { class: "formula", text: FORMULAS[layer.score] }), strips, el("p", { class: "formula", "data-score": parts.score.toFixed(4), text: sum }),
      el("p", { class: "formula", text: layer.normalizer === "hard" ? "a = argmax e" : "a\u1d62 = exp(e\u1d62) / \u03a3 exp(e\u2c7c)" }), table(columns, weights, parts.row, column),
      el("p", { class: "formula", text: "c = \u03a3 a\u1d62 v\u1d62" }), el("table", { class: "strips" }, el("tbody", null, strip("v", value, largest), strip("c", context_, largest))));
    return undefined;
  };
  const table = (columns, weights, scores, column) => {
    const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a]), shown = order.slice(0, 8);
    if (!shown.includes(column)) shown.push(column);
    const top = scores ? Math.max(...scores) : 0;
    return el("table", { class: "softmax" }, el("thead", null, el("tr", null, el("th", { scope: "col", text: t("slot") }), scores && el("th", { scope: "col", text: "e" }),
      scores && el("th", { scope: "col", text: "exp(e \u2212 max)" }), el("th", { scope: "col", text: "a" }), el("td"))),
    el("tbody", null, ...shown.map((at) => el("tr", { class: at === column ? "now" : "" }, el("th", { scope: "row" }, el("bdi", { text: columns[at] })), scores && el("td", { text: number(scores[at], 3) }),
      scores && el("td", { text: number(Math.exp(scores[at] - top), 3) }), el("td", { "data-weight": weights[at].toFixed(4), text: number(weights[at], 3) }),
      el("td", { class: "track" }, el("span", { class: "bar", style: { transform: `scaleX(${weights[at].toFixed(3)})` } }))))));
  };
  let shown = false, stale = true;
  const watcher = new IntersectionObserver((entries) => { shown = entries.some((one) => one.isIntersecting); if (shown && stale) refresh(); });
  watcher.observe(node);
  const refresh = () => { stale = false; view.arithmetic(state.place).then(draw); };
  return { node, update(changed) { if (changed.size === 1 && changed.has("hover")) return; stale = true; if (shown) refresh(); } };
}
