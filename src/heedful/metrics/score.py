"""Score translations with sacreBLEU's metrics, ROUGE, METEOR, NIST, CIDEr and exact match.

    score("bleu", hypotheses, references)    # MetricScore(name="bleu", value=41.2, signature="nrefs:1|...")
    interval("chrf", hypotheses, [references_a, references_b])    # with a 95 % interval

Report the signature with the value: two BLEU scores of the same text may differ by three points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Any

from heedful.errors import HeedfulError, did_you_mean, require
from heedful.metrics.ngrams import SMOOTHINGS, cider, document_frequencies, f_score, meteor, rouge, tf_idf

DEFAULT_SAMPLES = 1000  # sacreBLEU's default for a bootstrap
MAX_BOOTSTRAP_BYTES = 2_500_000_000  # sacreBLEU keeps all samples in memory
BOOTSTRAP_BYTES_PER_LINE = 100  # of one sample, at most

Lines = Sequence[str]
References = Sequence[str] | Sequence[Sequence[str]]  # the lines of one reference, or of several


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """How texts are compared. Metrics ignore options that they lack; their signature states what they do."""

    tokenization: str = "13a"  # of BLEU, ROUGE, METEOR, NIST and CIDEr
    lowercase: bool = False  # TER and METEOR always ignore case
    smoothing: str = "exp"  # of BLEU
    stemmer: str | None = None  # of METEOR: a language, such as english


DEFAULT_OPTIONS = MetricOptions()


@dataclass(frozen=True, slots=True)
class MetricScore:
    """A value, between 0 and 100 except for TER, NIST and CIDEr, and the signature that describes its computation."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True, slots=True)
class Interval(MetricScore):
    """A score with its 95 % interval: `mean` plus or minus `margin` over resampled corpora."""

    mean: float
    margin: float


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """An entry of METRICS: the label and the function that makes sacreBLEU's metric."""

    label: str
    make: Callable[[MetricOptions, Sequence[Lines]], Any]
    lower_is_better: bool = False

    @property
    def title(self) -> str:
        """The label, with a note if lower values are better."""
        return f"{self.label} (lower is better)" if self.lower_is_better else self.label


# ------------------------------------------------------------------------------- sacrebleu is imported on demand


def make_bleu(options: MetricOptions, references: Sequence[Lines] | None = None, **more: Any) -> Any:
    from sacrebleu import BLEU

    for what, name, known in (
        ("tokenization", options.tokenization, BLEU.TOKENIZERS),
        ("smoothing", options.smoothing, SMOOTHINGS),
    ):
        if name not in known:
            raise HeedfulError(f"unknown {what} `{name}`" + did_you_mean(name, known))
    try:
        return BLEU(
            lowercase=options.lowercase,
            force=True,  # no warning about tokenized text: `find_text_warnings` gives one
            tokenize=options.tokenization,
            smooth_method=options.smoothing,
            references=references,
            **more,
        )
    except (ImportError, RuntimeError) as error:  # MeCab and its dictionaries are extras of sacreBLEU
        raise HeedfulError(
            f"the tokenization {options.tokenization} needs packages that are not installed: "
            f"{' '.join(str(error).split())}"
        ) from None


def make_tokenizer(options: MetricOptions) -> Callable[[str], list[str]]:
    """A function from text to the tokens that BLEU counts."""
    tokenize = make_bleu(options).tokenizer
    return lambda text: tokenize(apply_case(text, options).rstrip()).split()


def apply_case(text: str, options: MetricOptions) -> str:
    return text.lower() if options.lowercase else text


def _make_chrf(word_order: int) -> Callable[[MetricOptions, Sequence[Lines]], Any]:
    def make(options: MetricOptions, references: Sequence[Lines]) -> Any:
        from sacrebleu import CHRF

        return CHRF(word_order=word_order, lowercase=options.lowercase, references=references)

    return make


def _make_ter(_options: MetricOptions, references: Sequence[Lines]) -> Any:
    from sacrebleu import TER

    return TER(references=references)


