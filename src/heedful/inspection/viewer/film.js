// The film of a training run, also shown by report.html of the run.

// A map with its words beside it, to look at only.
function labeledMap(map, width, height) {
  const unit = rootSize(), cell = (room, groups, others, most) => Math.max(11, Math.min(most * unit, Math.floor((room - (1 + 0.48 * Math.max(...others.map((group) => brief(group.text, 14).length))) * unit) / groups.length)));
  const wide = cell(width, map.columns, map.rows, 4), high = cell(height, map.rows, map.columns, 2.4);
  const sheet = canvas(wide * map.columns.length, high * map.rows.length, { role: "img", "aria-label": t("map") });
  stretch(sheet, map, wide * map.columns.length, high * map.rows.length);
  const name = (group) => el("span", { class: "label" }, el("bdi", { text: brief(group.text, 14) })), size = { "--wide": `${wide}px`, "--high": `${high}px` };
  return el("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("map") }, el("div", { class: "still" }, el("span"),
    el("div", { class: "top", style: size }, ...map.columns.map(name)), el("div", { class: "left", style: size }, ...map.rows.map(name)), sheet));
}

function film(reel, reading) {
  if (!reel?.frames?.length) return null;
  const { frames } = reel, control = el("input", { type: "range", min: "0", max: String(frames.length - 1), "aria-label": t("training-step"), oninput: (event) => set({ frame: Number(event.target.value) }) });
  let running = null;
  const playButton = button("\u25b6", () => {
    if (running) { clearInterval(running); running = null; } else {
      if (state.frame >= frames.length - 1) set({ frame: 0 });
      running = setInterval(() => { if (state.frame >= frames.length - 1 || !playButton.isConnected) { clearInterval(running); running = null; playButton.textContent = "\u25b6"; } else set({ frame: state.frame + 1 }); }, 500);
    }
    playButton.textContent = running ? "\u2016" : "\u25b6";
  }, { "aria-label": t("play") });
  const metric = frames.some((frame) => isNumber(frame.chrf)) ? "chrf" : "bleu", values = frames.map((frame) => frame[metric] ?? 0), top = Math.max(1, ...values);
  const left = 34, bottom = 76, firstStep = frames[0].step, lastStep = frames[frames.length - 1].step, x = (at) => left + ((frames[at].step - firstStep) * (392 - left)) / Math.max(1, lastStep - firstStep), y = (value) => bottom - (value / top) * 66;
  const dot = svg("circle", { r: 4, class: "now" }), axisText = (at, height, content, anchor) => svg("text", { x: at, y: height, class: `axis-text ${anchor}`, text: content });
  const curve = svg("svg", { viewBox: "0 0 400 100", class: "film-curve", role: "img", "aria-label": metric === "chrf" ? "chrF" : "BLEU" },
    svg("path", { class: "axis", d: `M${left} 6V${bottom}H396` }), svg("polyline", { points: values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }), dot,
    axisText(left - 4, y(top) + 4, number(top, 0), "end"), axisText(left - 4, bottom + 2, "0", "end"), axisText(left, 96, String(frames[0].step), "start"), axisText(396, 96, `${t("training-step")} ${frames[frames.length - 1].step}`, "end"), axisText(left + 4, 12, metric === "chrf" ? "chrF" : "BLEU", "start"));
  const body = el("div", { class: "reel" });
  const node = el("div", { class: "film" }, el("div", { class: "controls" }, playButton, control,
    reel.sources.length > 1 && choice(t("sentence"), reel.sources.map((source, at) => [String(at), brief(source.text, 40)]), String(state.take), (at) => set({ take: Number(at) }))), curve, body);
  const opened = new Map();
  const draw = async () => {
    const at = Math.min(state.frame, frames.length - 1), frame = frames[at], source = reel.sources[state.take] ?? reel.sources[0], take = frame.takes[state.take] ?? frame.takes[0];
    control.value = at;
    control.style.setProperty("--filled", `${(100 * at) / Math.max(1, frames.length - 1)}%`);
    dot.setAttribute("cx", x(at));
    dot.setAttribute("cy", y(values[at]));
    const key = `${at} ${state.take}`;
    if (take.attention && !opened.has(key)) opened.set(key, await new Recording({ source, target: take.target, steps: [], attention: { cross: take.attention } }).open());
    if (key !== `${Math.min(state.frame, frames.length - 1)} ${state.take}`) return;  // changed meanwhile
    const recording = opened.get(key);
    const parts = [el("p", { class: "readout", text: `${t("training-step")} ${frame.step}${isNumber(frame.chrf) ? `, chrF ${number(frame.chrf, 1)}` : ""}${isNumber(frame.bleu) ? `, BLEU ${number(frame.bleu, 1)}` : ""}` }),
      el("p", { class: "film-source" }, el("bdi", { text: plain(source.text).slice(0, 300) })), el("p", { class: "film-answer" }, el("bdi", { text: plain(take.target.text).slice(0, 300) || "\u2423" }))];
    if (recording?.maps.cross) {  // the head that aligns best in the end, if the film has it
      const [layers, heads] = recording.maps.cross.shape, has = isNumber(reading?.layer) && reading.layer < layers && reading.head < heads;
      parts.push(labeledMap(recording.wordMap("cross", has ? [reading.layer, reading.head] : null, has ? reading.step ?? "naive" : "naive"), body.clientWidth || 400, 260));
    }
    body.replaceChildren(...parts);
  };
  return { node, update(changed) { if (changed.has("frame") || changed.has("take") || changed.has("all")) draw(); } };
}
