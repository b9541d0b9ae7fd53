// The engine behind messages, in a worker or in slices on the page's own thread:
//
//     { kind: "open", description, data }        -> { kind: "opened" } or { kind: "failed", message }
//     { kind: "translate", id, text, options }   -> { kind: "translated", id, sentence } or { kind: "failed", id, message }
//
// A newer request replaces one that is not finished.

import { editRow } from "./attention.mjs";
import { Model } from "./model.mjs";

const SLICE = 12;  // milliseconds of work before the next pause

export function serve(answer) {
  let model = null, problem = "", latest = 0;
  const pause = () => new Promise((resume) => setTimeout(resume, 0));
  return async ({ kind, id, description, data, text, options }) => {
    if (kind === "open") {
      try {
        model = new Model(description, data);
        answer({ kind: "opened" });
      } catch (error) {
        problem = `the model of this page cannot be opened: ${error.message}`;
        answer({ kind: "failed", message: problem });
      }
      return;
    }
    latest = id;
    try {
      if (!model) throw new Error(problem);
      const steps = model.translate(text, options);
      for (let until = performance.now() + SLICE; ;) {
        const { done, value } = steps.next();
        if (done) { answer({ kind: "translated", id, sentence: value }); return; }
        if (performance.now() < until) continue;
        await pause();
        if (latest !== id) return;
        until = performance.now() + SLICE;
      }
    } catch (error) { answer({ kind: "failed", id, message: error.message }); }
  };
}

// A page finds them under these names; in a worker, the messages come from the page.
Object.assign(globalThis, { serveLive: serve, editRow });
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  const receive = serve((message) => self.postMessage(message));
  self.addEventListener("message", ({ data }) => receive(data));
}
