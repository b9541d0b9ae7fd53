// The page: two panes, highlighted words, status messages.

const readJson = (id) => JSON.parse(document.getElementById(id).textContent);
const wordsByLanguage = readJson("words"), LANGUAGES = ["en", "pt", "ru"], THEMES = ["light", "dark"], TYPING_PAUSE_MS = 250;
const MAX_FILE_BYTES = 100_000, MAX_MEDIA_BYTES = 12_000_000;
const MEDIA = { image: { noun: "picture", path: "v1/caption", type: "image/png" }, audio: { noun: "recording", path: "v1/transcribe", type: "audio/wav" } };  // by the source of a direction
const readDirections = ({ directions: texts, captions = [], transcripts = [] }) => [...texts, ...captions, ...transcripts];
let directions = readDirections(readJson("about")), direction = directions[0], isTinted = true, language = "en";
let lines = [""], rows = [], openRow = null;  // `openRow`: the line whose alternatives are shown
const openedFiles = {};  // { file, url, key } by the kind of media; the only line of a file is its key
let numOpened = 0;
const media = () => MEDIA[direction.source], openedFile = () => openedFiles[direction.source];  // undefined: text, no file
let results = new Map(), chosenTexts = new Map();  // of this direction, by the text of a line
const stored = new Map();  // [results, chosenTexts] by direction
const nodes = {};  // replaced when the page is rendered again

const input = el("textarea", { id: "source-text", dir: "auto", rows: "1", autocomplete: "off", "aria-labelledby": "source-title", "aria-describedby": "hint" });
const mirror = el("div", { class: "mirror", "aria-hidden": "true" });
const output = el("div", { id: "translation", role: "group", "aria-labelledby": "target-title" });
const fileField = el("input", { type: "file", class: "visually-hidden", tabindex: "-1", "aria-hidden": "true", onchange: () => { openFiles(fileField.files); fileField.value = ""; } });
const announcer = el("div", { class: "visually-hidden", "aria-live": "polite", lang: "" });

// -------- page layout

