// What computes. Panels ask an engine for answers and never read the trace themselves. This engine has recorded answers;
// another one could run the model, and would say yes to more actions.

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
  // Whether this engine can run, force, silence or steer: a recording cannot.
  can() { return false; }
  async answer(at) {
    this.recordings[at] ??= new Recording(this.sentences[at]).open();
    return this.recordings[at];
  }
  // Other answers for the same source.
  alternatives(at) {
    const { text } = this.sentences[at].source;
    return this.sentences.map((sentence, index) => [sentence, index]).filter(([sentence, index]) => index !== at && sentence.source.text === text);
  }
}
