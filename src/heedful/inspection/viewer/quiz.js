// Quiz: where will it look, and which word is next? Nothing that tells the answer is visible before the click.

const quizScore = { right: 0, asked: 0, answer: null, isDone: false };
// The first step that is still hidden.
const hiddenFrom = () => (!state.quiz ? Infinity : quizScore.answer || quizScore.isDone ? state.step + 1 : state.step);
// The kinds of questions that a recording can ask; a word needs at least two candidates.
function quizKinds({ attendsToWords, sentence: { steps } }) {
  return [...(attendsToWords ? ["look"] : []), ...(steps.length && steps.every((step) => step.top.length > 1) ? ["word"] : [])];
}
function startQuiz(kind) {
  Object.assign(quizScore, { right: 0, asked: 0, answer: null, isDone: false });
  play(false);
  set(kind ? { quiz: kind, step: 0, place: context.recording.maps.cross ? "cross" : state.place, head: context.recording.openingHead, slide: null } : { quiz: "" });
  refreshQuiz();
}
const refreshQuiz = () => { for (const listen of listeners) listen(new Set(["quiz", "answered", "step"])); };

function answerQuiz(at) {
  if (quizScore.answer || quizScore.isDone) return;
  const { recording } = context, isLook = state.quiz === "look";
  const shares = isLook ? Array.from(recording.attendsToWords ? currentMap().row(currentRow()) : []) : quizOptions().map(([, share]) => share);
  const pieces = recording.columnPieces(state.place), best = argmax(shares), name = (index) => quoted(isLook ? pieceLabel(pieces, index) : candidateLabel(quizOptions()[index][0]));
  const isRight = at === best || (isLook && !isSpecial(pieces[at]) && pieces[at].word === pieces[best].word);  // any piece of the right word counts
  quizScore.asked += 1;
  quizScore.right += Number(isRight);
  quizScore.answer = `${t(isRight ? "right" : "wrong")} ${t("gets", name(best), percent(shares[best]))}${at === best ? "" : `, ${t("gets", name(at), percent(shares[at]))}`}.`;
  refreshQuiz();
}
function nextQuestion() {
  quizScore.answer = null;
  if (state.step >= context.recording.pieces.target.length - 1) quizScore.isDone = true; else set({ step: state.step + 1 });
  const isFocused = document.activeElement.matches("[data-key=next-question]");
  refreshQuiz();
  if (isFocused) document.querySelector(".options button, [data-key=again]")?.focus();
}
// Four candidates in alphabetical order; the most probable one is right.
const quizOptions = () => context.recording.sentence.steps[state.step].top.slice(0, 4).map(([text, logp]) => [text, Math.exp(logp)]).sort((a, b) => (a[0] < b[0] ? -1 : 1));

function showQuizBar(node, head) {
  document.body.classList.toggle("in-quiz", Boolean(state.quiz));
  node.hidden = !state.quiz;
  head.hidden = Boolean(state.quiz);
  node.replaceChildren();
  if (!state.quiz) return;
  const question = quizScore.isDone ? t("quiz-done", quizScore.right, quizScore.asked) : quizScore.answer ?? (state.quiz === "look" ? t("quiz-look", quoted(pieceLabel(context.recording.pieces.target, state.step))) : t("quiz-word"));
  const other = state.quiz === "look" ? "word" : "look";
  fill(node, null, [el("span", null, el("bdi", { text: question })), el("small", { text: quizScore.asked ? t("quiz-score", quizScore.right, quizScore.asked) : "" }),
    quizScore.isDone ? button(t("again"), () => startQuiz(state.quiz), { "data-key": "again" }) : quizScore.answer ? button(`${t("next-question")} \u203a`, nextQuestion, { "data-key": "next-question" }) : null,
    quizKinds(context.recording).includes(other) ? button(t("quiz-" + other + "-name"), () => startQuiz(other), { "data-key": "other-quiz" }) : null, button(t("exit"), () => startQuiz(""), { "data-key": "exit-quiz" })]);
}

// What stands in the place of the tabs during a quiz.
function quizPanel() {
  const node = el("div", { class: "quiz-options" });
  return {
    node,
    update() {
      const { recording } = context, pieces = recording.columnPieces(state.place), isAnswered = Boolean(quizScore.answer);
      if (quizScore.isDone) { node.replaceChildren(el("p", { class: "result" }, el("b", { text: `${quizScore.right} / ${quizScore.asked}` }), el("bdi", { text: plain(recording.sentence.target.text).slice(0, 400) }))); return; }
      const shares = state.quiz === "look" ? Array.from(currentMap().row(currentRow())) : quizOptions().map(([, share]) => share), best = argmax(shares);
      const names = state.quiz === "look" ? pieces.map((_, at) => pieceLabel(pieces, at)) : quizOptions().map(([text]) => candidateLabel(text));
      node.classList.toggle("many", names.length > 4);
      const focused = node.contains(document.activeElement) ? [...node.querySelectorAll("button")].indexOf(document.activeElement) : -1;
      node.replaceChildren(el("p", { text: t(isAnswered ? "quiz-after" : "quiz-before") }), el("div", { class: "options" }, ...names.map((name, at) => {
        const option = button("", () => answerQuiz(at), { class: isAnswered && at === best ? "right" : "", disabled: isAnswered });
        option.append(el("bdi", { text: name }), el("small", { text: isAnswered ? percent(shares[at]) : "?" }));
        return option;
      })));
      if (focused >= 0) (isAnswered ? document.querySelector("[data-key=next-question]") : node.querySelectorAll("button")[focused])?.focus();
    },
  };
}