function languageName(code) {
  if (code in MEDIA) return t(code);
  try {
    const name = new Intl.DisplayNames([language], { type: "language" }).of(code);
    return name.charAt(0).toLocaleUpperCase(language) + name.slice(1);
  } catch {
    return code || "?";
  }
}
const currentTheme = () => localStore.get("heedful.theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

function renderPage() {
  words = { ...wordsByLanguage.en, ...wordsByLanguage[language] };
  const ending = `-${media()?.noun}`;
  for (const [key, text] of Object.entries(words)) if (key.endsWith(ending)) words[key.replace(ending, "")] = text;
  const focused = document.activeElement, key = focused?.dataset?.key, selection = [input.selectionStart, input.selectionEnd];
  const names = [languageName(direction.source), languageName(direction.target)], reverse = findDirection(direction.target, direction.source);
  document.documentElement.lang = language;
  document.documentElement.dataset.theme = currentTheme();
  document.title = `${names.join(" \u2192 ")} \u00b7 heedful`;
  input.placeholder = t("type-here");
  input.lang = direction.source;
  fileField.accept = media() ? `${direction.source}/*` : "";
  output.lang = announcer.lang = direction.target;
  nodes.count = el("span", { class: "count" });
  nodes.readout = el("p", { class: "readout", id: "readout" });
  nodes.problem = el("span", { role: "status" });
  nodes.progress = el("span", { class: "quiet" });
  nodes.countdown = el("span", { "aria-hidden": "true" });
  nodes.more = el("div", { class: "more" });
  nodes.clear = button(t("clear"), clear, { "data-key": "clear" });
  nodes.copy = button(t("copy"), () => copy(fullTranslation(), nodes.copy), { "data-key": "copy" });
  const swapped = [names[1], names[0]], swapLabel = reverse ? t("swap") : t("no-swap", ...swapped);
  const swapButton = button("\u21c4", () => (reverse ? swap(reverse) : setStatus("no-swap", { values: swapped })), { class: "swap", "data-key": "swap", "aria-label": swapLabel, title: swapLabel, "aria-disabled": String(!reverse), style: { visibility: media() ? "hidden" : "visible" } });
  const via = direction.via && el("span", { class: "quiet via", title: t("why-via", languageName(direction.via)), text: t("via", languageName(direction.via)) });
  document.getElementById("app").replaceChildren(
    el("header", null, el("h1", null, "heedful"),
      el("div", { class: "controls" },
        toggles(t("language"), LANGUAGES.map((code) => [code, code.toUpperCase()]), language, (code) => { localStore.put("heedful.language", code); language = code; renderPage(); }),
        toggles(t("look"), THEMES.map((theme) => [theme, t(theme)]), currentTheme(), (theme) => { localStore.put("heedful.theme", theme); renderPage(); }))),
    el("main", null,
      el("section", { class: "pane", "aria-labelledby": "source-title" },
        el("div", { class: "bar" }, renderTitle("source", names[0]), nodes.clear),
        media() ? renderDropArea() : el("div", { class: "sheet" }, mirror, input),
        el("div", { class: "foot" }, el("span", { class: "visually-hidden", id: "hint", text: t("hint-source") }),
          button(t("open"), () => fileField.click(), { "data-key": "open" }), fileField, renderRecorder(), nodes.count)),
      swapButton,
      el("div", { class: "problem" }, el("p", null, nodes.problem, nodes.countdown), nodes.more),
      el("section", { class: "pane", "aria-labelledby": "target-title" },
        el("div", { class: "bar" }, renderTitle("target", names[1]), via, nodes.progress, nodes.copy),
        output, el("div", { class: "foot" }, nodes.readout)),
      el("div", { class: "legend" },
        button(t("tint"), () => { isTinted = !isTinted; renderPage(); }, { "aria-pressed": String(isTinted), "data-key": "tint" }),
        el("span", { class: "scale", "aria-label": t("tint-scale"), role: "img" }, ...["80\u2013100", "50\u201380", "20\u201350", "0\u201320"].map((text, level) => el("span", { class: `word sure-${level}`, text: `${text}\u202f%` }))),
        el("span", { class: "quiet", text: t("tint-note") }))),
    el("footer", { class: "quiet" }, el("p", { text: t("hint-target") }), el("p", { text: t("private") })), announcer);
  output.classList.toggle("tinted", isTinted);
  rows = [];
  renderLines();
  setStatus(...status);
  if (focused === input) {
    input.focus({ preventScroll: true });
    input.setSelectionRange(...selection);
  } else if (key) document.querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
}

function renderDropArea() {
  const opened = openedFile(), area = (...shown) => button([...shown, el("span", { class: "quiet", text: t("type-here") })], () => fileField.click(), { class: "sheet drop", "data-key": "drop" });
  if (!opened) return area();
  if (direction.source === "image") return area(el("img", { src: opened.url, alt: opened.file.name }));
  return el("div", { class: "sheet heard" }, el("audio", { src: opened.url, controls: true, "aria-label": opened.file.name }), area());
}
// Browsers allow a microphone only on localhost and with TLS.
const renderRecorder = () => direction.source === "audio" && navigator.mediaDevices
  && button(t(recorder ? "stop" : "record"), () => (recorder ? recorder.stop() : record()), { "data-key": "record", "aria-pressed": String(Boolean(recorder)) });

// The language of a pane, or a list if there is a choice.
function renderTitle(side, name) {
  const codes = side === "source" ? directions.map((each) => each.source) : directions.filter((each) => each.source === direction.source).map((each) => each.target);
  if (directions.length === 1) return el("h2", { id: `${side}-title`, text: name });
  const choose = ({ target: { value } }) => selectDirection(side === "target" ? findDirection(direction.source, value)
    : findDirection(value, direction.target) ?? directions.find((each) => each.source === value));
  return el("h2", { id: `${side}-title` }, el("select", { "aria-label": t(side), "data-key": side, onchange: choose },
    ...[...new Set(codes)].map((code) => el("option", { value: code, text: languageName(code), selected: code === direction[side] }))));
}

// -------- directions

const findDirection = (source, target) => directions.find((each) => each.source === source && each.target === target);
const directionFields = () => (directions.length > 1 ? { source: direction.source, target: direction.target } : {});
function selectDirection(next) {
  stored.set(direction, [results, chosenTexts]);
  direction = next;
  [results, chosenTexts] = stored.get(direction) ?? [new Map(), new Map()];
  openRow = pendingLines = null;
  lines = media() ? [openedFile()?.key ?? ""] : splitLines(input.value);
  renderPage();
  translate();
}
function swap(reverse) {
  const oldLines = lines;
  input.value = lines.map((line) => shownText(line) || line).join("\n");
  lines = splitLines(input.value);
  selectDirection(reverse);
  rows = rows.map((row, i) => ({ ...row, line: null, text: oldLines[i] ?? "" }));  // shown until the translation arrives
  renderLines();
}

// -------- files

function showFile(file, kind) {
  const reader = new FileReader();
  reader.onload = () => {
    openedFiles[kind] = { file, url: reader.result, key: `${++numOpened} ${file.name}` };
    if (direction.source !== kind) { selectDirection(directions.find(({ source }) => source === kind)); return; }
    lines = [openedFile().key];
    openRow = null;
    renderPage();
    setStatus();
    translate();
  };
  reader.onerror = () => setStatus("file-kind", { values: [file.name] });  // a directory, for example
  reader.readAsDataURL(file.type ? file : new Blob([file], { type: MEDIA[kind].type }));  // players need a type
}
let recorder = null, isOpening = false;  // of the microphone, while it records; whether the visitor is asked to allow that
async function record() {
  if (isOpening) return;
  isOpening = true;
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true }), parts = [];
    recorder = new MediaRecorder(stream);
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.onstop = async () => {
      stream.getTracks().forEach((track) => track.stop());
      recorder = null;
      renderPage();
      const context = new AudioContext(), recorded = await context.decodeAudioData(await new Blob(parts).arrayBuffer());
      context.close();
      openFiles([new File([encodeWav(recorded.getChannelData(0), recorded.sampleRate)], t("recorded-file"), { type: "audio/wav" })]);
    };
    recorder.start();
    renderPage();
  } catch {
    setStatus("no-microphone");
  } finally {
    isOpening = false;
  }
}
// Samples from -1 to 1 as a WAV file with 16 bits: the formats in which browsers record are not read by the server.
function encodeWav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const write = (at, text) => [...text].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  write(0, "RIFF"); write(8, "WAVEfmt "); write(36, "data");
  for (const [at, value] of [[4, 36 + 2 * samples.length], [16, 16], [24, rate], [28, 2 * rate], [40, 2 * samples.length]]) view.setUint32(at, value, true);
  for (const [at, value] of [[20, 1], [22, 1], [32, 2], [34, 16]]) view.setUint16(at, value, true);
  samples.forEach((sample, i) => view.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, sample)) * 32767, true));
  return view.buffer;
}
async function openFiles(files) {
  const [file] = files;
  if (!file) return;
  const offered = Object.keys(MEDIA).find((each) => file.type.startsWith(`${each}/`) && directions.some(({ source }) => source === each));
  const kind = offered ?? (media() ? direction.source : null);
  if (files.length === 1 && kind) {
    if (file.size <= MAX_MEDIA_BYTES) showFile(file, kind);
    else setStatus(`${MEDIA[kind].noun}-large`, { values: [file.name, `${MAX_MEDIA_BYTES / 1e6} MB`] });
    return;
  }
  let text = null;
  if (files.length === 1 && file.size <= MAX_FILE_BYTES) {
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch { /* not UTF-8, or a directory */ }
  }
  if (files.length > 1) setStatus("one-file");
  else if (file.size > MAX_FILE_BYTES) setStatus("file-large", { values: [file.name, `${MAX_FILE_BYTES / 1000} KB`] });
  else if (text === null || text.includes("\0")) setStatus("file-kind", { values: [file.name] });
  else {
    setStatus();
    input.value = text.replace(/\r\n?/g, "\n");
    input.dispatchEvent(new Event("input"));
    input.focus();
  }
}
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
for (const [type, isOver] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  addEventListener(type, (event) => {
    if (!hasFiles(event)) return;  // dropped text is inserted by the browser
    event.preventDefault();
    document.body.classList.toggle("dropping", isOver);
    if (type === "drop") openFiles(event.dataTransfer.files);
  });
}

