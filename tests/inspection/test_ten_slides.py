"""The ten slides of docs/lectures: each shows what it says, and what it tells to do changes the answer."""

import re
from pathlib import Path

import pytest

from heedful.inspection.api import inspect
from heedful.inspection.lecture import parse_lecture
from heedful.translation.loading import load
from support.browser_pages import click, opened, press, settled, until
from support.live_pages import READ, answer_of

FILE = Path(__file__).parents[2] / "docs" / "lectures" / "ten-slides.toml"
LECTURE = parse_lecture(FILE.read_text(encoding="utf-8"), FILE.name)
SENTENCE, TRANSLATION = "O gato preto bebeu o leite.", "The black cat drank the milk."
LAYOUT_CHECK = (Path(__file__).parents[1] / "support" / "layout_check.js").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow  # in a real browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page as the site has it, without the evidence, which no slide shows."""
    folder = tmp_path_factory.mktemp("slides")
    return inspect("pt-en", SENTENCE, live="int8", lecture=FILE, evidence=False).save(folder / "slides.html")


class Tab:
    """The page, opened on a slide whose answer is there."""

    def __init__(self, tab, number):
        self.tab, self.number = tab, number
        is_live = "text=" in LECTURE.slides[number - 1].state
        if is_live:
            until(tab, "/\\d/.test(document.querySelector('.live output').textContent)")
        settled(tab, 100)
        assert f"{number} / 10" in tab.inner_text(".notes h1")

    def read(self):
        return self.tab.evaluate(READ)

    def do(self, act):
        return answer_of(self.tab, act)

    def press(self, key):
        return self.do(lambda: press(self.tab, key))

    def lit(self, step):
        """The source piece that a step of the translation looks at most, after a click on the step."""
        click(self.tab, f"#stage .target [data-at='{step - 1}']")
        return self.tab.inner_text("#stage .source .lit bdi") or self.tab.text_content("#stage .source .lit bdi")

    def logs(self):
        """log p before and after the changes."""
        text = self.tab.text_content(".outcome .number").replace("\u2212", "-")
        return [float(number) for number in re.findall(r"-?\d+\.\d+", text)]

    def weight(self):
        return float(self.tab.get_attribute("#cell-readout [data-weight]", "data-weight"))


@pytest.fixture
def slide(page, chromium, request):
    with opened(chromium, page, f"#lang=en&slide={request.param}") as tab:
        yield Tab(tab, request.param)


def on_slide(number):
    return pytest.mark.parametrize("slide", [number], indirect=True)


@on_slide(1)
def test_one_vector_is_not_enough(slide):
    one = slide.read()
    assert not re.search("cat|milk|black|drank", one["answer"])
    assert {slide.lit(step) for step in range(1, len(one["pieces"]) + 1)} == {"end"}
    assert slide.tab.text_content("#stage .source .lit .share") == "100\u202f%"
    assert slide.press("r")["answer"] == TRANSLATION
    assert slide.tab.locator("#stage .source .piece").count() == 9


@on_slide(2)
def test_every_step_has_its_own_mixture(slide):
    words = {"black": "preto", "cat": "gato", "drank": "beu", "milk": "leite"}
    pieces = slide.read()["pieces"]
    assert {word: slide.lit(pieces.index(word) + 1) for word in words} == words


@on_slide(3)
def test_a_weight_brings_the_lost_word_back(slide):
    before = slide.read()
    assert before["answer"] == load("pt-en")("A velha casa azul perto do rio foi vendida.").text
    assert "blue" not in before["answer"]
    assert before["pieces"][2] == "house"
    assert slide.weight() == pytest.approx(0.17, abs=0.005)
    for _ in range(6):
        after = slide.press("+")
        if "blue" in after["answer"]:
            break
    assert (after["removed"], after["added"]) == ([], ["blue"])


@on_slide(4)
def test_a_weight_is_computed(slide):
    assert slide.weight() == pytest.approx(0.69, abs=0.005)
    assert float(slide.tab.get_attribute(".equation", "data-weight")) == pytest.approx(slide.weight(), abs=1e-4)
    assert "69" in slide.tab.inner_text(".equation")
    texts = []
    for scene in range(1, 6):
        click(slide.tab, f"[data-key=scene-{scene}]")
        texts.append(slide.tab.inner_text(".equation"))
    assert len(set(texts)) == 5
    click(slide.tab, "[data-key=scene-1]")
    click(slide.tab, "[data-key=play-scenes]")
    until(slide.tab, "Number(document.querySelector('[data-key=scene]').value) > 1.2")


