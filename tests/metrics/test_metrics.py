import pytest
import sacrebleu

from heedful.errors import HeedfulError
from heedful.metrics import METRICS, score

HYPOTHESES = ["The cat sat on the mat.", "A dog!", ""]
REFERENCES = ["The cat sat on a mat.", "The dog!", "Nothing."]


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf), ("ter", sacrebleu.corpus_ter)],
)
def test_the_number_is_that_of_sacrebleu(name, theirs):
    found = score(name, HYPOTHESES, REFERENCES)
    assert found.value == theirs(HYPOTHESES, [REFERENCES]).score
    assert f"version:{sacrebleu.__version__}" in found.signature


@pytest.mark.parametrize("name", list(METRICS))
def test_a_copy_is_perfect(name):
    assert score(name, REFERENCES, REFERENCES).value == pytest.approx(0.0 if name == "ter" else 100.0)


def test_misuse():
    with pytest.raises(HeedfulError, match="did you mean `bleu`"):
        score("blue", HYPOTHESES, REFERENCES)
    with pytest.raises(HeedfulError, match="3 translations but 2 references"):
        score("bleu", HYPOTHESES, REFERENCES[:2])
    with pytest.raises(HeedfulError, match="nothing to score"):
        score("bleu", [], [])
