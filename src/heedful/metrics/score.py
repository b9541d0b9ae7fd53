"""How good is a translation? sacreBLEU's metrics behind one small face: strings in, a number and its signature out.

    score("bleu", hypotheses, references)        # Score(name="bleu", value=41.2, signature="nrefs:1|case:mixed|...")
    interval("chrf", hypotheses, [references_a, references_b])        # the same with its 95 % interval

A value without its signature says little: two BLEUs of the same text may be three points apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import HeedfulError, did_you_mean
from heedful.metrics.ngrams import SMOOTHINGS, f_score, rouge

SAMPLES = 1000  # of a bootstrap, as sacreBLEU takes
MOST = 2_500_000_000  # bytes: sacreBLEU holds all its samples at once
BOOTSTRAP_BYTES = 100  # of one line in one sample, at most

Lines = Sequence[str]
References = Sequence[str] | Sequence[Sequence[str]]  # the lines of one reference, or of several


@dataclass(frozen=True, slots=True)
class Options:
    """How text is compared; whatever has no such option has its own, and its signature says it."""

    tokenization: str = "13a"  # of BLEU and ROUGE
    lowercase: bool = False  # TER always ignores case
    smoothing: str = "exp"  # of BLEU


DEFAULT = Options()


@dataclass(frozen=True, slots=True)
class Score:
    """A value between 0 and 100 (TER: and more) and what exactly it measures."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True, slots=True)
class Interval(Score):
    """Of 95 % of resampled corpora the score lies within about `margin` of `mean`."""

    mean: float
    margin: float


@dataclass(frozen=True, slots=True)
class Measure:
    """A line of METRICS: what it is called, and how sacreBLEU's metric is made."""

    label: str
    make: Callable[[Options, Sequence[Lines]], Any]
    lower_is_better: bool = False

    @property
    def title(self) -> str:
        """What it is called, and that it is to be small where it is."""
        return f"{self.label} (lower is better)" if self.lower_is_better else self.label


# ------------------------------------------------------------------------------- sacrebleu is imported on demand


def bleu_of(options: Options, references: Sequence[Lines] | None = None, **more: Any) -> Any:
    """sacreBLEU's BLEU with these options."""
    from sacrebleu import BLEU

    for what, asked, known in (
        ("tokenization", options.tokenization, BLEU.TOKENIZERS),
        ("smoothing", options.smoothing, SMOOTHINGS),
    ):
        if asked not in known:
            raise HeedfulError(f"unknown {what} `{asked}`" + did_you_mean(asked, known))
    try:
        return BLEU(
            lowercase=options.lowercase,
            force=True,  # text that looks tokenized is for `suspicions` to tell, once
            tokenize=options.tokenization,
            smooth_method=options.smoothing,
            references=references,
            **more,
        )
    except (ImportError, RuntimeError) as error:  # MeCab and its dictionaries are extras of sacreBLEU
        raise HeedfulError(
            f"the tokenization {options.tokenization} needs more than is installed: {' '.join(str(error).split())}"
        ) from None


def tokenizer(options: Options) -> Callable[[str], list[str]]:
    """Text -> tokens, as BLEU sees them."""
    cut = bleu_of(options).tokenizer
    return lambda text: cut(cased(text, options).rstrip()).split()


def cased(text: str, options: Options) -> str:
    """Lower-cased if that was asked for."""
    return text.lower() if options.lowercase else text


def _chrf(words: int) -> Callable[[Options, Sequence[Lines]], Any]:
    def make(options: Options, references: Sequence[Lines]) -> Any:
        from sacrebleu import CHRF

        return CHRF(word_order=words, lowercase=options.lowercase, references=references)

    return make


def _ter(_options: Options, references: Sequence[Lines]) -> Any:
    from sacrebleu import TER

    return TER(references=references)


def _rouge(kind: int | str, of: str) -> Callable[[Options, Sequence[Lines]], Any]:
    def value(hypothesis: Sequence[str], reference: Sequence[str]) -> float:
        found = rouge(hypothesis, reference, kind)
        return found.recall if of == "recall" else f_score(found.precision, found.recall)

    def make(options: Options, references: Sequence[Lines]) -> Any:
        from heedful.metrics.means import SentenceMean

        said = {"case": case(options), "tok": options.tokenization, "stem": "no", "of": of}
        return SentenceMean(f"ROUGE-{kind}".upper(), value, tokenizer(options), said, references)

    return make


