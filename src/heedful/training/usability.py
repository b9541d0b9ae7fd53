"""Whether a trained model is usable: one sentence, from figures that training records in metrics.jsonl.

    figures = measure_figures(outputs, sources, references, history)    # stored in the event `ended`
    describe_usability(figures)
    # Usable for drafts: BLEU 31.6 (29.8 to 33.4) on 1,000 validation sentences.

The thresholds are rules of thumb. The same BLEU means more for long sentences of news than for short ones of a phrase
book, and validation text like the training text flatters a model. `needed_steps` is a guess, too.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from heedful.metrics.score import DEFAULT_SAMPLES, METRICS, interval, score, sentence_scores
from heedful.training.history import History
from heedful.training.words import Phrase

# From which score on a model is usable for drafts, and from which on it is good. Below a BLEU of 20, readers usually
# cannot get the meaning of a translation; from 40 on, most sentences need little or no correction.
THRESHOLDS = {"bleu": (20.0, 40.0), "chrf": (45.0, 60.0)}
MAX_WORD_CHARACTERS = 15  # in the mean; a language with longer "words" is written without spaces, so BLEU fails
MIN_STEPS = 1_000  # the autopilot plans at least as many, too
TOKENS_PER_WEIGHT = 1.0  # by which a model has learned to translate; the autopilot chooses sizes by the same rule
MIN_JUDGED_SHARE = 0.1  # of the needed steps; earlier, outputs hardly depend on the source, even for a good corpus
LAST_SHARE, MIN_LOSS_DROP = 0.2, 0.05  # the loss is falling if it lost this share in this last part of the steps
MAX_SCORED_SENTENCES, MAX_BOOTSTRAP_LINES = 20_000, 2_000_000  # limit time and memory; the latter over all samples
STEP_TIME_SHARE = 0.8  # of the time; the rest is for validating, saving and decoding
NUM_EXTREMES = 5  # best and worst sentences


@dataclass(frozen=True, slots=True)
class UsabilityFigures:
    """All that the sentence depends on."""

    step: int
    needed_steps: int  # a guess; 0 for a fine-tuned model, which could already translate
    metric: str  # "bleu", or "chrf" if the target language is written without spaces
    value: float  # of the validation set
    low: float  # 95 % interval
    high: float
    sentences: int
    copy_value: float | None  # the score of the source text itself, as if it were the translation; None if no text
    match_gain: float  # mean chrF of an output and its own reference, minus that of an output and another reference
    match_margin: float  # of the 95 % interval of this mean
    loss_drop: float  # the share of the validation loss that was lost in the last part of the run
    step_seconds: float  # the duration of a step, without pauses

    @property
    def depends_on_source(self) -> bool:
        """Whether an output is more like its own reference than like another one, beyond chance."""
        return self.match_gain > self.match_margin

    @property
    def was_improving(self) -> bool:
        return self.loss_drop >= MIN_LOSS_DROP

    @property
    def beats_copying(self) -> bool:
        return self.copy_value is None or self.low > self.copy_value


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """A sentence of the validation set, its translation and its chrF."""

    source: str
    reference: str
    output: str
    chrf: float


class Assessment(NamedTuple):
    """The figures of a run, and the sentences with the highest and the lowest chrF."""

    figures: UsabilityFigures
    best: tuple[ScoredSample, ...] = ()
    worst: tuple[ScoredSample, ...] = ()


# ---------------------------------------------------------------------------------------------------- measure


def assess_run(
    outputs: Sequence[str],
    sources: Sequence[str],
    references: Sequence[str],
    history: History,
    *,
    is_finetuned: bool,
    has_text_source: bool = True,
    keep_sentences: bool,
) -> Assessment:
    """Measure the figures on the validation set; `history` has the events of the run so far."""
    outputs, sources, references = (texts[:MAX_SCORED_SENTENCES] for texts in (outputs, sources, references))
    metric, count = choose_metric(references), len(outputs)
    samples = min(DEFAULT_SAMPLES, MAX_BOOTSTRAP_LINES // count)
    bootstrapped = interval(metric, outputs, references, samples=samples)
    own = sentence_scores("chrf", outputs, references)
    shift = count // 2  # neighbors may be about the same topic
    others = sentence_scores("chrf", outputs, [*references[shift:], *references[:shift]])
    gains = [a - b for a, b in zip(own, others, strict=True)]
    figures = UsabilityFigures(
        step=history.last_step,
        needed_steps=0 if is_finetuned else guess_needed_steps(history),
        metric=metric,
        value=bootstrapped.value,
        low=max(0.0, bootstrapped.mean - bootstrapped.margin),
        high=bootstrapped.mean + bootstrapped.margin,
        sentences=count,
        copy_value=score(metric, sources, references).value if has_text_source else None,
        match_gain=statistics.fmean(gains),
        match_margin=1.96 * statistics.stdev(gains) / math.sqrt(count) if count > 1 else 100.0,
        loss_drop=measure_loss_drop(history),
        step_seconds=measure_step_seconds(history),
    )
    best, worst = find_extremes(
        [ScoredSample(*row) for row in zip(sources, references, outputs, own, strict=True)] if keep_sentences else []
    )
    return Assessment(figures, best, worst)


def choose_metric(references: Sequence[str]) -> str:
    """BLEU counts words, so it needs spaces between them."""
    words = sum(len(text.split()) for text in references)
    return "bleu" if sum(map(len, references)) <= MAX_WORD_CHARACTERS * words else "chrf"


def guess_needed_steps(history: History) -> int:
    """max(MIN_STEPS, weights x TOKENS_PER_WEIGHT / tokens per step)"""
    began, stepped = history.last("began"), history.last("stepped")
    if not began or not stepped or not stepped["tokens"]:
        return MIN_STEPS
    tokens_per_step = float(stepped["tokens"]) / float(stepped["step"])
    return max(MIN_STEPS, math.ceil(int(began["parameters"]) * TOKENS_PER_WEIGHT / tokens_per_step))


def measure_loss_drop(history: History) -> float:
    """1 - last loss / loss before the last part of the steps; 0 without such validations."""
    validations = [record for record in history.validations if math.isfinite(record["loss"])]
    if len(validations) < 2:
        return 0.0
    last = validations[-1]
    earlier = [record for record in validations if record["step"] <= (1 - LAST_SHARE) * last["step"]]
    return 1.0 - float(last["loss"]) / float(earlier[-1]["loss"]) if earlier and earlier[-1]["loss"] > 0 else 0.0


def measure_step_seconds(history: History) -> float:
    """Tokens per step / tokens per second, the latter a median of the log lines; 0 without any."""
    speeds = [record["tokens_per_second"] for record in history["stepped"]]
    rate = history.last("stepped")["step"] * statistics.median(speeds) if speeds else 0.0
    return float(history.last("stepped")["tokens"] / rate) if rate else 0.0


def find_extremes(samples: Sequence[ScoredSample]) -> tuple[tuple[ScoredSample, ...], tuple[ScoredSample, ...]]:
    """The samples with the highest and with the lowest chrF, at most half of all each; repetitions count once."""
    ranked = sorted(dict.fromkeys(samples), key=lambda sample: -sample.chrf)
    count = min(NUM_EXTREMES, len(ranked) // 2)
    return tuple(ranked[:count]), tuple(reversed(ranked[len(ranked) - count :]))


# ---------------------------------------------------------------------------------------------------- the sentence


def usability_level(figures: UsabilityFigures) -> str:
    """A key of the words: good, drafts, unclear, not-yet or not-usable.

    The low end of the interval must reach a threshold, and exceed the score of the source text.
    """
    drafts, good = THRESHOLDS[figures.metric]
    if figures.value >= drafts and figures.beats_copying:
        return "good" if figures.low >= good else "drafts" if figures.low >= drafts else "unclear"
    if not figures.depends_on_source and figures.step >= MIN_JUDGED_SHARE * figures.needed_steps:
        return "not-usable"
    is_short = figures.step < figures.needed_steps
    return "not-yet" if is_short or figures.was_improving else "not-usable"


def usability_phrases(figures: UsabilityFigures) -> list[Phrase]:
    """The level, then its reasons."""
    level, label = usability_level(figures), METRICS[figures.metric].label
    reasons: list[Phrase] = []
    if level == "not-yet" and figures.step < figures.needed_steps:
        reasons.append(Phrase("steps-of-needed", (f"{figures.step:,}", f"{round_up(figures.needed_steps):,}")))
    scores = (f"{number:.1f}" for number in (figures.value, figures.low, figures.high))
    reasons.append(Phrase("score-on-validation", (label, *scores, f"{figures.sentences:,}")))
    if level == "unclear":
        reasons.append(Phrase("threshold", (f"{THRESHOLDS[figures.metric][0]:.0f}",)))
    elif figures.copy_value is not None and not figures.beats_copying:
        reasons.append(Phrase("no-better-than-copy", (label, f"{figures.copy_value:.1f}")))
    if level == "not-usable":
        reasons.append(Phrase("more-will-not-help" if figures.depends_on_source else "ignores-source"))
    elif figures.was_improving:
        reasons.append(Phrase("was-improving"))
    return [Phrase(level), *reasons]


def describe_usability(figures: UsabilityFigures) -> str:
    """The sentence in English."""
    level, *reasons = (phrase.english for phrase in usability_phrases(figures))
    return f"{level}: {'; '.join(reasons)}."


def round_up(number: int) -> int:
    """Two significant digits: 1,665 -> 1,700."""
    unit: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit


def suggest_seconds(figures: UsabilityFigures, elapsed_seconds: float) -> float:
    """A total time in which the model may become usable: for the needed steps, but at least twice the time so far."""
    steps_left = max(0, figures.needed_steps - figures.step)
    return max(2 * elapsed_seconds, elapsed_seconds + steps_left * figures.step_seconds / STEP_TIME_SHARE)
