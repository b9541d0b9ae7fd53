// The stage: both sentences, links from the source to the word that is being said, and the scrubber.

const SPECTROGRAM_RATIO = 3;

const ICONS = { play: "M2 1l7 4-7 4z", pause: "M2 1h2v8H2zM6 1h2v8H6z", back: "M7 1L2 5l5 4z", next: "M3 1l5 4-5 4z" };
const icon = (name) => svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
const iconButton = (name, label, act, attributes) => { const node = button("", act, { class: "icon", "aria-label": label, title: label, ...attributes }); node.append(icon(name)); return node; };
const quoted = (text) => (state.lang === "en" ? `\u201c${text}\u201d` : `\u00ab${text}\u00bb`);
const numRows = () => context.recording.rowPieces(state.place).length;
const move = (by) => set({ hover: null, step: Math.max(0, Math.min(numRows() - 1, state.step + by)) });

let playing = null;
function play(on) {
  clearInterval(playing);
  playing = null;
  if (on) {
    if (state.step >= numRows() - 1) set({ step: 0 });
    playing = setInterval(() => { if (state.step >= numRows() - 1) play(false); else move(1); }, 900);
  }
  for (const node of document.querySelectorAll("[data-play]")) {
    node.replaceChildren(icon(playing ? "pause" : "play"));
    node.setAttribute("aria-label", t(playing ? "pause" : "play"));
  }
}

// A range input whose track is filled up to the thumb.
function slider(label, min, max, step, value, act, attributes) {
  const fillTo = (node) => node.style.setProperty("--filled", `${(100 * (node.value - min)) / (max - min || 1)}%`);
  const node = el("input", { type: "range", min, max, step, "aria-label": label, ...attributes, oninput: (event) => { fillTo(event.target); act(Number(event.target.value)); } });
  node.value = value;
  fillTo(node);
  node.show = (shown) => { if (Number(node.value) !== shown) node.value = shown; fillTo(node); };
  return node;
}

const narrowPage = matchMedia("(max-width: 860px)"), isNarrow = () => narrowPage.matches;