// -------- lines

const shownText = (line) => chosenTexts.get(line) ?? results.get(line)?.text ?? "";
const fullTranslation = () => lines.map(shownText).join("\n");
const wordNode = (index, text, attributes) => el("span", { class: "word", "data-word": String(index), text, ...attributes });

function renderMirror(line) {
  const isAligned = results.get(line)?.links && !chosenTexts.has(line);
  return el("div", null, ...(isAligned ? splitParts(line).map(([index, part]) => (index === null ? part : wordNode(index, part))) : [line || "\u200b"]));
}
function renderLine(row, oldText) {
  const line = lines[row], result = results.get(line);
  if (!line.trim()) return el("div", { class: "line blank", text: "\u200b" });
  if (!result) return el("div", { class: "line" }, el("p", { class: "stale", dir: "auto", text: oldText || "\u2026" }));
  if (result.rejected) return el("div", { class: "line" }, el("p", { class: "rejected" }, t(result.rejected === 413 ? "too-long" : "refused"), " ", el("span", { class: "quiet", lang: "en", text: result.message })));
  const chosen = chosenTexts.get(line), text = chosen ?? result.text;
  const probabilities = chosen === undefined ? result.probabilities : null;
  const parts = splitParts(text).map(([index, part]) => (index === null ? part : wordNode(index, part, { tabindex: "-1", class: `word sure-${probabilities ? tintLevel(probabilities[index]) : 0}` })));
  const isOneOfMany = lines.filter((other) => other.trim()).length > 1, label = isOneOfMany ? `${t("alternatives")}, ${t("line")} ${row + 1}` : t("alternatives");
  return el("div", { class: "line" },
    el("p", { dir: "auto" }, ...parts, " ", chosen === undefined && renderConfidence(result.confidence),
      button("\u25be", () => toggleDetails(row), { class: "small", lang: language, "aria-expanded": String(openRow === row), "aria-label": label, title: label, "data-key": `more-${row}` })),
    ...result.flags.map((flag) => renderFlag(flag)), openRow === row && renderDetails(row, result, text));
}
function renderConfidence(confidence) {
  if (!words[`confidence-${confidence?.label}`]) return null;
  const why = t("why-confidence", percent(confidence.probability), Math.floor(confidence.lower_bound));
  return [el("span", { class: `confidence ${confidence.label}`, lang: language, title: why }, t(`confidence-${confidence.label}`), el("span", { class: "visually-hidden", text: `. ${why}` })), " "];
}
function renderFlag({ name, detail, message }) {
  const reason = detail ?? message ?? "", title = words[`flag-${name}`] ?? words.flag, english = el("span", { class: "quiet", lang: "en", text: ` ${reason}` });
  const lost = /^Not in the output: (.*)\.$/.exec(reason)?.[1];
  return el("details", { class: "flag", lang: language }, el("summary", null, lost ? [title.replace(/\.$/, ": "), el("bdi", { text: lost })] : title, language === "en" && !lost && english),
    el("p", null, words[`why-${name}`] ?? name, language !== "en" && !lost && english));
}
function renderDetails(row, result, text) {
  const options = [result.text, ...result.alternatives];
  return el("div", { class: "details", role: "group", "aria-label": t("alternatives"), lang: language },
    result.alternatives.length ? el("ul", null, ...options.map((option) => el("li", null,
      button(option === result.text ? option : splitByDifference(option, result.text).map((part, i) => (i === 1 ? el("b", { text: part }) : part)), () => chooseText(row, option),
        { dir: "auto", lang: direction.target, "aria-pressed": String(option === text), class: "option" })))) : note(t("no-alternatives")),
    result.pivot && el("p", { class: "quiet" }, `${languageName(direction.via)}: `, el("bdi", { lang: direction.via, text: result.pivot })),
    !direction.via && !media() && renderInspect(lines[row]));
}
function renderInspect(line) {
  const link = (name, address) => el("p", null, el("a", { href: `${name}?${address}`, target: "_blank", rel: "noopener", text: t(name) }));
  const links = [direction.inspects && link("inspect", new URLSearchParams({ text: line, ...directionFields() })),
    direction.live && link("live", `${new URLSearchParams(directionFields())}#text=${encodeURIComponent(line)}`)].filter(Boolean);
  if (links.length) return el("div", null, ...links);
  const command = `heedful inspect MODEL ${quoteForShell(line)}`;
  const copyButton = button(t("copy"), () => copy(command, copyButton), { class: "small" });
  return el("div", { class: "command" }, el("span", { text: t("inspect-with") }), el("code", { dir: "ltr", text: command }), copyButton);
}