def _make_rouge(kind: int | str, part: str) -> Callable[[MetricOptions, Sequence[Lines]], Any]:
    def value(hypothesis: Sequence[str], reference: Sequence[str]) -> float:
        overlap = rouge(hypothesis, reference, kind)
        return overlap.recall if part == "recall" else f_score(overlap.precision, overlap.recall)

    def make(options: MetricOptions, references: Sequence[Lines]) -> Any:
        from heedful.metrics.means import SentenceMean

        fields = {"case": case_label(options), "tok": options.tokenization, "stem": "no", "of": part}
        return SentenceMean(f"ROUGE-{kind}".upper(), value, make_tokenizer(options), fields, references)

    return make


def make_stem(options: MetricOptions) -> Callable[[str], str] | None:
    """A function from lower-cased words to stems, by snowballstemmer; None without a stemmer."""
    if options.stemmer is None:
        return None
    require("snowballstemmer", extra="stems", whose=f"the stemmer {options.stemmer}")
    import snowballstemmer

    if options.stemmer not in snowballstemmer.algorithms():
        raise HeedfulError(
            f"unknown stemmer `{options.stemmer}`" + did_you_mean(options.stemmer, snowballstemmer.algorithms())
        )
    return cache(snowballstemmer.stemmer(options.stemmer).stemWord)


def make_meteor_words(options: MetricOptions) -> Callable[[str], list[str]]:
    """A function from text to the words that METEOR compares: always lower-cased."""
    return make_tokenizer(replace(options, lowercase=True))


def _make_meteor(options: MetricOptions, references: Sequence[Lines]) -> Any:
    from heedful.metrics.means import SentenceMean

    fields = {"case": "lc", "tok": options.tokenization, "stem": options.stemmer or "no", "syn": "no"}
    value = partial(meteor, stem=make_stem(options))
    return SentenceMean("METEOR", value, make_meteor_words(options), fields, references)


def _make_nist(options: MetricOptions, references: Sequence[Lines]) -> Any:
    from heedful.metrics.means import Nist

    return Nist(make_tokenizer(options), {"case": case_label(options), "tok": options.tokenization}, references)


def _make_cider(options: MetricOptions, references: Sequence[Lines]) -> Any:
    from heedful.metrics.means import SentenceMean

    tokenize, num_lines = make_tokenizer(options), len(references[0])
    frequencies = document_frequencies([tokenize(line) for line in lines] for lines in zip(*references, strict=True))
    fields = {"case": case_label(options), "tok": options.tokenization, "stem": "no", "d": "yes"}
    return SentenceMean(
        "CIDEr", cider, lambda text: tf_idf(tokenize(text), frequencies, num_lines), fields, references, fmean
    )


def _make_exact_match(options: MetricOptions, references: Sequence[Lines]) -> Any:
    from heedful.metrics.means import SentenceMean

    def prepare(text: str) -> str:
        return apply_case(text, options).strip()

    fields = {"case": case_label(options)}
    return SentenceMean(
        "exact", lambda hypothesis, reference: float(hypothesis == reference), prepare, fields, references
    )


def _make_macro_f1(_options: MetricOptions, references: Sequence[Lines]) -> Any:
    from heedful.metrics.labels import MacroF1

    return MacroF1({"case": "mixed", "of": "macro"}, references)


def case_label(options: MetricOptions) -> str:
    """`lc` or `mixed`, as in sacreBLEU's signatures."""
    return "lc" if options.lowercase else "mixed"


METRICS: dict[str, MetricSpec] = {
    "bleu": MetricSpec("BLEU", make_bleu),
    "chrf": MetricSpec("chrF", _make_chrf(0)),
    "chrf++": MetricSpec("chrF++", _make_chrf(2)),
    "ter": MetricSpec("TER", _make_ter, lower_is_better=True),
    "rouge-1": MetricSpec("ROUGE-1", _make_rouge(1, "F1")),
    "rouge-2": MetricSpec("ROUGE-2", _make_rouge(2, "F1")),
    "rouge-l": MetricSpec("ROUGE-L", _make_rouge("l", "F1")),
    "rouge-1-recall": MetricSpec("ROUGE-1 recall", _make_rouge(1, "recall")),
    "rouge-2-recall": MetricSpec("ROUGE-2 recall", _make_rouge(2, "recall")),
    "rouge-l-recall": MetricSpec("ROUGE-L recall", _make_rouge("l", "recall")),
    "meteor": MetricSpec("METEOR", _make_meteor),
    "nist": MetricSpec("NIST", _make_nist),
    "cider": MetricSpec("CIDEr", _make_cider),
    "exact": MetricSpec("exact match", _make_exact_match),
    "accuracy": MetricSpec("accuracy", _make_exact_match),  # what exact match is called if the lines are labels
    "f1": MetricSpec("macro F1", _make_macro_f1),
}


