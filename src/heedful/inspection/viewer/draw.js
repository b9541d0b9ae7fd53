// Drawing: elements from text (never from markup), colors, canvases.

const NS = "http://www.w3.org/2000/svg";
function fill(node, given, children) {
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}
const el = (name, given, ...children) => fill(document.createElement(name), given, children);
const svg = (name, given, ...children) => fill(document.createElementNS(NS, name), given, children);

let words = {};
const t = (key, ...given) => (words[key] ?? key).replace(/\{(\d)\}/g, (_, at) => given[at] ?? "");
const number = (value, digits = 2) => (value === null || value === undefined ? "\u2013" : value.toFixed(digits).replace("-", "\u2212"));
const percent = (value) => (value >= 0.0995 ? (100 * value).toFixed(0) : value >= 0.001 ? (100 * value).toFixed(1) : "<0.1") + "\u202f%";

// One hue from the paper's color to the ink's, so that nobody needs to tell red from green.
let scale = [];
const paint = { low: [255, 255, 255], high: [8, 48, 107] };
function rescale() {
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => style.getPropertyValue(name).trim().split(/[ ,]+/).map(Number);
  [paint.low, paint.high] = [rgb("--low"), rgb("--high")];
  scale = Array.from({ length: 256 }, (_, i) => {
    const share = (i / 255) ** 0.7;
    return paint.low.map((low, at) => Math.round(low + (paint.high[at] - low) * share));
  });
}
const shade = (weight) => scale[Math.round(255 * Math.min(1, Math.max(0, weight)))];
const rgb = (weight) => `rgb(${shade(weight).join(",")})`;
const inkOn = (weight) => { const [r, g, b] = shade(weight); return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff"; };

function canvas(width, height, given) {
  const dots = Math.min(3, window.devicePixelRatio || 1), node = el("canvas", given);
  node.width = Math.max(1, Math.round(width * dots));
  node.height = Math.max(1, Math.round(height * dots));
  node.style.setProperty("width", `${width}px`);
  node.style.setProperty("height", `${height}px`);
  node.getContext("2d").setTransform(dots, 0, 0, dots, 0, 0);
  return node;
}

// A map as a picture of one dot per cell, stretched by the canvas without blurring.
function picture(map) {
  const rows = map.rows.length ?? map.rows, columns = map.columns.length ?? map.columns;
  const image = new ImageData(Math.max(1, columns), Math.max(1, rows));
  for (let i = 0; i < rows * columns; i++) {
    const [r, g, b] = shade(map.numbers[i]);
    image.data.set([r, g, b, 255], 4 * i);
  }
  const small = document.createElement("canvas");
  [small.width, small.height] = [image.width, image.height];
  small.getContext("2d").putImageData(image, 0, 0);
  return small;
}
function stretch(node, map, width, height) {
  const pen = node.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture(map), 0, 0, width, height);
}

function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const button = (label, act, given) => el("button", { type: "button", onclick: act, ...given }, label);
function choice(label, options, value, act) {
  const list = el("select", { "aria-label": label, onchange: (event) => act(event.target.value) },
    ...options.map(([key, text]) => el("option", { value: key, text, selected: key === value })));
  return el("label", { class: "choice" }, el("span", { text: label }), list);
}
function toggles(label, options, value, act) {
  return el("div", { class: "toggles", role: "group", "aria-label": label },
    ...options.map(([key, text]) => button(text, () => act(key), { "aria-pressed": String(key === value), "data-key": key })));
}
function panel(id, title, ...children) {
  return el("section", { id, class: "panel", "aria-labelledby": `${id}-title`, tabindex: "-1" },
    el("h2", { id: `${id}-title`, text: title }), ...children);
}
const note = (text) => el("p", { class: "quiet", text });