function stage() {
  const { recording } = context, { place } = state, rows = recording.rowPieces(place), columns = recording.columnPieces(place);
  const hasLinks = Boolean(recording.maps[place]) && (place !== "cross" || recording.attendsToWords);
  const capsules = (pieces, makePiece) => groupWords(pieces).map((group) => el("span", { class: "word" + (group.special ? " special" : "") }, ...group.members.map((at) => makePiece(at))));
  const piece = (side, at, act) => {
    const pieces = side === "source" ? columns : rows, bar = el("i"), share = side === "source" ? el("span", { class: "share", dir: "ltr", "aria-hidden": "true" }) : null;
    const node = button("", act, { class: "piece", title: plain(pieces[at].text.trim()).slice(0, 200), tabindex: "-1", "data-side": side, "data-at": at,
      onpointerenter: () => set({ hover: { side, at } }), onpointerleave: () => set({ hover: null }), onblur: () => state.hover && set({ hover: null }) });
    const label = el("bdi", { text: pieceLabel(pieces, at) });
    node.append(label, bar, share ?? "");
    return { node, bar, share, label, text: label.textContent, title: node.title };
  };
  const source = columns.map((_, at) => piece("source", at, () => (state.quiz === "look" ? answerQuiz(at) : set({ slot: at, ...(isGraph && { step: at }) }))));
  const target = rows.map((_, at) => piece("target", at, () => !state.quiz && set({ step: at })));
  const { sentence } = recording, texts = { source: place === "decoder" ? sentence.target : sentence.source, target: place === "encoder" ? sentence.source : sentence.target };
  // A picture is shown with its slots in their places; slots that the step does not look at are veiled.
  const isPicture = Boolean(texts.source.picture), hasSlots = columns === recording.pieces.source;
  // In the encoder, links are the edges of a graph: those of a node have its weights.
  const isGraph = texts.source.edges && place === "encoder";
  const picture = () => {
    const { picture: png, text } = texts.source, image = el("img", { src: `data:image/png;base64,${png}`, alt: plain(text) });
    const frame = el("div", { class: `words source picture${isGraph ? " graph" : ""}`, role: "group", "aria-label": t("source") }, image, ...(hasSlots ? source : []).map(({ node: element }) => element));
    const fit = () => frame.style.setProperty("--ratio", String(columns[0]?.interval ? SPECTROGRAM_RATIO : image.naturalWidth / image.naturalHeight || 1));
    image.addEventListener("load", () => { fit(); places = null; set({ loaded: (state.loaded ?? 0) + 1 }); });
    if (hasSlots) source.forEach(({ node: element, label }, at) => {
      const [left, top, right, bottom] = columns[at].box;
      for (const [name, share] of Object.entries({ left, top, width: right - left, height: bottom - top })) element.style.setProperty(name, `${100 * share}%`);
      label.hidden = true;
      element.setAttribute("aria-label", `${t("patch")} ${plain(columns[at].text.trim())}`);
    });
    return frame;
  };
  // Of a recording, the part can be heard that the step looked at.
  const player = () => texts.source.sound && hasSlots && button(t("listen"), () => {
    const map = currentMap(), from = currentRow() * map.columns, weights = map.numbers.slice(from, from + map.columns);
    playPart(texts.source.sound, ...lookedAt(weights, columns));
  }, { class: "listen", "data-key": "listen" });
  const line = (side, pieces, nodes) => el("div", { class: `words ${side}`, role: "group", "aria-label": t(side), lang: texts[side].language || null, dir: rightToLeft(texts[side].text) ? "rtl" : "ltr" },
    ...capsules(pieces, (at) => nodes[at].node));
  const drawing = el("div", { class: "links", "aria-hidden": "true" });
  const board = el("div", { class: isPicture ? "board with-picture" : "board" }, drawing, isPicture ? picture() : null, player(), isPicture ? null : columns.length ? line("source", columns, source) : null, line("target", rows, target));
  const longest = Math.max(rows.length, isPicture ? 0 : columns.length);
  board.dataset.size = longest > 34 ? "small" : longest > 17 ? "medium" : "large";
  const scroller = el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("links") }, board);
  const readout = el("p", { class: "readout", "aria-live": "polite" }), tag = el("span", { class: "tag" }), heading = el("h2", { text: t("question-stage") });
  const quizBar = el("div", { class: "quiz-bar", role: "status", hidden: !state.quiz });
  const head = el("div", { class: "panel-head" }, heading, tag, readout, hasLinks ? linkMenu() : null);
  const scrub = slider(t("step"), 0, Math.max(1, rows.length - 1), 1, state.step, (step) => set({ step, hover: null }), { "data-key": "step" });
  const count = el("small", { class: "count" });
  const answer = el("p", { class: "answer", lang: sentence.target.language || null }, el("bdi"));
  const foot = el("div", { class: "foot" }, iconButton("back", t("back"), () => move(-1), { "data-key": "back" }), iconButton(playing ? "pause" : "play", t(playing ? "pause" : "play"), () => play(!playing), { class: "icon main", "data-play": true, "data-key": "play" }),
    iconButton("next", t("next-step"), () => move(1), { "data-key": "next" }), scrub, count, answer);
  const node = el("section", { class: "stage panel", id: "stage", "aria-label": t("question-stage") }, head, quizBar, scroller, hasLinks ? null : el("p", { class: "remark", text: t(recording.places.length ? "blind" : "no-heads") }), foot);
  // Tab reaches the sentence once; arrow keys go on from there.
  for (const [side, nodes] of [["source", source], ["target", target]]) nodes.forEach(({ node: element }, at) => element.addEventListener("keydown", (event) => {
    const inPicture = side === "source" && isPicture, forward = !inPicture && rightToLeft(texts[side].text) ? -1 : 1, perLine = (inPicture && recording.grid?.columns) || 0;
    const by = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: perLine, ArrowUp: -perLine }[event.key];
    if (!by || state.slide !== null) return;
    event.preventDefault();
    event.stopPropagation();
    if (!nodes[at + by]) return;
    nodes[at + by].node.focus();
    set(state.quiz ? {} : side === "source" ? { slot: at + by } : { step: at + by });
  }));
  let places = null, sheet = null, colors = null, covered = null;
  const measure = () => {
    const box = board.getBoundingClientRect(), across = isNarrow();
    const anchor = (nodes, end) => nodes.map(({ node: element }) => {
      const at = element.getBoundingClientRect();
      if (!end && isPicture) return [at.left + at.width / 2 - box.left, at.top + at.height / 2 - box.top];
      return across ? [(end ? at.left - 2 : at.right + 2) - box.left, at.top + at.height / 2 - box.top] : [at.left + at.width / 2 - box.left, (end ? at.top - 1 : at.bottom + 1) - box.top];
    });
    places = { source: anchor(source, false), target: anchor(target, true), across };
    sheet = canvas(Math.max(board.scrollWidth, box.width), box.height);
    drawing.replaceChildren(sheet);
    colors = ["--data", "--accent"].map(cssColor);
  };
  const drawLinks = () => {
    const pen = sheet.getContext("2d"), unit = rootSize() / 14, { hover } = state, hides = hiddenFrom();
    pen.clearRect(0, 0, sheet.width, sheet.height);
    if (!hasLinks) return;
    const map = currentMap(), row = hover?.side === "target" ? hover.at : state.step, column = hover?.side === "source" ? hover.at : -1;
    pen.lineCap = "round";
    if (whatIf?.isSilenced(place, state.head)) pen.setLineDash([4 * unit, 7 * unit]);
    const stroke = (at, slot, weight, isNow) => {
      const [x1, y1] = places.source[slot], [x2, y2] = (isGraph ? places.source : places.target)[at], bend = places.across ? (x2 - x1) * 0.45 : (y2 - y1) * 0.5;
      pen.strokeStyle = colors[isNow ? 1 : 0];
      pen.globalAlpha = isNow ? Math.min(1, 0.3 + 0.65 * weight) : state.theme === "projector" ? 0.35 : 0.22;
      pen.lineWidth = (isNow ? 1 + 8 * weight : 0.8 + 3.2 * weight) * unit;
      pen.beginPath();
      pen.moveTo(x1, y1);
      if (isGraph) pen.lineTo(x2, y2);
      else if (places.across) pen.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      else pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
      pen.stroke();
    };
    for (const isNow of [false, true]) for (let at = 0; at < Math.min(target.length, hides); at++) {
      const weights = map.row(currentRow(at)), best = state.link === "hard" ? argmax(weights) : -1;
      for (let slot = 0; slot < weights.length; slot++) {
        const isSelected = column >= 0 ? slot === column : at === row;
        if (isSelected !== isNow || (isGraph && !isNow) || (best >= 0 && slot !== best)) continue;
        if (weights[slot] > (isNow ? 0.02 : Math.max(0.01, state.threshold))) stroke(at, slot, weights[slot], isNow);
      }
    }
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  };
  // Coverage: how much attention each source piece has received up to each step; every step counts once.
  const coverage = () => {
    const key = `${state.place} ${state.head}`;
    if (covered?.key === key) return covered.sums;
    const map = currentMap(), sums = [new Float32Array(map.columns)];
    for (let step = 0; step < map.rows; step++) sums.push(sums[step].map((sum, slot) => sum + map.at(step, slot)));
    covered = { key, sums };
    return sums;
  };
  // The slots whose weight is written above them: the largest ones, as far as there is room beside each other.
  const labeledSlots = (weights) => {
    const room = places.across ? 0 : 2.6 * rootSize(), slots = [...weights.keys()].filter((slot) => weights[slot] >= 0.03).sort((a, b) => weights[b] - weights[a]), labeled = new Set();
    for (const slot of slots) if ([...labeled].every((other) => Math.hypot(places.source[slot][0] - places.source[other][0], isGraph && places.source[slot][1] - places.source[other][1]) >= room)) labeled.add(slot);
    return labeled;
  };
  const put = (element, name, value) => { if (element[name] !== value) { element[name] = value; element.style.setProperty(name, value); } };
  const paint = () => {
    const row = state.hover?.side === "target" ? state.hover.at : state.step, hides = hiddenFrom(), isHidden = row >= hides;
    const weights = hasLinks ? currentMap().row(currentRow(row)) : null, sums = hasLinks ? coverage()[Math.min(currentRow(state.step), numRows() - 1) + (isHidden ? 0 : 1)] : null;
    const most = weights ? Math.max(...weights) : 0;
    const isLast = state.step === rows.length - 1 && !state.quiz && place === "cross", labeled = weights && !isHidden ? labeledSlots(weights) : new Set();
    source.forEach(({ node: element, bar, share }, at) => {
      const weight = weights && !isHidden ? weights[at] : 0, isTinted = weight > 0.015;
      if (isPicture) put(element, "--veil", weights && !isHidden && most > 0 ? (1 - weight / most).toFixed(3) : "0");
      put(element, "background-color", isTinted && !isPicture ? rgb(weight) : "");
      put(element, "color", isTinted && !isPicture ? inkOn(weight) : "");
      put(bar, "--part", sums ? Math.min(1, sums[at]).toFixed(2) : "0");
      const text = labeled.has(at) && (isGraph || !isPicture) ? percent(weight) : "";
      if (share.textContent !== text) share.textContent = text;
      element.classList.toggle("lit", state.hover ? state.hover.side === "source" && state.hover.at === at : hasLinks && !state.quiz && (isGraph ? row : state.slot) === at);
      element.classList.toggle("dropped", Boolean(sums) && isLast && !isPicture && sums[at] < 0.2 && !isSpecial(columns[at]));
      element.tabIndex = at === state.slot ? 0 : -1;
    });
    target.forEach(({ node: element, bar, label, text, title }, at) => {
      const isNow = at === state.step;
      if (isNow !== (element.getAttribute("aria-current") === "step")) { if (isNow) element.setAttribute("aria-current", "step"); else element.removeAttribute("aria-current"); }
      const isConcealed = Boolean(state.quiz) && at >= (state.quiz === "word" ? hides : Math.max(hides, state.step + 1));
      if (isConcealed !== element.classList.contains("concealed")) {
        element.classList.toggle("concealed", isConcealed);
        label.textContent = isConcealed ? "?" : text;
        element.title = isConcealed ? "" : title;
      }
      put(bar, "--part", isConcealed || place === "encoder" || at >= recording.sentence.steps.length ? "0" : recording.probability(at).toFixed(3));
      element.tabIndex = isNow ? 0 : -1;
    });
  };
  const strongest = (side, at) => {
    const map = currentMap(), groups = groupWords(side === "target" ? columns : rows);
    const total = (group) => group.members.reduce((sum, member) => sum + (side === "target" ? map.at(currentRow(at), member) : map.at(currentRow(member), at) / group.members.length), 0);
    return groups.map((group) => [group.text, total(group)]).filter(([, weight]) => weight > 0.04).sort((a, b) => b[1] - a[1]).slice(0, 3);
  };
  const describe = () => {
    if (!hasLinks || state.quiz) return [];
    const { side, at } = state.hover ?? { side: "target", at: state.step }, label = pieceLabel(side === "target" ? rows : columns, at);
    const best = strongest(side, at).flatMap(([text, weight], index) => [index ? ", " : "", el("b", null, el("bdi", { text: brief(text, 20) })), ` ${percent(weight)}`]);
    const subject = side === "source" ? "" : `${t(place === "encoder" || (place === "cross" && state.reading === "shifted") ? "reading-it" : "saying")} `;
    return [subject, el("b", null, el("bdi", { text: quoted(label) })), ` ${t(side === "source" ? "looked-at-by" : "looks-at")} `.replace(/^ (?=,)/, ""), ...best, whatIf?.isSilenced(place, state.head) ? `, ${t("live-unheard")}` : ""];
  };
  return {
    node,
    scroll() { if (!isNarrow()) keepInView(scroller, target[state.step].node); },
    resize() { places = null; this.update(new Set(["all"])); },
    update(changed) {
      if (!places) measure();
      drawLinks();
      paint();
      scrub.show(state.step);
      scrub.setAttribute("aria-valuetext", `${state.step + 1} / ${rows.length}${state.step < hiddenFrom() ? `: ${pieceLabel(rows, state.step)}` : ""}`);
      count.textContent = `${t("step")} ${state.step + 1}/${rows.length}`;
      tag.textContent = hasLinks ? cellName() : "";
      tag.hidden = !hasLinks;
      setContent(readout, describe());
      const shownText = state.quiz ? `${sentence.target.pieces.slice(0, Math.min(state.step + 1, hiddenFrom())).map((element) => (isSpecial(element) ? "" : element.text)).join("").trim()} \u2026` : sentence.target.text;
      answer.firstChild.textContent = plain(shownText).slice(0, 600) || "\u2423";
      if (changed.has("quiz") || changed.has("step") || changed.has("all") || changed.has("answered")) showQuizBar(quizBar, head);
    },
  };
}