// Replace changed lines only, to keep focus and selection.
function renderLines() {
  const oldRows = rows;
  rows = lines.map((line, row) => {
    const result = results.get(line), old = oldRows[row];
    if (old && old.line === line && old.result === result && old.chosen === chosenTexts.get(line) && old.isOpen === (openRow === row)) return old;
    const text = result || !line.trim() ? shownText(line) : oldRows.length === lines.length ? old?.text ?? "" : "";
    return { line, result, text, chosen: chosenTexts.get(line), isOpen: openRow === row, node: renderLine(row, text), mirror: renderMirror(line) };
  });
  replaceChanged(output, rows.map((row) => row.node));
  replaceChanged(mirror, rows.map((row) => row.mirror));
  if (!lines.some((line) => line.trim())) output.replaceChildren(el("p", { class: "quiet", lang: language, text: t("appears-here") }));
  if (!output.querySelector(".word[tabindex='0']")) output.querySelector(".word")?.setAttribute("tabindex", "0");
  nodes.count.textContent = media() ? openedFile()?.file.name ?? "" : `${t("characters")}: ${Array.from(input.value).length.toLocaleString(language)}`;
  nodes.clear.disabled = !(media() ? openedFile() : input.value);
  nodes.copy.disabled = !fullTranslation().trim();
  highlight(null);
}
function replaceChanged(box, children) {
  children.forEach((child, i) => { if (box.childNodes[i] !== child) box.insertBefore(child, box.childNodes[i] ?? null); });
  while (box.childNodes.length > children.length) box.lastChild.remove();
}
function toggleDetails(row, focus = false) {
  openRow = openRow === row ? null : row;
  const word = document.activeElement?.dataset?.word, key = document.activeElement?.dataset?.key;
  renderLines();
  const node = rows[row].node;
  if (focus && openRow === row) node.querySelector(".option[aria-pressed=true], .details button, .details a")?.focus();
  else (word ? node.querySelector(`[data-word="${word}"]`) : key ? node.querySelector(`[data-key="${key}"]`) : null)?.focus();
}
function chooseText(row, text) {
  const line = lines[row];
  if (text === results.get(line).text) chosenTexts.delete(line);
  else chosenTexts.set(line, text);
  renderLines();
  rows[row].node.querySelector(".option[aria-pressed=true]")?.focus();
}

