// The page: two panes, what is lit, what is said when something is wrong.

const data = (id) => JSON.parse(document.getElementById(id).textContent);
const glossary = data("words"), LANGUAGES = ["en", "pt", "ru"], THEMES = ["light", "dark"], PAUSE = 250;
let about = data("about"), tint = true, tongue = "en";
let lines = [""], drawn = [], open = null;  // `open`: the line whose alternatives are shown
const answers = new Map(), chosen = new Map();  // by the text of a line
const parts = {};  // the nodes that live on

const given = el("textarea", { id: "given", dir: "auto", rows: "1", autocomplete: "off", "aria-labelledby": "source-title", "aria-describedby": "hint" });
const mirror = el("div", { class: "mirror", "aria-hidden": "true" });
const said = el("div", { id: "said", role: "group", "aria-labelledby": "target-title" });
const spoken = el("div", { class: "unseen", "aria-live": "polite", lang: "" });

// ------------------------------------------------------------------------------------------------------ the frame

function languageName(code) {
  try {
    const name = new Intl.DisplayNames([tongue], { type: "language" }).of(code);
    return name.charAt(0).toLocaleUpperCase(tongue) + name.slice(1);
  } catch {
    return code || "?";
  }
}
const theme = () => kept.get("heedful.theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

function frame() {
  words = { ...glossary.en, ...glossary[tongue] };
  const focused = document.activeElement, key = focused?.dataset?.key, place = [given.selectionStart, given.selectionEnd];
  const names = [languageName(about.source), languageName(about.target)];
  document.documentElement.lang = tongue;
  document.documentElement.dataset.theme = theme();
  document.title = `${names.join(" \u2192 ")} \u00b7 heedful`;
  given.placeholder = t("type-here");
  given.lang = about.source ?? "";
  said.lang = spoken.lang = about.target ?? "";
  parts.count = el("span", { class: "count" });
  parts.readout = el("p", { class: "readout", id: "readout" });
  parts.state = el("span", { role: "status" });
  parts.work = el("span", { class: "quiet" });
  parts.clock = el("span", { "aria-hidden": "true" });
  parts.more = el("div", { class: "more" });
  parts.clear = button(t("clear"), clear, { "data-key": "clear" });
  parts.copy = button(t("copy"), () => copy(translation(), parts.copy), { "data-key": "copy" });
  document.getElementById("app").replaceChildren(
    el("header", null, el("h1", null, "heedful"),
      el("div", { class: "controls" },
        toggles(t("language"), LANGUAGES.map((one) => [one, one.toUpperCase()]), tongue, (one) => { kept.put("heedful.language", one); tongue = one; frame(); }),
        toggles(t("look"), THEMES.map((one) => [one, t(one)]), theme(), (one) => { kept.put("heedful.theme", one); frame(); }))),
    el("main", null,
      el("section", { class: "pane", "aria-labelledby": "source-title" },
        el("div", { class: "bar" }, el("h2", { id: "source-title", text: names[0] }), parts.clear),
        el("div", { class: "sheet" }, mirror, given),
        el("div", { class: "foot" }, el("span", { class: "unseen", id: "hint", text: t("hint-source") }), parts.count)),
      el("div", { class: "trouble" }, el("p", null, parts.state, parts.clock), parts.more),
      el("section", { class: "pane", "aria-labelledby": "target-title" },
        el("div", { class: "bar" }, el("h2", { id: "target-title", text: names[1] }), parts.work, parts.copy),
        said, el("div", { class: "foot" }, parts.readout)),
      el("div", { class: "legend" },
        button(t("tint"), () => { tint = !tint; frame(); }, { "aria-pressed": String(tint), "data-key": "tint" }),
        el("span", { class: "scale", "aria-label": t("tint-scale"), role: "img" }, ...["80\u2013100", "50\u201380", "20\u201350", "0\u201320"].map((text, at) => el("span", { class: `word sure-${at}`, text: `${text}\u202f%` }))),
        el("span", { class: "quiet", text: t("tint-note") }))),
    el("footer", { class: "quiet" }, el("p", { text: t("hint-target") }), el("p", { text: t("private") })), spoken);
  said.classList.toggle("tinted", tint);
  drawn = [];
  draw();
  tell(...told);
  if (focused === given) {
    given.focus({ preventScroll: true });
    given.setSelectionRange(...place);
  } else if (key) document.querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
}

// ------------------------------------------------------------------------------------------------------ the lines

const shown = (line) => chosen.get(line) ?? answers.get(line)?.text ?? "";
const translation = () => lines.map(shown).join("\n");
const word = (number, text, given) => el("span", { class: "word", "data-word": String(number), text, ...given });

function mirrored(line) {
  const found = answers.get(line);
  const inside = found?.links && !chosen.has(line) ? partsOf(line).map(([number, part]) => (number === null ? part : word(number, part))) : [line || "\u200b"];
  return el("div", null, ...inside);
}
function answered(at, before) {
  const line = lines[at], found = answers.get(line);
  if (!line.trim()) return el("div", { class: "line blank", text: "\u200b" });
  if (!found) return el("div", { class: "line" }, el("p", { class: "stale", dir: "auto", text: before || "\u2026" }));
  if (found.refused) return el("div", { class: "line" }, el("p", { class: "refused" }, t(found.refused === 413 ? "too-long" : "refused"), " ", el("span", { class: "quiet", lang: "en", text: found.why })));
  const other = chosen.get(line), text = other ?? found.text;
  const sure = other === undefined ? found.sure : null;
  const inside = partsOf(text).map(([number, part]) => (number === null ? part : word(number, part, { tabindex: "-1", class: `word sure-${sure ? level(sure[number]) : 0}` })));
  const many = lines.filter((one) => one.trim()).length > 1, label = many ? `${t("alternatives")}, ${t("line")} ${at + 1}` : t("alternatives");
  return el("div", { class: "line" },
    el("p", { dir: "auto" }, ...inside, " ",
      button("\u25be", () => unfold(at), { class: "small", lang: tongue, "aria-expanded": String(open === at), "aria-label": label, title: label, "data-key": `more-${at}` })),
    ...found.flags.map((flag) => flagged(flag)), open === at && details(at, found, text));
}
function flagged({ name, detail, message }) {
  const numbers = detail ?? message ?? "", title = words[`flag-${name}`] ?? words.flag, english = el("span", { class: "quiet", lang: "en", text: ` ${numbers}` });
  const lost = /^Not in the output: (.*)\.$/.exec(numbers)?.[1];
  return el("details", { class: "flag", lang: tongue }, el("summary", null, lost ? [title.replace(/\.$/, ": "), el("bdi", { text: lost })] : title, tongue === "en" && !lost && english),
    el("p", null, words[`why-${name}`] ?? name, tongue !== "en" && !lost && english));
}
function details(at, found, text) {
  const options = [found.text, ...found.others];
  return el("div", { class: "details", role: "group", "aria-label": t("alternatives"), lang: tongue },
    found.others.length ? el("ul", null, ...options.map((one) => el("li", null,
      button(one === found.text ? one : differing(one, found.text).map((part, middle) => (middle === 1 ? el("b", { text: part }) : part)), () => choose(at, one),
        { dir: "auto", lang: about.target, "aria-pressed": String(one === text), class: "option" })))) : note(t("no-alternatives")),
    inside(lines[at]));
}
function inside(line) {
  if (about.inspects) return el("p", null, el("a", { href: `inspect?text=${encodeURIComponent(line)}`, target: "_blank", rel: "noopener", text: t("inspect") }));
  const command = `heedful inspect MODEL ${quoted(line)}`;
  const act = button(t("copy"), () => copy(command, act), { class: "small" });
  return el("div", { class: "command" }, el("span", { text: t("inspect-with") }), el("code", { dir: "ltr", text: command }), act);
}

// Only lines that changed are drawn anew, so that focus and selection stay.
function draw() {
  const old = drawn;
  drawn = lines.map((line, at) => {
    const found = answers.get(line), was = old[at];
    const same = was && was.line === line && was.found === found && was.other === chosen.get(line) && was.open === (open === at);
    if (same) return was;
    const text = found || !line.trim() ? shown(line) : old.length === lines.length ? was?.text ?? "" : "";
    return { line, found, text, other: chosen.get(line), open: open === at, node: answered(at, text), mirror: mirrored(line) };
  });
  place(said, drawn.map((one) => one.node));
  place(mirror, drawn.map((one) => one.mirror));
  if (!lines.some((line) => line.trim())) said.replaceChildren(el("p", { class: "quiet", lang: tongue, text: t("appears-here") }));
  if (!said.querySelector(".word[tabindex='0']")) said.querySelector(".word")?.setAttribute("tabindex", "0");
  parts.count.textContent = `${t("characters")}: ${Array.from(given.value).length.toLocaleString(tongue)}`;
  parts.clear.disabled = !given.value;
  parts.copy.disabled = !translation().trim();
  light(null);
}
function place(box, nodes) {
  nodes.forEach((node, at) => { if (box.childNodes[at] !== node) box.insertBefore(node, box.childNodes[at] ?? null); });
  while (box.childNodes.length > nodes.length) box.lastChild.remove();
}
function unfold(at, focus = false) {
  open = open === at ? null : at;
  const word = document.activeElement?.dataset?.word, key = document.activeElement?.dataset?.key;
  draw();
  const node = drawn[at].node;
  if (focus && open === at) node.querySelector(".option[aria-pressed=true], .details button, .details a")?.focus();
  else (word ? node.querySelector(`[data-word="${word}"]`) : key ? node.querySelector(`[data-key="${key}"]`) : null)?.focus();
}
function choose(at, text) {
  const line = lines[at];
  if (text === answers.get(line).text) chosen.delete(line);
  else chosen.set(line, text);
  draw();
  drawn[at].node.querySelector(".option[aria-pressed=true]")?.focus();
}

// ------------------------------------------------------------------------------------------------ words that belong

function light(side, at, number) {
  for (const one of document.querySelectorAll(".here, .lit")) one.classList.remove("here", "lit");
  const line = lines[at], found = side && answers.get(line);
  if (!found?.text) { parts.readout.textContent = "\u00a0"; return; }
  const nodes = { source: drawn[at].mirror, target: drawn[at].node.firstChild }, other = side === "source" ? "target" : "source";
  const pick = (of, one) => nodes[of].querySelector(`[data-word="${one}"]`);
  pick(side, number)?.classList.add("here");
  if (chosen.has(line)) { parts.readout.textContent = t("chosen-note"); return; }
  const partners = found.links?.[side][number] ?? [];
  for (const one of partners) pick(other, one)?.classList.add("lit");
  const texts = { source: wordsOf(line), target: wordsOf(found.text) };
  const joined = (of, list) => list.map((one) => texts[of][one]).join(" ");
  const [from, to] = side === "source" ? [[number], partners] : [partners, [number]];
  const chance = side === "target" && found.sure ? `${t("sure")} ${percent(found.sure[number])}` : "";
  parts.readout.replaceChildren(el("bdi", { text: joined("source", from) || "\u2013" }), " \u2192 ", el("bdi", { text: joined("target", to) || "\u2013" }), chance && ` \u00b7 ${chance}`);
}
const spot = (node) => {
  const one = node?.closest?.("[data-word]"), at = one ? drawn.findIndex((some) => some.node.contains(one) || some.mirror.contains(one)) : -1;
  return at < 0 ? null : [at, Number(one.dataset.word)];
};
const lightIf = (side, found) => light(found ? side : null, ...(found ?? []));

said.addEventListener("pointerover", (event) => lightIf("target", spot(event.target)));
said.addEventListener("pointerleave", () => lightIf("target", spot(document.activeElement)));
said.addEventListener("focusin", (event) => {
  const found = spot(event.target);
  lightIf("target", found);
  if (!found) return;
  for (const one of said.querySelectorAll(".word[tabindex='0']")) one.setAttribute("tabindex", "-1");
  event.target.setAttribute("tabindex", "0");
});
said.addEventListener("focusout", () => light(null));
said.addEventListener("click", (event) => {
  const at = drawn.findIndex((one) => one.node.firstChild.contains?.(event.target));
  if (at >= 0 && !event.target.closest("button") && getSelection().isCollapsed && answers.get(lines[at])?.text) unfold(at);
});
said.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && open !== null) {
    const at = open;
    unfold(at);
    drawn[at].node.querySelector("[data-key]")?.focus();
    return;
  }
  const one = event.target.closest(".word");
  if (!one) return;
  const all = [...said.querySelectorAll(".word")], at = all.indexOf(one), row = spot(one)[0];
  const turned = getComputedStyle(one.parentNode).direction === "rtl" ? -1 : 1;
  const beside = (by) => all[at + by];
  const above = (by) => { for (let i = row + by; drawn[i]; i += by) { const found = drawn[i].node.querySelector(".word"); if (found) return found; } return null; };
  const ends = [...drawn[row].node.querySelectorAll(".word")];
  const to = { ArrowRight: () => beside(turned), ArrowLeft: () => beside(-turned), ArrowDown: () => above(1), ArrowUp: () => above(-1), Home: () => ends[0], End: () => ends.at(-1) }[event.key];
  if (to) to()?.focus();
  else if (event.key === "Enter" || event.key === " ") unfold(row, true);
  else return;
  event.preventDefault();
});