// ------------------------------------------------------------------------------------------------------- link menu

function linkMenu() {
  const explained = (key) => el("small", { text: t(`${key}-note`) });
  const thresholdText = el("output", { text: percent(state.threshold) });
  const menu = el("details", { class: "menu" }, el("summary", { class: "button", "aria-label": t("more"), title: t("more"), "data-key": "menu" }, "\u22ef"));
  const fillMenu = () => {
    const keep = (change) => { set(change); requestAnimationFrame(refill); };
    const row = (name, options, key) => [el("div", null, el("span", { text: t(name) }), radios(t(name), options.map((option) => [option, t(option)]), state[key], (value) => keep({ [key]: value }))), explained(state[key])];
    menu.replaceChildren(menu.firstChild, el("div", { class: "pop panel" },
      ...(state.place === "cross" ? row("reading", ["naive", "shifted"], "reading") : []), ...row("link", ["soft", "hard"], "link"),
      el("label", null, el("span", { text: t("threshold") }), thresholdText, slider(t("threshold"), 0, 0.6, 0.01, state.threshold, (threshold) => { thresholdText.textContent = percent(threshold); set({ threshold }); })),
      el("div", { class: "buttons" }, button(t("copy-links"), copyLinks), button("SVG", () => save("map.svg", new Blob([figureText()], { type: "image/svg+xml" }))), button("PNG", savePng))));
  };
  const refill = () => {
    const key = menu.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    fillMenu();
    if (key) menu.querySelector(`[data-key="${key}"]`)?.focus();
  };
  menu.addEventListener("toggle", () => menu.open && fillMenu());
  menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; menu.firstChild.focus(); event.stopPropagation(); } });
  return menu;
}

