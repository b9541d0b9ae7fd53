"""Read what a live page answers."""

from support.browser_pages import settled, until

ADDRESS = 260  # milliseconds: state.js writes the address 200 after the last change
READ = """() => {
    const text = (selector) => document.querySelector(selector)?.textContent ?? "";
    const all = (selector, read) => [...document.querySelectorAll(selector)].map(read);
    return {
        answer: text("#stage .answer").trim(), chips: all(".chip", (node) => node.textContent.slice(0, -2)),
        removed: all(".outcome del", (node) => node.textContent),
        added: all(".outcome ins", (node) => node.textContent),
        logp: text(".outcome .number"), status: text(".live output"),
        pieces: all("#stage .target .piece bdi", (node) => node.textContent), hash: location.hash,
    };
}"""
ANSWERED = """(() => {
    const old = document.querySelector("#stage[data-old]"), status = document.querySelector(".live output").textContent;
    return !old && /\\d/.test(status);
})()"""

IDLE = "document.querySelector('#what-if')?.getAttribute('aria-busy') !== 'true'"


def answer_of(tab, act):
    """What the page shows after its answer to an action, and after late answers to earlier ones."""
    settled(tab)
    until(tab, IDLE)
    tab.eval_on_selector("#stage", "node => { node.dataset.old = 1; }")
    act()
    until(tab, ANSWERED)
    until(tab, IDLE)
    settled(tab, ADDRESS)
    return tab.evaluate(READ)