# ---------------------------------------------------------------------------------------------------- the scores


def find_metric(name: str) -> MetricSpec:
    """The entry of METRICS, or HeedfulError for an unknown name."""
    if name not in METRICS:
        raise HeedfulError(f"unknown metric `{name}`" + did_you_mean(name, METRICS))
    return METRICS[name]


def make_metric(name: str, references: References, options: MetricOptions) -> Any:
    return find_metric(name).make(options, as_reference_lists(references))


def as_reference_lists(references: References) -> list[list[str]]:
    """One or several references as a list of lists of lines."""
    if isinstance(references[0], str):
        return [[str(line) for line in references]]
    return [list(lines) for lines in references]


def check_line_counts(hypotheses: Lines, references: References) -> None:
    """Raise HeedfulError unless every reference has as many lines as the translations."""
    if not hypotheses or not references:
        raise HeedfulError("there is nothing to score: there are no translations or no references")
    for lines in as_reference_lists(references):
        if len(hypotheses) != len(lines):
            raise HeedfulError(
                f"{len(hypotheses):,} translations but {len(lines):,} references: the numbers must be equal"
            )


def score(
    name: str, hypotheses: Lines, references: References, *, options: MetricOptions = DEFAULT_OPTIONS
) -> MetricScore:
    """The metric over a whole corpus, with one or several references."""
    check_line_counts(hypotheses, references)
    metric = make_metric(name, references, options)
    return MetricScore(name, float(metric.corpus_score(hypotheses, None).score), str(metric.get_signature()))


def interval(
    name: str,
    hypotheses: Lines,
    references: References,
    *,
    options: MetricOptions = DEFAULT_OPTIONS,
    samples: int = DEFAULT_SAMPLES,
) -> Interval:
    """The score with sacreBLEU's bootstrap interval; the signature has the number of samples and the seed."""
    check_line_counts(hypotheses, references)
    check_sample_memory(len(hypotheses), samples)
    metric = make_metric(name, references, options)
    result = metric.corpus_score(hypotheses, None, n_bootstrap=samples)
    return Interval(name, float(result.score), str(metric.get_signature()), float(result._mean), float(result._ci))


def check_sample_memory(lines: int, samples: int, bytes_per_line: int = BOOTSTRAP_BYTES_PER_LINE) -> None:
    """Raise HeedfulError if the samples would not fit into memory."""
    if samples < 2:
        raise HeedfulError(f"{samples} samples are too few: use a few hundred or more")
    if lines * samples * bytes_per_line > MAX_BOOTSTRAP_BYTES:
        raise HeedfulError(
            f"{samples:,} samples of {lines:,} lines would take {lines * samples * bytes_per_line / 1e9:.0f} GB of "
            f"memory: use at most {max(2, MAX_BOOTSTRAP_BYTES // (lines * bytes_per_line)):,} samples, or fewer lines"
        )


def sentence_scores(
    name: str, hypotheses: Lines, references: References, *, options: MetricOptions = DEFAULT_OPTIONS
) -> list[float]:
    """The metric of each sentence; BLEU uses only the n-gram orders that a short sentence has."""
    check_line_counts(hypotheses, references)
    metric = make_metric(name, references, options)
    metric.effective_order = True  # only BLEU reads it
    statistics = metric._extract_corpus_statistics(hypotheses, None)
    return [float(metric._compute_score_from_stats(sentence).score) for sentence in statistics]