// Links in Pharaoh format (source word-target word), also shown, because a frame may not use the clipboard.
function pharaohLinks() {
  const map = context.recording.wordMap(state.place, state.head, state.reading), position = (groups, at) => groups.slice(0, at).filter((group) => !group.special).length;
  const links = [];
  map.rows.forEach((row, y) => map.columns.forEach((column, x) => {
    const isBest = map.columns.every((_, other) => map.at(y, other) <= map.at(y, x));
    if (!row.special && !column.special && map.at(y, x) >= Math.max(0.01, state.threshold) && (state.link === "soft" || isBest)) links.push([position(map.columns, x), position(map.rows, y)]);
  }));
  return links.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((pair) => pair.join("-")).join(" ");
}
async function copyLinks() {
  const links = pharaohLinks();
  notify(links || "\u2205");
  try { await navigator.clipboard.writeText(links); } catch { /* it is shown */ }
}
let notifyTimer = null;
function notify(text) {
  const node = document.querySelector(".toast");
  node.textContent = text;
  node.classList.add("shown");
  clearTimeout(notifyTimer);
  notifyTimer = setTimeout(() => node.classList.remove("shown"), 4000);
}

const escaped = (text) => plain(text).replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[letter]));
function figureText() {
  const map = context.recording.wordMap(state.place, state.head, state.reading), cell = 26;
  const longest = (groups) => Math.max(...groups.map((group) => brief(group.text).length)), side = 20 + 8.2 * longest(map.rows), above = 30 + 6.2 * longest(map.columns);
  const wide = side + cell * map.columns.length + above * 0.75, high = above + cell * map.rows.length + 12, parts = [];
  map.columns.forEach((column, x) => { const at = side + cell * (x + 0.5); parts.push(`<text x="${at}" y="${above - 8}" transform="rotate(-45 ${at} ${above - 8})">${escaped(brief(column.text))}</text>`); });
  map.rows.forEach((row, y) => {
    parts.push(`<text x="${side - 8}" y="${above + cell * y + 18}" text-anchor="end">${escaped(brief(row.text))}</text>`);
    map.columns.forEach((_, x) => parts.push(`<rect x="${side + cell * x}" y="${above + cell * y}" width="${cell - 1}" height="${cell - 1}" fill="${rgb(map.at(y, x))}"/>`));
  });
  return `<svg xmlns="${NS}" width="${wide}" height="${high}" viewBox="0 0 ${wide} ${high}" font-family="Helvetica, Arial, sans-serif" font-size="14" fill="${cssColor("--ink")}"><rect width="${wide}" height="${high}" fill="${cssColor("--paper")}"/>${parts.join("")}</svg>\n`;
}
function savePng() {
  const image = new Image();
  image.addEventListener("load", () => {
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [image.width * 2, image.height * 2];
    const pen = sheet.getContext("2d");
    pen.scale(2, 2);
    pen.drawImage(image, 0, 0);
    sheet.toBlob((blob) => save("map.png", blob), "image/png");
  });
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(figureText());
}