// -------- aligned words

function highlight(side, row, index) {
  for (const node of document.querySelectorAll(".current, .linked")) node.classList.remove("current", "linked");
  const line = lines[row], result = side && results.get(line);
  if (!result?.text) { nodes.readout.textContent = "\u00a0"; return; }
  const boxes = { source: rows[row].mirror, target: rows[row].node.firstChild }, otherSide = side === "source" ? "target" : "source";
  const find = (where, i) => boxes[where].querySelector(`[data-word="${i}"]`);
  find(side, index)?.classList.add("current");
  if (chosenTexts.has(line)) { nodes.readout.textContent = t("chosen-note"); return; }
  const linked = result.links?.[side][index] ?? [];
  for (const i of linked) find(otherSide, i)?.classList.add("linked");
  const texts = { source: splitWords(line), target: splitWords(result.text) };
  const join = (where, indices) => indices.map((i) => texts[where][i]).join(" ") || "\u2013";
  const [from, to] = side === "source" ? [[index], linked] : [linked, [index]];
  const probability = side === "target" && result.probabilities ? `${t("sure")} ${percent(result.probabilities[index])}` : "";
  nodes.readout.replaceChildren(...(media() ? [] : [el("bdi", { text: join("source", from) }), " \u2192 "]), el("bdi", { text: join("target", to) }), probability && ` \u00b7 ${probability}`);
}
// The [row, index of the word] of a node, or null.
const locateWord = (node) => {
  const word = node?.closest?.("[data-word]"), row = word ? rows.findIndex((each) => each.node.contains(word) || each.mirror.contains(word)) : -1;
  return row < 0 ? null : [row, Number(word.dataset.word)];
};
const highlightAt = (side, location) => highlight(location ? side : null, ...(location ?? []));