def _exact(options: Options, references: Sequence[Lines]) -> Any:
    from heedful.metrics.means import SentenceMean

    def prepare(text: str) -> str:
        return cased(text, options).strip()

    said = {"case": case(options)}
    return SentenceMean("exact", lambda hypothesis, one: float(hypothesis == one), prepare, said, references)


def case(options: Options) -> str:
    """As sacreBLEU's signatures say it."""
    return "lc" if options.lowercase else "mixed"


METRICS: dict[str, Measure] = {
    "bleu": Measure("BLEU", bleu_of),
    "chrf": Measure("chrF", _chrf(0)),
    "chrf++": Measure("chrF++", _chrf(2)),
    "ter": Measure("TER", _ter, lower_is_better=True),
    "rouge-1": Measure("ROUGE-1", _rouge(1, "F1")),
    "rouge-2": Measure("ROUGE-2", _rouge(2, "F1")),
    "rouge-l": Measure("ROUGE-L", _rouge("l", "F1")),
    "rouge-1-recall": Measure("ROUGE-1 recall", _rouge(1, "recall")),
    "rouge-2-recall": Measure("ROUGE-2 recall", _rouge(2, "recall")),
    "rouge-l-recall": Measure("ROUGE-L recall", _rouge("l", "recall")),
    "exact": Measure("exact match", _exact),
}


# ---------------------------------------------------------------------------------------------------- the scores


def measure(name: str) -> Measure:
    """A line of METRICS, or an error."""
    if name not in METRICS:
        raise HeedfulError(f"unknown metric `{name}`" + did_you_mean(name, METRICS))
    return METRICS[name]


def metric_of(name: str, references: References, options: Options) -> Any:
    """A metric of sacreBLEU's that has read its references."""
    return measure(name).make(options, several(references))


def several(references: References) -> list[list[str]]:
    """One or more references as a list of them."""
    alone = isinstance(references[0], str)
    return [[str(one) for one in references]] if alone else [list(one) for one in references]


def matched(hypotheses: Lines, references: References) -> None:
    """An error where there are not as many references as translations."""
    if not hypotheses or not references:
        raise HeedfulError("there is nothing to score")
    for one in several(references):
        if len(hypotheses) != len(one):
            raise HeedfulError(f"{len(hypotheses):,} translations but {len(one):,} references: they must be as many")


def score(name: str, hypotheses: Lines, references: References, *, options: Options = DEFAULT) -> Score:
    """One metric of a whole corpus, which has one reference or several."""
    matched(hypotheses, references)
    metric = metric_of(name, references, options)
    return Score(name, float(metric.corpus_score(hypotheses, None).score), str(metric.get_signature()))


def interval(
    name: str, hypotheses: Lines, references: References, *, options: Options = DEFAULT, samples: int = SAMPLES
) -> Interval:
    """The score with its bootstrap interval, sacreBLEU's own: the signature says how many samples, and their seed."""
    matched(hypotheses, references)
    affordable(len(hypotheses), samples)
    metric = metric_of(name, references, options)
    found = metric.corpus_score(hypotheses, None, n_bootstrap=samples)
    return Interval(name, float(found.score), str(metric.get_signature()), float(found._mean), float(found._ci))


def affordable(lines: int, samples: int, each: int = BOOTSTRAP_BYTES) -> None:
    """An error instead of all memory."""
    if samples < 2:
        raise HeedfulError(f"{samples} samples say nothing: take some hundred, or more")
    if lines * samples * each > MOST:
        raise HeedfulError(
            f"{samples:,} samples of {lines:,} lines would take {lines * samples * each / 1e9:.0f} GB of memory: take "
            f"at most {max(2, MOST // (lines * each)):,} samples, or fewer lines"
        )


def sentence_scores(name: str, hypotheses: Lines, references: References, *, options: Options = DEFAULT) -> list[float]:
    """The metric of every sentence by itself; of BLEU with the order that short sentences allow."""
    matched(hypotheses, references)
    metric = metric_of(name, references, options)
    metric.effective_order = True  # an attribute of BLEU alone
    statistics = metric._extract_corpus_statistics(hypotheses, None)
    return [float(metric._compute_score_from_stats(one).score) for one in statistics]
