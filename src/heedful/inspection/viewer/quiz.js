// Quiz: where will it look, and which word is next? Nothing that tells the answer is visible before the click.

const quizScore = { right: 0, asked: 0, answer: null, isDone: false };
// The first step that is still hidden.
const hiddenFrom = () => (!state.quiz ? Infinity : quizScore.answer || quizScore.isDone ? state.step + 1 : state.step);
// The kinds of questions that a recording can ask; a word needs at least two candidates.
function quizKinds({ attendsToWords, maps, sentence: { steps } }) {
  if (maps.encoder && !maps.cross && !maps.decoder) return [];  // its steps are source words
  return [...(attendsToWords ? ["look"] : []), ...(steps.length && steps.every((step) => step.top.length > 1) ? ["word"] : [])];
}
function startQuiz(kind) {
  Object.assign(quizScore, { right: 0, asked: 0, answer: null, isDone: false });
  play(false);
  set(kind ? { quiz: kind, step: 0, place: ["cross", "decoder"].find((place) => context.recording.maps[place]) ?? state.place, reading: "naive", head: context.recording.openingHead, slide: null } : { quiz: "" });
  refreshQuiz();
}
const refreshQuiz = () => { for (const listen of listeners) listen(new Set(["quiz", "answered", "step"])); };

// The possible answers: the source pieces, or the most probable candidates and the word that was chosen, alphabetically.
function quizChoices() {
  const { recording } = context;
  if (state.quiz === "look") {
    const pieces = recording.columnPieces(state.place), weights = currentMap().row(currentRow()), best = argmax(weights);
    if (asksInPicture()) return pieces.map((_, at) => ({ name: pieceLabel(pieces, at), share: weights[at], isBest: at === best, isRight: weights[at] >= weights[best] / 2 }));
    const isRight = (at) => at === best || (!isSpecial(pieces[at]) && pieces[at].word === pieces[best].word);  // any piece of the right word counts
    return pieces.map((_, at) => ({ name: pieceLabel(pieces, at), share: weights[at], isBest: at === best, isRight: isRight(at) }));
  }
  const { top } = recording.sentence.steps[state.step], chosen = recording.chosenIndex(state.step);
  const shown = top.slice(0, 4).map(([text, logp], at) => ({ name: candidateLabel(text), share: Math.exp(logp), isBest: at === chosen, isRight: at === chosen }));
  if (chosen < 0 || chosen >= shown.length) shown.splice(-1, 1, { name: pieceLabel(recording.pieces.target, state.step), share: recording.probability(state.step), isBest: true, isRight: true });
  return shown.sort((first, second) => (first.name < second.name ? -1 : 1));
}
// Whether the answer is a click into the picture.
const asksInPicture = () => state.quiz === "look" && state.place === "cross" && Boolean(context.recording.sentence.source.picture);
function answerQuiz(at) {
  if (quizScore.answer || quizScore.isDone) return;
  const choices = quizChoices(), best = choices.find((choice) => choice.isBest), picked = choices[at];
  const describe = ({ name, share }) => t("gets", quoted(name), percent(share));
  quizScore.asked += 1;
  quizScore.right += Number(picked.isRight);
  quizScore.answer = `${t(picked.isRight ? "right" : "wrong")} ${describe(best)}${picked === best ? "" : `, ${describe(picked)}`}.`;
  refreshQuiz();
}
function nextQuestion() {
  quizScore.answer = null;
  if (state.step >= context.recording.pieces.target.length - 1) quizScore.isDone = true; else set({ step: state.step + 1 });
  const isFocused = document.activeElement.matches("[data-key=next-question]");
  refreshQuiz();
  if (isFocused) (document.querySelector(".options button, [data-key=again]") ?? document.querySelector(".picture [tabindex='0']"))?.focus();
}

function showQuizBar(node, head) {
  const isOn = Boolean(state.quiz);
  document.body.classList.toggle("in-quiz", isOn);
  document.querySelector("header [data-key=quiz]")?.setAttribute("aria-pressed", String(isOn));
  node.hidden = !isOn;
  head.hidden = isOn;
  node.replaceChildren();
  if (!isOn) return;
  const question = quizScore.isDone ? t("quiz-done", quizScore.right, quizScore.asked) : quizScore.answer ?? (state.quiz === "look" ? t("quiz-look", quoted(pieceLabel(context.recording.pieces.target, state.step))) : t("quiz-word"));
  const other = state.quiz === "look" ? "word" : "look";
  fill(node, null, [el("span", null, el("bdi", { text: question })), el("small", { text: quizScore.asked ? t("quiz-score", quizScore.right, quizScore.asked) : "" }),
    quizScore.isDone ? button(t("again"), () => startQuiz(state.quiz), { "data-key": "again" }) : quizScore.answer ? button(`${t("next-question")} \u203a`, nextQuestion, { "data-key": "next-question" }) : null,
    quizKinds(context.recording).includes(other) ? button(t("quiz-" + other + "-name"), () => startQuiz(other), { "data-key": "other-quiz" }) : null, button(t("exit"), () => startQuiz(""), { "data-key": "exit-quiz" })]);
}

// The panel that replaces the tabs during a quiz.
function quizPanel() {
  const node = el("div", { class: "quiz-options" });
  return {
    node,
    update() {
      const { recording } = context, isAnswered = Boolean(quizScore.answer);
      if (quizScore.isDone) { node.replaceChildren(el("p", { class: "result" }, el("b", { text: `${quizScore.right} / ${quizScore.asked}` }), el("bdi", { text: plain(recording.sentence.target.text).slice(0, 400) }))); return; }
      if (asksInPicture()) { node.replaceChildren(el("p", { text: t(isAnswered ? "quiz-after" : "quiz-picture") })); return; }
      const choices = quizChoices();
      node.classList.toggle("many", choices.length > 4);
      const focused = node.contains(document.activeElement) ? [...node.querySelectorAll("button")].indexOf(document.activeElement) : -1;
      node.replaceChildren(el("p", { text: t(isAnswered ? "quiz-after" : "quiz-before") }), el("div", { class: "options" }, ...choices.map(({ name, share, isBest }, at) => {
        const option = button("", () => answerQuiz(at), { class: isAnswered && isBest ? "right" : "", disabled: isAnswered, style: isAnswered ? { "--share": `${(100 * share).toFixed(1)}%` } : null });
        option.append(el("bdi", { text: name }), el("small", { text: isAnswered ? percent(share) : "?" }));
        return option;
      })));
      if (focused >= 0) (isAnswered ? document.querySelector("[data-key=next-question]") : node.querySelectorAll("button")[focused])?.focus();
    },
  };
}