output.addEventListener("pointerover", (event) => highlightAt("target", locateWord(event.target)));
output.addEventListener("pointerleave", () => highlightAt("target", locateWord(document.activeElement)));
output.addEventListener("focusin", (event) => {
  const location = locateWord(event.target);
  highlightAt("target", location);
  if (!location) return;
  for (const word of output.querySelectorAll(".word[tabindex='0']")) word.setAttribute("tabindex", "-1");
  event.target.setAttribute("tabindex", "0");
});
output.addEventListener("focusout", () => highlight(null));
output.addEventListener("click", (event) => {
  const row = rows.findIndex((each) => each.node.firstChild.contains?.(event.target));
  if (row >= 0 && !event.target.closest("button") && getSelection().isCollapsed && results.get(lines[row])?.text) toggleDetails(row);
});
output.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && openRow !== null) {
    const row = openRow;
    toggleDetails(row);
    rows[row].node.querySelector("[data-key]")?.focus();
    return;
  }
  const word = event.target.closest(".word");
  if (!word) return;
  const all = [...output.querySelectorAll(".word")], position = all.indexOf(word), row = locateWord(word)[0];
  const forward = getComputedStyle(word.parentNode).direction === "rtl" ? -1 : 1;
  const beside = (step) => all[position + step];
  const above = (step) => { for (let i = row + step; rows[i]; i += step) { const first = rows[i].node.querySelector(".word"); if (first) return first; } return null; };
  const inRow = [...rows[row].node.querySelectorAll(".word")];
  const target = { ArrowRight: () => beside(forward), ArrowLeft: () => beside(-forward), ArrowDown: () => above(1), ArrowUp: () => above(-1), Home: () => inRow[0], End: () => inRow.at(-1) }[event.key];
  if (target) target()?.focus();
  else if (event.key === "Enter" || event.key === " ") toggleDetails(row, true);
  else return;
  event.preventDefault();
});

// The source is a text area: its words are elements of the mirror behind it.
input.addEventListener("pointermove", (event) => highlightAt("source", locateWord(document.elementsFromPoint(event.clientX, event.clientY).find((node) => mirror.contains(node) && node.dataset.word))));
input.addEventListener("pointerleave", highlightAtCursor);
input.addEventListener("blur", () => highlight(null));
document.addEventListener("selectionchange", highlightAtCursor);
function highlightAtCursor() {
  if (document.activeElement !== input || !nodes.readout) return;
  const before = input.value.slice(0, input.selectionStart), row = before.split("\n").length - 1;
  const index = lines[row] && results.get(lines[row])?.links ? wordIndexAt(lines[row], before.length - before.lastIndexOf("\n") - 1) : null;
  highlightAt("source", index === null ? null : [row, index]);
}

// -------- translating

let runId = 0, controller = null, pendingLines = null, nextRun = null, countdown = null, resumeAt = 0, failures = 0, status = [];

function setStatus(key, options = {}) {
  status = key ? [key, options] : [];
  clearInterval(countdown);
  const { seconds, message, more, values = [] } = options, box = document.querySelector(".problem");
  const text = key && key !== "working" ? t(key, ...values) : "";
  nodes.progress.textContent = key === "working" ? t(key) : "";
  box.classList.toggle("shown", Boolean(text));
  if (nodes.problem.textContent !== text) nodes.problem.textContent = text;
  nodes.countdown.textContent = "";
  nodes.more.replaceChildren(...(message ? [el("p", { class: "quiet", lang: "en", text: message })] : []), ...(more ? [more()] : []));
  if (!seconds) return;
  const showSeconds = () => { nodes.countdown.textContent = ` ${t("again-in", Math.max(1, Math.ceil((resumeAt - Date.now()) / 1000)))}`; };
  showSeconds();
  countdown = setInterval(showSeconds, 250);
}
const retryButton = () => button(t("again"), translate, { "data-key": "again" });
function keyForm() {  // headers and keys contain visible ASCII only
  const field = el("input", { type: "password", autocomplete: "off", "aria-label": t("key"), "data-key": "key" });
  return el("form", { onsubmit: (event) => { event.preventDefault(); sessionStore.put("heedful.key", field.value.replace(/[^!-~]/g, "")); translate(); } }, field, el("button", { text: t("use-key") }));
}