// The source is a text area: its words lie in the mirror beneath it.
given.addEventListener("pointermove", (event) => lightIf("source", spot(document.elementsFromPoint(event.clientX, event.clientY).find((one) => mirror.contains(one) && one.dataset.word))));
given.addEventListener("pointerleave", caret);
given.addEventListener("blur", () => light(null));
document.addEventListener("selectionchange", caret);
function caret() {
  if (document.activeElement !== given || !parts.readout) return;
  const before = given.value.slice(0, given.selectionStart), at = before.split("\n").length - 1;
  const number = lines[at] && answers.get(lines[at])?.links ? wordAt(lines[at], before.length - before.lastIndexOf("\n") - 1) : null;
  lightIf("source", number === null ? null : [at, number]);
}

// ------------------------------------------------------------------------------------------------------- the asking

let turn = 0, running = null, asking = null, pausing = null, clock = null, resume = 0, failures = 0, told = [];

function tell(key, options = {}) {
  told = key ? [key, options] : [];
  clearInterval(clock);
  const { seconds, why, more } = options, box = document.querySelector(".trouble");
  const text = key && key !== "working" ? t(key) : "";
  parts.work.textContent = key === "working" ? t(key) : "";
  box.classList.toggle("bad", Boolean(text));
  if (parts.state.textContent !== text) parts.state.textContent = text;
  parts.clock.textContent = "";
  parts.more.replaceChildren(...(why ? [el("p", { class: "quiet", lang: "en", text: why })] : []), ...(more ? [more()] : []));
  if (!seconds) return;
  const count = () => { parts.clock.textContent = ` ${t("again-in", Math.max(1, Math.ceil((resume - Date.now()) / 1000)))}`; };
  count();
  clock = setInterval(count, 250);
}
const again = () => button(t("again"), translate, { "data-key": "again" });
function keyForm() {  // a header carries visible ASCII only, and keys are that
  const field = el("input", { type: "password", autocomplete: "off", "aria-label": t("key"), "data-key": "key" });
  return el("form", { onsubmit: (event) => { event.preventDefault(); passing.put("heedful.key", field.value.replace(/[^!-~]/g, "")); translate(); } }, field, el("button", { text: t("use-key") }));
}

