// Heads: every head of a place with its map, what it does, and what silencing it costs.

const ORDERS = { entropy: (facts) => facts.entropy, diagonality: (facts) => -facts.diagonality, importance: (facts) => -(facts.importance ?? -Infinity) };
function sortedHeads() {
  const { recording } = context, heads = recording.heads(state.place);
  if (state.sort === "layer") return heads;
  return [...heads].sort((a, b) => ORDERS[state.sort](recording.describeHead(state.place, a)) - ORDERS[state.sort](recording.describeHead(state.place, b)));
}
function moveHead(by) {
  if (!context.recording.places.length) return;
  const heads = context.recording.places.flatMap((place) => context.recording.heads(place).map((head) => [place, head]));
  const at = heads.findIndex(([place, head]) => place === state.place && sameHead(head, state.head)), [place, head] = heads[(Math.max(at, by > 0 ? -1 : 0) + by + heads.length) % heads.length];
  set({ place, head });
}

function headsGrid() {
  const { recording } = context;
  if (!recording.places.length) return { node: el("p", { class: "remark", text: t("no-heads") }), update() {} };
  const heads = sortedHeads(), hasImportance = Boolean(recording.sentence.importance?.[state.place]);
  const most = Math.max(1e-6, ...heads.map((head) => Math.abs(recording.importance(state.place, head) ?? 0)));
  const cards = heads.map((head) => {
    const facts = recording.describeHead(state.place, head), worth = facts.importance, label = facts.label ? t("head-" + facts.label) : "";
    const value = state.sort === "entropy" || state.sort === "diagonality" ? facts[state.sort] : worth;
    const node = button("", () => set({ head }), { class: whatIf?.isSilenced(state.place, head) ? "card silenced" : "card", "data-head": headName(head), title: `${headLabel(state.place, head)}${label ? `, ${label}` : ""}`, tabindex: "-1", ondblclick: () => set({ head, tab: "map" }) });
    node.append(thumbnail(state.place, head, recording.tiles(state.place, head)), el("span", { class: "foot-line" }, el("b", { text: headName(head) }), el("small", { class: "role", text: label }),
      worth === null ? null : el("span", { class: "worth-bar", "aria-hidden": "true" }, el("b", { class: worth < 0 ? "negative" : "", style: { width: `${(100 * Math.abs(worth)) / most}%` } })), value === null ? null : el("small", { class: "number", text: number(value) })));
    return node;
  });
  cards.forEach((node, at) => node.addEventListener("keydown", (event) => {
    if (state.slide !== null) return;  // arrow keys belong to the lecture
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && node.getAttribute("aria-pressed") === "true") { event.preventDefault(); set({ tab: "map" }); }
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (at + by + cards.length) % cards.length;
    cards[next].focus();
    set({ head: heads[next] });
  }));
  const perRow = isNarrow() ? 2 : cards.length > 24 ? 12 : cards.length > 12 ? 8 : Math.max(2, Math.min(6, cards.length));
  const controls = el("div", { class: "panel-head" },
    radios(t("place"), recording.places.map((place) => [place, t("at-" + place)]), state.place, (place) => set({ place, head: recording.defaultHead(place) })),
    choice(t("sort"), ["layer", "entropy", "diagonality", ...(hasImportance ? ["importance"] : [])].map((key) => [key, t("by-" + key)]), state.sort, (sort) => set({ sort })),
    el("small", { class: "note", text: t(state.sort === "entropy" || state.sort === "diagonality" ? `${state.sort}-note` : recording.inPlaces(state.place, heads[0]) ? "heads-note-tiles" : hasImportance ? "worth-note" : "heads-note-plain") }));
  const node = el("div", { class: "stacked" }, controls, el("div", { class: "cards scroller", role: "group", tabindex: "0", "aria-label": t("heads"), style: { "--columns": String(perRow) } }, ...cards), el("p", { class: "caveat" }, t("caveat")));
  return {
    node,
    update() {
      cards.forEach((card, at) => {
        const isCurrent = sameHead(heads[at], state.head);
        card.setAttribute("aria-pressed", String(isCurrent));
        card.tabIndex = isCurrent || (!state.head && at === 0) ? 0 : -1;
      });
    },
  };
}