// Show the error; schedule a retry if it is temporary.
function handleError({ status, message, retryAfter }) {
  if (status === 401) {
    const isWrong = sessionStore.get("heedful.key") !== null;
    sessionStore.put("heedful.key", null);
    setStatus(isWrong ? "key-wrong" : "key-needed", { more: keyForm });
    if (document.activeElement !== input) document.querySelector("[data-key=key]").focus();
  } else if (status === 503 || status === 429 || status === 0) {
    const seconds = retryAfter ?? Math.min(30, 2 ** ++failures);
    resumeAt = Date.now() + 1000 * seconds;
    setStatus(status ? "busy" : "offline", { seconds });
    clearTimeout(nextRun);
    nextRun = setTimeout(translate, 1000 * seconds);
  } else setStatus(status === 504 ? "slow" : "broken", { message: `${status} ${message}`, more: retryButton });
}

const untranslatedLines = () => [...new Set(lines)].filter((line) => line.trim() && !results.has(line));
async function translate() {
  if (pendingLines?.every((line) => lines.includes(line))) return;  // still needed; new lines are sent afterwards
  const ownId = ++runId;
  clearTimeout(nextRun);
  controller?.abort();
  controller = new AbortController();
  resumeAt = 0;
  const slow = setTimeout(() => { if (ownId === runId) setStatus("working"); }, status[1]?.seconds ? 0 : 400);
  let singles = 0, failure = null;  // number of lines to send one by one after a part was rejected
  for (let waiting = untranslatedLines(); waiting.length && !failure; waiting = untranslatedLines()) {
    const part = pendingLines = singles-- > 0 ? waiting.slice(0, 1) : firstPart(waiting);
    try {
      const translations = media() ? [await requestDescription(media().path, openedFile().file, direction.target, controller.signal)] : await requestTranslations(part, directionFields(), controller.signal);
      if (ownId !== runId) break;  // replaced by a newer run
      part.forEach((line, i) => results.set(line, translations[i]));
      failures = 0;
    } catch (error) {
      if (ownId !== runId) break;
      if (error.status !== 413 && error.status !== 422) failure = error.status === undefined ? new RequestError("", String(error.message)) : error;
      else if (part.length > 1) singles = part.length;
      else results.set(part[0], { rejected: error.status, message: error.message, flags: [], alternatives: [] });
    }
    renderLines();
  }
  clearTimeout(slow);
  if (ownId !== runId) return;
  pendingLines = null;
  if (failure) { handleError(failure); return; }
  setStatus();
  announce();
  if (results.size > 2000) for (const line of [...results.keys()]) if (!lines.includes(line)) { results.delete(line); chosenTexts.delete(line); }
}

// Announce new lines to screen readers when typing stops.
let announcedLines = new Set(), announceTimer = null;
function announce() {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => {
    const texts = lines.filter((line) => line.trim() && !announcedLines.has(line)).map(shownText).filter(Boolean);
    if (texts.length) announcer.textContent = texts.join("\n");
    announcedLines = new Set(lines);
  }, 600);
}

input.addEventListener("input", () => {
  lines = splitLines(input.value);
  openRow = null;
  renderLines();
  if (Date.now() < resumeAt) return;  // wait for Retry-After; the text is sent then
  clearTimeout(nextRun);
  nextRun = setTimeout(translate, TYPING_PAUSE_MS);
});
function clear() {
  if (media()) {
    delete openedFiles[direction.source];
    selectDirection(direction);
    return;
  }
  input.value = "";
  input.dispatchEvent(new Event("input"));
  input.focus();
}
async function copy(text, copyButton) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // the clipboard API needs TLS
    const field = el("textarea", { class: "visually-hidden", value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    copyButton.focus();
  }
  copyButton.textContent = t("copied");
  setTimeout(() => { copyButton.textContent = t("copy"); }, 1500);
}

async function updateDirections() {
  try {
    const now = readDirections(await (await fetch("v1/directions")).json());
    if (JSON.stringify(now) === JSON.stringify(directions) || !now.length) return;
    directions = now;
    selectDirection(findDirection(direction.source, direction.target) ?? directions[0]);
  } catch { /* the first translation shows the error */ }
}
addEventListener("online", () => { if (status[0] === "offline") translate(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renderPage);
{
  const preferred = [localStore.get("heedful.language"), ...(navigator.languages ?? [navigator.language])].map((code) => (code ?? "").slice(0, 2));
  language = preferred.find((code) => LANGUAGES.includes(code)) ?? "en";
  renderPage();
  if (matchMedia("(hover: hover)").matches) input.focus();
  if (input.value) input.dispatchEvent(new Event("input"));  // the browser restored text
  updateDirections();
  document.documentElement.dataset.ready = performance.now().toFixed(0);
}