@on_slide(5)
def test_heads_read_in_their_own_way(slide):
    assert slide.tab.locator(".card").count() == 12
    click(slide.tab, ".card[data-head='2.4']")
    assert [slide.lit(step) for step in (2, 3, 4, 6)] == ["preto", "gato", "beu", "leite"]
    click(slide.tab, ".card[data-head='1.2']")
    assert [slide.lit(step) for step in (2, 3, 6)] == ["end", "end", "end"]
    slide.tab.select_option("#dock select:has(option[value=importance])", "importance")
    settled(slide.tab)
    cards = slide.tab.eval_on_selector_all(".card", "all => all.map((node) => node.dataset.head)")
    importance = inspect("pt-en", SENTENCE, evidence=False).trace.sentences[0].importance["cross"]
    worths = {f"{layer}.{head}": worth for layer, row in enumerate(importance, 1) for head, worth in enumerate(row, 1)}
    assert cards[0] == max(worths, key=worths.get)


@on_slide(6)
def test_a_head_is_silenced(slide):
    silenced = slide.read()
    assert silenced["chips"] == ["cross-attention 1.3 silenced"]
    assert "river" not in silenced["answer"]
    assert "man" in silenced["answer"]
    assert slide.press("s")["answer"] == "The old house near the river was sold."


@on_slide(7)
def test_without_attention_a_decoder_is_a_language_model(slide):
    silenced = slide.read()
    assert len(silenced["chips"]) == 12
    assert not re.search("cat|milk|black|drank", silenced["answer"])
    before, after = slide.logs()
    assert after < before - 50
    assert slide.press("r")["answer"] == TRANSLATION


@on_slide(8)
def test_the_rest_follows_the_forced_word(slide):
    forced = slide.read()
    assert forced["answer"] == "The bench is next to church."
    assert forced["removed"] == ["bank"]
    names = slide.tab.eval_on_selector_all(".bars .name", "all => all.map((node) => node.textContent)")
    seat = slide.do(lambda: click(slide.tab, f"[data-key=bar-{names.index('seat')}]"))
    assert seat["answer"].startswith("The seat ")
    assert "next to" not in seat["answer"]


@on_slide(9)
def test_a_beam_compares_sentences(slide):
    greedy = slide.read()
    assert greedy["answer"].startswith("We'll go")
    assert probabilities(slide) == {"'": pytest.approx(0.38, abs=0.005), "go": pytest.approx(0.37, abs=0.005)}
    click(slide.tab, "#stage .target [data-at='2']")
    shares = probabilities(slide)
    assert list(shares) == ["ll", "re"]
    assert sum(shares.values()) == pytest.approx(0.91, abs=0.01)
    totals = [last_total(slide, len(greedy["pieces"]))]
    beam = slide.do(lambda: click(slide.tab, "#what-if [data-key=beam]"))
    assert beam["answer"].startswith("We go ")
    totals.append(last_total(slide, len(beam["pieces"])))
    assert totals[1] > totals[0]


def probabilities(slide):
    """The two most probable pieces of the step."""
    read = "all => all.map((node) => [node.querySelector('.name').textContent, Number(node.dataset.p)])"
    return dict(slide.tab.eval_on_selector_all(".bars .bar", read)[:2])


def last_total(slide, count):
    """log p of the whole answer."""
    click(slide.tab, f"#stage .target [data-at='{count - 1}']")
    return float(slide.tab.locator("#dock .facts dd").last.text_content().replace("\u2212", "-"))


@on_slide(10)
def test_a_weight_is_no_proof(slide):
    silenced = slide.read()
    assert (silenced["chips"], silenced["answer"]) == (["cross-attention 2.4 silenced"], TRANSLATION)
    assert slide.tab.text_content(".outcome .difference") == "The answer stays the same."
    drops = [slide.logs()[0] - slide.logs()[1]]
    for head in ("2.3", "3.2"):
        click(slide.tab, f".card[data-head='{head}']")
        slide.press("s")
        drops.append(slide.logs()[0] - slide.logs()[1])
    assert drops == sorted(drops)
    assert drops[0] < 0.1 < 1 < drops[2]


def test_a_clicker_leads_through_all_slides(page, chromium):
    """The answer of a slide does not depend on the slide before it, and nothing overlaps, in three languages."""
    with opened(chromium, page, "#lang=en&slide=1") as tab:
        Tab(tab, 1)
        for number, slide in enumerate(LECTURE.slides, 1):
            assert slide.notes["en"] in tab.text_content(".notes p")
            assert (tab.locator("#what-if").bounding_box() is not None) == ("text=" in slide.state)
            assert tab.evaluate(LAYOUT_CHECK) == [], number
            if number < 10:
                answer_of(tab, lambda: press(tab, "PageDown"))
        assert tab.text_content(".outcome .difference") == "The answer stays the same."
    for language in ("pt", "ru"):
        with opened(chromium, page, f"#lang={language}&slide=1") as tab:
            for number, slide in enumerate(LECTURE.slides, 1):
                assert tab.text_content(".notes p") == slide.notes[language]
                settled(tab, 500)
                assert tab.evaluate(LAYOUT_CHECK) == [], (language, number)
                press(tab, "ArrowRight")
