// The report of a run is complete without this script. It shows the film of the training and the values under the
// pointer, switches the language, and opens folded parts for printing.

const page = readJson("data");
const LANGUAGES = ["en", "pt", "ru"], SEPARATORS = { en: [",", "."], pt: [".", ","], ru: ["\u00a0", ","] };
const keyOf = Object.fromEntries(Object.entries(page.words.en).map(([key, text]) => [text, key]));
const translated = (text) => t(keyOf[text] ?? text);

// 1,234.5 in the language of the page; other text stays as it is.
function localNumber(text) {
  const [thousands, decimal] = SEPARATORS[state.lang];
  return /^[\d,.\u2212%-]*\d[\d,.e%-]*$/.test(text) ? text.replace(/[,.]/g, (mark) => (mark === "," ? thousands : decimal)) : text;
}

const charts = [...document.querySelectorAll(".charts figure")].map((figure, at) => {
  const chart = page.charts[at], [svgNode, output, here] = ["svg", "output", ".here"].map((name) => figure.querySelector(name));
  const valuesAt = (step) => chart.curves.map((curve) => {
    const near = curve.steps.reduce((best, each, index) => (Math.abs(each - step) < Math.abs(curve.steps[best] - step) ? index : best), 0);
    return t("at-step", translated(curve.name), localNumber(String(curve.labels[near])), localNumber(curve.steps[near].toLocaleString("en")));
  }).join(" \u00b7 ");
  const showLast = () => { output.textContent = valuesAt(chart.steps); here.setAttribute("visibility", "hidden"); };
  svgNode.addEventListener("pointermove", (event) => {
    const box = svgNode.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * chart.width - chart.left) / chart.across;
    const step = Math.min(1, Math.max(0, share)) * chart.steps, x = chart.left + step / chart.steps * chart.across;
    output.textContent = valuesAt(step);
    here.setAttribute("x1", x);
    here.setAttribute("x2", x);
    here.removeAttribute("visibility");
  });
  svgNode.addEventListener("pointerleave", showLast);
  return () => {
    figure.querySelector("figcaption").firstChild.textContent = translated(chart.title);
    figure.querySelectorAll(".key").forEach((key, index) => { key.textContent = translated(chart.curves[index].name); });
    showLast();
    svgNode.setAttribute("aria-label", `${translated(chart.title)}: ${output.textContent}`);
  };
});

let reel = null;
function renderPage() {
  document.documentElement.lang = state.lang;
  words = { ...page.words.en, ...page.words[state.lang] };
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t, ...JSON.parse(node.dataset.values ?? "[]").map(localNumber));
  for (const node of document.querySelectorAll("td.number, .tiles dd, .charts text")) node.textContent = localNumber(node.dataset.english ??= node.textContent);
  charts.forEach((show) => show());
  document.getElementById("languages").replaceChildren(toggles(t("language"), LANGUAGES.map((code) => [code, code.toUpperCase()]), state.lang, (lang) => set({ lang })));
  reel = film(page.film, page.reading);
  if (reel) {
    document.getElementById("film-place").replaceChildren(panel("film", t("film"), reel.node));
    reel.update(new Set(["all"]));
  }
}
listeners.push((changed) => {
  const focused = document.activeElement?.dataset?.key;
  if (changed.has("lang")) renderPage();
  else reel?.update(changed);
  if (changed.has("lang") && focused) document.querySelector(`[data-key="${focused}"]`)?.focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { rescale(); reel?.update(new Set(["all"])); });
addEventListener("hashchange", () => { state = { ...start, ...stateFromAddress() }; renderPage(); });
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));

const preferred = (navigator.languages ?? [navigator.language]).map((code) => (code ?? "").slice(0, 2));
start = { ...DEFAULT_STATE, lang: preferred.find((code) => LANGUAGES.includes(code)) ?? "en", frame: Math.max(0, (page.film?.frames?.length ?? 0) - 1) };
state = { ...start, ...stateFromAddress() };
rescale();
renderPage();
document.documentElement.dataset.ready = performance.now().toFixed(0);
