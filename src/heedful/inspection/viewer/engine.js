// What computes: an engine answers with recordings, the film and the lecture. This engine has them in a trace; that of live.js
// runs the model.

class TraceEngine {
  constructor(trace) {
    this.trace = trace;
    this.recordings = [];
  }
  get title() { return this.trace.title || "heedful inspect"; }
  get maker() { return this.trace.maker ?? "heedful"; }
  get film() { return this.trace.film; }
  get lecture() { return this.trace.lecture; }
  get sentences() { return this.trace.sentences ?? []; }
  async answer(at) {
    this.recordings[at] ??= new Recording(this.sentences[at]).open();
    return this.recordings[at];
  }
  // Other answers for the same source.
  alternatives(at) {
    const { text, picture } = this.sentences[at].source;
    return this.sentences.map((sentence, index) => [sentence, index]).filter(([sentence, index]) => index !== at && sentence.source.text === text && sentence.source.picture === picture);
  }
}
// live.js and whatif.js set them for a page that contains its model.
let makeEngine = (trace) => new TraceEngine(trace), liveForm = null, whatIf = null;