// What is wrong, and what happens next.
function refused({ status, why, after }) {
  if (status === 401) {
    const wrong = passing.get("heedful.key") !== null;
    passing.put("heedful.key", null);
    tell(wrong ? "key-wrong" : "key-needed", { more: keyForm });
    if (document.activeElement !== given) document.querySelector("[data-key=key]").focus();
  } else if (status === 503 || status === 429 || status === 0) {
    const seconds = after ?? Math.min(30, 2 ** ++failures);
    resume = Date.now() + 1000 * seconds;
    tell(status ? "busy" : "offline", { seconds });
    clearTimeout(pausing);
    pausing = setTimeout(translate, 1000 * seconds);
  } else tell(status === 504 ? "slow" : "broken", { why: `${status} ${why}`, more: again });
}

const unknown = () => [...new Set(lines)].filter((line) => line.trim() && !answers.has(line));
async function translate() {
  if (asking?.every((line) => lines.includes(line))) return;  // still wanted: what is new is asked next
  const mine = ++turn;
  clearTimeout(pausing);
  running?.abort();
  running = new AbortController();
  resume = 0;
  const slow = setTimeout(() => { if (mine === turn) tell("working"); }, told[1]?.seconds ? 0 : 400);
  let alone = 0, trouble = null;  // how many lines are asked one by one, as one of them is to blame
  for (let waiting = unknown(); waiting.length && !trouble; waiting = unknown()) {
    const asked = asking = alone-- > 0 ? waiting.slice(0, 1) : some(waiting);
    try {
      const found = await ask(asked, running.signal);
      if (mine !== turn) break;  // a newer one is under way
      asked.forEach((line, at) => answers.set(line, found[at]));
      failures = 0;
    } catch (error) {
      if (mine !== turn) break;
      if (error.status !== 413 && error.status !== 422) trouble = error.status === undefined ? new Refusal("", String(error.message)) : error;
      else if (asked.length > 1) alone = asked.length;
      else answers.set(asked[0], { refused: error.status, why: error.why, flags: [], others: [] });
    }
    draw();
  }
  clearTimeout(slow);
  if (mine !== turn) return;
  asking = null;
  if (trouble) { refused(trouble); return; }
  tell();
  announce();
  if (answers.size > 2000) for (const line of [...answers.keys()]) if (!lines.includes(line)) { answers.delete(line); chosen.delete(line); }
}

