// What overlaps or is cut off in the page of `heedful inspect`, as a list of sentences.
() => {
  const problems = [], narrow = innerWidth <= 860, root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)].filter((node) => node.getClientRects().length && getComputedStyle(node).visibility !== "hidden");
  const box = (node) => node.getBoundingClientRect();
  const name = (node) => `${node.tagName.toLowerCase()}.${(node.getAttribute("class") ?? node.id).replace(/ /g, ".")} "${node.textContent.trim().slice(0, 24)}"`;
  const overlap = (a, b, slack = 1) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > slack && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > slack;
  const disjoint = (nodes, what, slack) => {
    const boxes = nodes.map(box);
    for (let i = 0; i < nodes.length; i++) for (let j = i + 1; j < nodes.length; j++) {
      if (!nodes[i].contains(nodes[j]) && overlap(boxes[i], boxes[j], slack)) { problems.push(`${what}: ${name(nodes[i])} overlaps ${name(nodes[j])}`); return; }
    }
  };
  const siblingsDisjoint = (parents, what, slack) => { for (const parent of all(parents)) disjoint([...parent.children].filter((node) => node.getClientRects().length), what, slack); };
  const inside = (nodes, parent, what, slack = 1) => {
    if (!parent) return;
    const outer = box(parent), out = nodes.find((node) => { const inner = box(node); return inner.left < outer.left - slack || inner.right > outer.right + slack || inner.top < outer.top - slack || inner.bottom > outer.bottom + slack; });
    if (out) problems.push(`${what}: ${name(out)} leaves ${name(parent)}`);
  };

  if (root.scrollWidth > innerWidth) problems.push(`the page is ${root.scrollWidth - innerWidth} pixels too wide`);
  if (!narrow && root.scrollHeight > innerHeight) problems.push(`the page is ${root.scrollHeight - innerHeight} pixels too high`);
  const tabBody = document.getElementById("tab-body");
  if (tabBody && tabBody.scrollWidth > tabBody.clientWidth + 1) problems.push(`the tab is ${tabBody.scrollWidth - tabBody.clientWidth} pixels too wide`);
  disjoint(all(narrow ? "header, main > .panel" : "header, main > .panel, .lecture .notes"), "panels");  // notes stick to the bottom of a narrow page
  siblingsDisjoint("header", "header");
  siblingsDisjoint(".tools", "tools");
  inside(all("header *"), document.querySelector("header"), "header");
  inside(all(".strip .block, .strip .head, .strip .node, .showing, .showing *"), all(".strip")[0], "strip");
  disjoint(all(".strip > .block, .strip > .node, .strip > .showing"), "strip");
  disjoint(all(".strip .head"), "heads", 0.5);
  disjoint(all("#stage .word"), "words");
  siblingsDisjoint("#stage .panel-head", "stage head");
  siblingsDisjoint("#stage .foot", "stage foot");
  disjoint(all("#stage .panel-head, #stage .quiz-bar, #stage > .scroller, #stage > .remark, #stage .foot"), "stage", narrow ? 1e9 : 1);
  for (const side of [".top", ".left"]) {
    const labels = all(`.map ${side} .label`);
    disjoint(labels, "labels of the map", 0.5);
    const isUpright = side === ".top" && document.querySelector(".map.upright"), room = (label) => (side === ".left" ? box(label).height : isUpright ? box(label).width : Infinity);
    const clipped = labels.find((label) => parseFloat(getComputedStyle(label).fontSize) > room(label) + 1);
    if (clipped) problems.push(`labels of the map: ${name(clipped)} is larger than its cell`);
  }
  disjoint(all(".tree .pill rect"), "pills", 0.5);
  for (const pill of all(".tree .pill")) if (box(pill.querySelector("text")).width > box(pill.querySelector("rect")).width + 1) { problems.push(`pills: ${name(pill)} is too long`); break; }
  const accents = 0.35 * parseFloat(getComputedStyle(root).fontSize);  // boxes of text include room for accents
  disjoint(all(".scene text"), "scene", accents);
  inside(all(".scene text"), document.querySelector(".scene"), "scene", accents);
  for (const drawing of all(".scene svg, .curves")) {
    const { width, height } = drawing.viewBox.baseVal, out = [...drawing.querySelectorAll("text")].find((text) => text.getBBox().x < 0 || text.getBBox().x + text.getBBox().width > width || text.y.baseVal[0].value > height);
    if (out) problems.push(`drawing: ${name(out)} is cut off`);
  }
  for (const drawing of all(".curves")) inside([drawing], drawing.parentElement, "curves");
  const shares = all("#stage .share").filter((share) => share.textContent);
  disjoint(shares, "weights", 0);
  const outside = narrow && shares.find((share) => box(share).left < 0 || box(share).right > innerWidth);
  if (outside) problems.push(`weights: ${name(outside)} leaves the window`);
  siblingsDisjoint("#tab-body .stacked", "tab");
  siblingsDisjoint("#tab-body .panel-head", "tab head");
  siblingsDisjoint("#tab-body .arithmetic", "arithmetic");
  siblingsDisjoint("#tab-body .two", "columns");
  disjoint(all(".card"), "cards");
  siblingsDisjoint(".foot-line", "cards");
  siblingsDisjoint("#tab-body .bars", "bars");
  disjoint(all(".curves text"), "curves", 2);
  for (const node of all(".menu[open] .pop, .menu[open] .pop *, dialog[open], dialog[open] *")) if (box(node).left < 0 || box(node).right > innerWidth) { problems.push(`${name(node)} leaves the window`); break; }
  siblingsDisjoint(".quiz-bar", "quiz");
  siblingsDisjoint(".options", "options of the quiz");
  siblingsDisjoint(".lecture .notes", "notes");
  siblingsDisjoint(".evidence", "evidence");
  siblingsDisjoint(".film", "film");
  for (const button of all("button:not(.piece):not(.column), [role=tab], summary, h2, h3, .tag, .segments")) {
    if (button.scrollWidth > button.clientWidth + 1 && button.clientWidth) problems.push(`${name(button)} is cut off by ${button.scrollWidth - button.clientWidth} pixels`);
  }
  return problems;
}
