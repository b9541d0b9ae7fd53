// The film of a training run, also shown by report.html of the run.

// A map with its words beside it, to look at only.
function labeled(map, room) {
  const wide = map.columns.length, high = map.rows.length, cell = Math.max(9, Math.min(22, Math.floor(room / Math.max(wide, high))));
  const sheet = canvas(cell * wide, cell * high, { role: "img", "aria-label": t("map") });
  stretch(sheet, map, cell * wide, cell * high);
  const name = (unit) => el("span", { class: "label" }, el("bdi", { text: brief(unit.text, 14) })), size = { "--cell": `${cell}px` };
  return el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("map") }, el("div", { class: "sheet" }, el("span"),
    el("div", { class: "top", style: size }, ...map.columns.map(name)), el("div", { class: "left", style: size }, ...map.rows.map(name)), sheet));
}

function film() {
  const { trace } = context, { film: reel } = trace, reading = trace.reading ?? trace.sentences?.[0]?.reading;
  if (!reel?.frames?.length) return null;
  const frames = reel.frames, slider = el("input", { type: "range", min: "0", max: String(frames.length - 1), "aria-label": t("training-step"), oninput: (event) => set({ frame: Number(event.target.value) }) });
  let running = null;
  const start_ = button("\u25b6", () => {
    if (running) { clearInterval(running); running = null; } else {
      if (state.frame >= frames.length - 1) set({ frame: 0 });
      running = setInterval(() => { if (state.frame >= frames.length - 1 || !start_.isConnected) { clearInterval(running); running = null; start_.textContent = "\u25b6"; } else set({ frame: state.frame + 1 }); }, 500);
    }
    start_.textContent = running ? "\u2016" : "\u25b6";
  }, { "aria-label": t("play") });
  const body = el("div", { class: "reel" }), values = frames.map((one) => one.chrf ?? one.bleu ?? 0), top = Math.max(1, ...values);
  const x = (at) => 8 + (at * 304) / Math.max(1, frames.length - 1), y = (value) => 72 - (value / top) * 60;
  const dot = svg("circle", { r: 4, class: "now" });
  const curve = svg("svg", { viewBox: "0 0 320 80", class: "curve", role: "img", "aria-label": "chrF" }, svg("polyline", { points: values.map((value, at) => `${x(at)},${y(value)}`).join(" ") }), dot);
  const node = panel("film", t("film"), el("div", { class: "controls" }, start_, slider,
    reel.sources.length > 1 && choice(t("sentence"), reel.sources.map((one, at) => [String(at), brief(one.text, 40)]), String(state.take), (at) => set({ take: Number(at) }))), curve, body);
  const known = new Map();
  const draw = async () => {
    const at = Math.min(state.frame, frames.length - 1), frame = frames[at], source = reel.sources[state.take] ?? reel.sources[0], take = frame.takes[state.take] ?? frame.takes[0];
    slider.value = at;
    dot.setAttribute("cx", x(at));
    dot.setAttribute("cy", y(values[at]));
    const key = `${at} ${state.take}`;
    if (take.attention && !known.has(key)) {
      const view = new View({ source, target: take.target, steps: [] });
      view.maps.cross = await decode(take.attention);
      known.set(key, view);
    }
    if (at !== Math.min(state.frame, frames.length - 1)) return;
    const view = known.get(key), parts = [el("p", { class: "readout", text: `${t("training-step")} ${frame.step}${frame.chrf === undefined ? "" : `, chrF ${number(frame.chrf, 1)}`}${frame.bleu === undefined ? "" : `, BLEU ${number(frame.bleu, 1)}`}` }),
      el("p", null, el("bdi", { text: plain(source.text).slice(0, 300) })), el("p", { class: "said-film" }, el("bdi", { text: plain(take.target.text).slice(0, 300) || "\u2423" }))];
    if (view) {  // by the head that aligns best in the end, where it was filmed
      const [layers, heads] = view.maps.cross.shape, there = reading?.layer < layers && reading?.head < heads;
      parts.push(labeled(view.map("cross", there ? [reading.layer, reading.head] : null, "words", there ? reading.step ?? "naive" : "naive"), 340));
    }
    body.replaceChildren(...parts);
  };
  return { node, update(changed) { if (changed.has("frame") || changed.has("take") || changed.has("all")) draw(); } };
}