// Screen readers hear what is new, once it stands still.
let heard = new Set(), hush = null;
function announce() {
  clearTimeout(hush);
  hush = setTimeout(() => {
    const fresh = lines.filter((line) => line.trim() && !heard.has(line)).map(shown).filter(Boolean);
    if (fresh.length) spoken.textContent = fresh.join("\n");
    heard = new Set(lines);
  }, 600);
}

given.addEventListener("input", () => {
  lines = linesOf(given.value);
  open = null;
  draw();
  if (Date.now() < resume) return;  // the server asked for a pause: what is there then will be sent
  clearTimeout(pausing);
  pausing = setTimeout(translate, PAUSE);
});
function clear() {
  given.value = "";
  given.dispatchEvent(new Event("input"));
  given.focus();
}
async function copy(text, sign) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // pages that came without TLS have no clipboard
    const field = el("textarea", { class: "unseen", value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    sign.focus();
  }
  sign.textContent = t("copied");
  setTimeout(() => { sign.textContent = t("copy"); }, 1500);
}

async function meet() {
  try {
    const now = await (await fetch("readyz")).json();
    if (["source", "target", "inspects"].some((one) => now[one] !== about[one]) && now.source) { about = { ...about, ...now }; frame(); }
  } catch { /* the first translation will tell */ }
}
addEventListener("online", () => { if (told[0] === "offline") translate(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", frame);
{
  const wanted = [kept.get("heedful.language"), ...(navigator.languages ?? [navigator.language])].map((one) => (one ?? "").slice(0, 2));
  tongue = wanted.find((one) => LANGUAGES.includes(one)) ?? "en";
  frame();
  if (matchMedia("(hover: hover)").matches) given.focus();
  if (given.value) given.dispatchEvent(new Event("input"));  // a browser that remembers what stood here
  meet();
  document.documentElement.dataset.ready = performance.now().toFixed(0);
}
