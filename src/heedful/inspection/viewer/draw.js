// Drawing: elements from text (never from markup), colors, canvases.

const NS = "http://www.w3.org/2000/svg";
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else if (name === "style") for (const [key, entry] of Object.entries(value)) node.style.setProperty(key, entry);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(NS, name), attributes, children);

let words = {};
const t = (key, ...values) => (words[key] ?? key).replace(/\{(\d)\}/g, (_, at) => values[at] ?? "");
const localize = (digits) => (/^(pt|ru)/.test(document.documentElement.lang) ? digits.replace(".", ",") : digits).replace("-", "\u2212");
const number = (value, digits = 2) => (value === null || value === undefined ? "\u2013" : Number.isFinite(value) ? localize(value.toFixed(digits).replace(/^-(?=[0.]*$)/, "")) : value > 0 ? "\u221e" : "\u2212\u221e");
const percent = (value) => localize(value >= 0.0995 ? (100 * value).toFixed(0) : value >= 0.001 ? (100 * value).toFixed(1) : value > 0 ? "<0.1" : "0") + "\u202f%";

// One hue with even steps of lightness, given as colors from 0 to 1 in --scale, so that nobody needs to tell red from green.
let scale = [];
function rescale() {
  const stops = getComputedStyle(document.documentElement).getPropertyValue("--scale").trim().split(/\s+/)
    .map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
  scale = Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) ** 0.72 * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
    return stops[low].map((value, channel) => Math.round(value + (stops[low + 1][channel] - value) * (at - low)));
  });
}
const shade = (weight) => scale[Math.round(255 * Math.min(1, Math.max(0, weight)))];
const rgb = (weight) => `rgb(${shade(weight).join(",")})`;
const inkOn = (weight) => { const [r, g, b] = shade(weight); return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff"; };
const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Reading a computed style while the page changes is slow, so the size of the root is kept until it may differ.
let keptRootSize = 0;
const rootSize = () => (keptRootSize ||= parseFloat(getComputedStyle(document.documentElement).fontSize) || 14);
const forgetRootSize = () => { keptRootSize = 0; };

function canvas(width, height, attributes) {
  const dots = Math.min(3, window.devicePixelRatio || 1), node = el("canvas", attributes);
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
    if (Number.isNaN(map.numbers[i])) continue;  // transparent: no cell
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

// Scroll so that a node is visible; `covered` is what sticks to the top and the left.
function keepInView(scroller, node, covered = [0, 0]) {
  const outer = scroller.getBoundingClientRect(), inner = node.getBoundingClientRect();
  if (inner.top < outer.top + covered[0] || inner.bottom > outer.bottom) scroller.scrollTop += inner.top - outer.top - outer.height / 2;
  if (inner.left < outer.left + covered[1] || inner.right > outer.right) scroller.scrollLeft += inner.left - outer.left - outer.width / 2;
}

// Replace the content of a live region only if its text changes, so that screen readers do not repeat it.
function setContent(node, children) {
  const text = children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  if (node.textContent !== text) node.replaceChildren(...children);
}

function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const button = (label, act, attributes) => el("button", { type: "button", onclick: act, ...attributes }, label);
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
