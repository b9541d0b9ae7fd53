// Compare: where two answers for the same source part, with their probabilities and maps.

function comparePanel() {
  const { engine, recording } = context, others = engine.alternatives(state.sentence), { tree, target } = recording.sentence;
  if (!others.length) {
    const differs = isNumber(tree?.greedy_score) && tree.greedy !== target.text;
    return { node: el("div", { class: "stacked" }, differs ? el("p", { class: "difference" }, el("small", { text: `${t("greedy-says")} ` }), ...markDifference(target.text, tree.greedy)) : null, el("p", { class: "remark", text: t("no-compare") })), update() {} };
  }
  const chosen = () => (others.some(([, at]) => at === state.other) ? state.other : others[0][1]), body = el("div", { class: "two compare" });
  const node = el("div", { class: "stacked" }, others.length > 1 ? el("div", { class: "panel-head" }, choice(t("against"), others.map(([sentence, at]) => [String(at), brief(sentence.name, 40)]), String(chosen()), (at) => set({ other: Number(at) }))) : null, body);
  const wordsOf = (answer) => groupWords(answer.pieces.target).filter((group) => !group.special);
  const answerOf = (answer, common) => el("p", { class: "compared", dir: rightToLeft(answer.sentence.target.text) ? "rtl" : "ltr" }, ...wordsOf(answer).map((group, position) => {
    const share = Math.exp(group.members.reduce((sum, at) => sum + answer.sentence.steps[at].logp, 0));
    return el("span", { class: `compared-word${common.has(position) ? "" : " differs"}`, title: `${t("probability")} ${percent(share)}` }, el("bdi", { text: brief(group.text, 24) }), el("i", { style: { transform: `scaleX(${share.toFixed(3)})` } }));
  }));
  const rule = (answer) => answer.sentence.tree?.length ?? "";
  const draw = async () => {
    const other = await engine.answer(chosen()), from = firstDifference(recording, other);
    const same = from >= recording.pieces.target.length && from >= other.pieces.target.length, comparable = rule(recording) === rule(other);  // scores by different rules are not
    const summary = same ? t("same-answer") : t("they-part", from + 1);
    const hasSameHeads = (answer) => String(answer.maps.cross?.shape.slice(0, 2)) === String(recording.maps.cross?.shape.slice(0, 2));
    const headOf = (answer) => (!hasSameHeads(answer) ? answer.openingHead : state.place === "cross" ? state.head : recording.openingHead);
    const pairs = commonPairs(...[recording, other].map((answer) => wordsOf(answer).map((group) => group.text)));
    const column = (answer, side) => el("div", { class: "stacked" },
      el("div", { class: "panel-head" }, el("h3", { text: brief(answer.sentence.name, 40) }), answer.attendsToWords ? el("span", { class: "tag", text: `${t("at-cross")} ${headName(headOf(answer))}` }) : null,
        el("small", { text: `log p ${number(answer.sentence.logp)}${comparable ? ` \u00b7 ${t("score")} ${number(answer.sentence.score, 3)}` : ""}` })),
      answerOf(answer, new Set(pairs.map((pair) => pair[side]))), answer.attendsToWords ? el("div", { class: "room" }) : el("p", { class: "remark", text: t(answer.maps.cross ? "blind" : "no-heads") }));
    const columns = [recording, other].map(column);
    body.replaceChildren(el("p", { class: "summary", text: summary }), ...columns);
    const rooms = columns.map((node) => node.querySelector(".room")), sizes = rooms.map((room) => room && [room.clientWidth, room.clientHeight || 22 * rootSize()]);
    [recording, other].forEach((answer, at) => rooms[at]?.replaceWith(labeledMap(answer.wordMap("cross", headOf(answer), state.reading), ...sizes[at])));
  };
  return { node, resize: draw, update(changed) { if (["other", "all", "head", "place", "reading"].some((key) => changed.has(key))) draw(); } };
}

// What two lists have in common, as pairs of positions: the longest common subsequence.
function commonPairs(a, b) {
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1)), pairs = [];
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (lengths[i][j + 1] > lengths[i + 1][j]) j++; else i++;
  }
  return pairs;
}
// Both texts as one: what is only in the first is struck out, what is only in the second is marked.
function markDifference(before, after) {
  const [a, b] = [before, after].map((text) => plain(text).slice(0, 2000).split(" ")), parts = [];
  let i = 0, j = 0;
  for (const [nextA, nextB] of [...commonPairs(a, b), [a.length, b.length]]) {
    for (; i < nextA; i++) parts.push(el("del", { text: a[i] }), " ");
    for (; j < nextB; j++) parts.push(el("ins", { text: b[j] }), " ");
    if (i < a.length) parts.push(a[i], " ");
    i++;
    j++;
  }
  return parts;
}
