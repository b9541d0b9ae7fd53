// Live: the model is inside of this page and runs in a worker. A browser that starts no worker for a page from a disk runs it on
// the page's own thread, in slices. An answer is a recording like those of the trace, so every panel shows it.

const SHORT_WAIT = 300;  // milliseconds before the page says that it computes
const live = { typed: null, isRunning: false, isWanted: false, milliseconds: null, problem: "" };

// In a frame of another page (#view=stage), one panel comes first, and there is only the form of the top bar.
DEFAULT_STATE.view = "";
ADDRESS_KEYS.push("view");
ALLOWED.view = ["stage", "dock", "what-if"];

class LiveEngine extends TraceEngine {
  constructor(trace, description) {
    super(trace);
    Object.assign(this, { description, count: 0, waiting: new Map() });
    this.recorded = super.sentences;
    Object.assign(this, { answered: null, asked: null, before: null, beforeKey: "" });
  }
  get sentences() { return this.answered ? [...this.recorded, this.answered] : this.recorded; }
  // Where the last answer is among the sentences.
  get liveAt() { return this.recorded.length; }
  show(sentence, asked) {
    Object.assign(this, { answered: sentence, asked });
    delete this.recordings[this.liveAt];
  }
  // Start the worker, or the same engine on this thread; the weights are read once.
  start() {
    if (this.send) return;
    const receive = (message) => this.receive(message), model = { kind: "open", description: this.description, data: document.getElementById("weights").textContent };
    const startHere = () => { const answer = serveLive(receive); this.send = answer; this.place = "page"; return answer(model); };
    try {
      const worker = new Worker(URL.createObjectURL(new Blob([document.getElementById("engine").textContent], { type: "text/javascript" })));
      let isOpen = false;
      this.send = (message) => worker.postMessage(message);
      this.place = "worker";
      worker.addEventListener("message", ({ data }) => { isOpen = true; receive(data); });
      worker.addEventListener("error", (event) => {
        event.preventDefault();
        if (isOpen) return;
        isOpen = true;
        startHere();
        for (const { request } of this.waiting.values()) this.send(request);
      });
      worker.postMessage(model);
    } catch { startHere(); }
  }
  receive({ kind, id, sentence, message }) {
    const { resolve, reject } = this.waiting.get(id) ?? {};
    this.waiting.delete(id);
    if (kind === "translated") resolve?.(sentence);
    else if (kind === "failed") reject?.(new Error(message));
  }
  // Only the newest request is answered.
  translate(text, options) {
    this.start();
    const id = ++this.count, request = { kind: "translate", id, text, options };
    this.waiting.clear();
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { request, resolve, reject });
      this.send(request);
    });
  }
  // What the model says on its own, which is kept, and with changes; with the same search.
  async compare({ text, options, changes }) {
    const key = JSON.stringify([text, options]);
    if (this.beforeKey !== key) Object.assign(this, { before: await this.translate(text, options), beforeKey: key });
    return changes ? this.translate(text, { ...options, ...changes }) : this.before;
  }
}

function setRunning(isRunning) {
  live.isRunning = isRunning;
  document.getElementById("what-if")?.setAttribute("aria-busy", String(isRunning));
}
// Answer the question of the state, and show the answer; `mentioned` is what an address says about the cell. While something is
// dragged, a new question waits for the answer to the last one, and only the panel "What if" shows the answers.
async function run(mentioned = null) {
  if (state.text === null) return;
  if (live.isRunning && isDragging()) { live.isWanted = true; return; }
  const { engine } = context, began = performance.now(), asked = Object.fromEntries(LIVE_KEYS.map((key) => [key, state[key]]));
  Object.assign(live, { isWanted: false, problem: "" });
  setRunning(true);
  const timer = setTimeout(showStatus, SHORT_WAIT);
  let answer = null;
  try { answer = await engine.compare(question()); } catch (error) { live.problem = error.message; }
  clearTimeout(timer);
  setRunning(false);
  if (!isDragging() && !isAsked(asked)) {  // out of date: the page has an answer to the newer question, or no question
    live.problem = "";
    answer = null;
  }
  if (answer) {
    live.milliseconds = performance.now() - began;
    engine.show(answer, asked);
  }
  showStatus();
  if (live.isWanted) { run(); return; }
  if (isDragging()) { panels.whatIf.update(new Set(["all"])); return; }
  endPreview();
  if (live.problem && state.slide !== null) notify(statusText());  // a lecture hides the top bar
  if (answer) await showAnswer(mentioned);
}
// Show the last answer: at the cell that is shown, if it is about the same source, else at its opening.
async function showAnswer(mentioned = null) {
  const { engine, recording: shown } = context, sentence = engine.liveAt;
  const isOther = mentioned !== null || engine.answered.source.text !== shown?.sentence.source.text, { place, head, step, slot, reading } = isOther ? await describedState({ ...mentioned, sentence }) : state;
  state = { ...state, sentence, place, head, step, slot, reading, node: null, other: null, quiz: "" };
  if (!panels.stage) { await renderPage(); writeAddress(); return; }
  const turn = ++renderCount, recording = await engine.answer(sentence);
  if (turn !== renderCount) return;
  context.recording = recording;
  state = clampState(state, engine.sentences.length, recording);
  start = { ...start, ...recording.opening };
  writeAddress();  // after `start` is of this answer: the address leaves out what is as in `start`
  document.querySelector("header .chooser").replaceChildren(...sentenceChooser());
  for (const [name, build] of [["strip", strip], ["stage", stage], ["dock", dock]]) attempt(() => replacePanel(name, build));
  panels.whatIf.update(new Set(["all"]));
  scrollPanels();
}

const statusText = () => (live.problem ? plain(live.problem).slice(0, 200) : live.isRunning ? t("live-running") : live.milliseconds === null ? "" : t("live-time", number(live.milliseconds, 0)));
function showStatus() {
  const node = document.querySelector(".live output");
  if (!node) return;
  node.textContent = statusText();
  node.classList.toggle("problem", Boolean(live.problem));
}

liveForm = (shown) => {
  const input = el("input", { type: "text", class: "sentence", "data-key": "live-text", "aria-label": t("live-text"), placeholder: t("live-text"), lang: context.engine.description.languages[0], dir: "auto", spellcheck: "false", autocomplete: "off", value: live.typed ?? state.text ?? shown ?? "", oninput: (event) => { live.typed = event.target.value; } });
  // A forced beginning and edited cells belong to one sentence; silenced heads stay silenced.
  const submit = (event) => {
    event.preventDefault();
    if (!input.value.trim()) return;
    live.typed = null;
    if (input.value === state.text) run();
    else set({ text: input.value, force: [], edit: [] });
  };
  return el("form", { class: "live", onsubmit: submit }, input, el("button", { type: "submit", class: "button", "data-key": "live-run", text: t("live-run") }), el("output", { class: live.problem ? "quiet problem" : "quiet", text: statusText() }));
};
makeEngine = (trace) => new LiveEngine(trace, description);
