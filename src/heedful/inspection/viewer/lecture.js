// Lecture: a list of states, each with one panel on the whole screen and notes for the speaker.

// If the trace has no lecture of its own, the opening state becomes up to seven slides.
function slides() {
  const { engine, recording } = context;
  if (engine.lecture?.slides?.length) return engine.lecture.slides;
  const { step, head } = recording.opening, sentence = `sentence=${state.sentence + 1}`, at = `${sentence}&step=${step + 1}&head=${formatters.head(head)}`, hasVectors = Boolean(recording.vectors.cross);
  const plan = [["stage", `${sentence}&step=1&head=mean`, "stage-mean"], ["stage", at, "stage-head"], ["next", at, "next"], ...(recording.sentence.tree ? [["search", at, "search"]] : []),
    ...(hasVectors ? [["map", `${at}&scene=1`, "product"], ["map", `${at}&scene=4`, "softmax"]] : recording.places.length ? [["map", at, "map"]] : []), ...(recording.places.length ? [["heads", at, "heads"]] : [])];
  return plan.filter(([panel]) => panel !== "stage" || recording.attendsToWords).map(([panel, text, key]) => ({ panel, state: text, notes: { [state.lang]: t("slide-" + key) } }));
}
let notesShown = true;

// The slide at an index, or the nearest one, with the state that it mentions.
function slideAt(at) {
  const all = slides(), index = Math.max(0, Math.min(all.length - 1, at)), slide = all[index];
  return slide && { index, state: { ...parseState(slide.state ?? ""), ...(TABS.includes(slide.panel) ? { tab: slide.panel } : {}) } };
}
async function openSlide(at) {
  const turn = ++openCount, slide = at === null ? null : slideAt(at);
  if (!slide) { set({ slide: null }); return; }
  play(false);
  const { lang, theme } = state, mentioned = { lang, theme, ...slide.state };
  if (whatIf && "text" in mentioned) whatIf.askSlide(mentioned, slide.index);
  else {
    const described = await describedState(mentioned);
    if (turn === openCount) set({ ...described, slide: slide.index });
  }
}

function showNotes(node) {
  const isOn = state.slide !== null, all = isOn ? slides() : [], slide = all[state.slide];
  document.body.classList.toggle("lecture", Boolean(slide));
  document.body.dataset.slide = slide?.panel ?? "";
  const key = focusKey(node);
  if (!slide) { node.replaceChildren(); return; }
  const text = slide.notes?.[state.lang] ?? slide.notes?.en ?? Object.values(slide.notes ?? {})[0] ?? "";
  node.replaceChildren(el("h1", { text: `${state.slide + 1} / ${all.length}` }), el("p", { class: notesShown ? "" : "concealed", text: plain(text.replace(/\s+/g, " ")).slice(0, 2000) }), el("div", { class: "buttons" },
    button("\u2190", () => openSlide(state.slide - 1), { "aria-label": t("previous-slide"), "data-key": "previous-slide" }), button("\u2192", () => openSlide(state.slide + 1), { "aria-label": t("next-slide"), "data-key": "next-slide" }),
    button(t("notes"), () => { notesShown = !notesShown; showNotes(node); }, { "aria-pressed": String(notesShown), "data-key": "notes" }), button(t("exit"), () => openSlide(null), { "data-key": "exit-lecture" })));
  if (key) node.querySelector(key)?.focus();
}
