"""Chooses the `upsample` of a CTC decoder or a CTC head, so that almost all training pairs fit.

A target of L labels, R of which repeat the label before them, needs L + R slots. With S slots in the source, it fits if
L + R <= upsample S. An encoder of recordings makes each slot from several frames, its `reduction`. The loss skips the
pairs that do not fit, so their number is reported.
"""

import numpy as np
from numpy.typing import NDArray

from heedful.config import CTCHeadSettings, CTCSettings, Settings
from heedful.data.store import StoredCorpus
from heedful.inputs.kinds import Input
from heedful.training.data import TrainingData, ValidationSet
from heedful.training.events import EventHandler, Note

FITTING_SHARE = 0.999  # of the training pairs

Counts = NDArray[np.int64]


def choose_upsampling(settings: Settings, data: TrainingData, on_event: EventHandler) -> Settings:
    """The settings with the least `upsample` that fits FITTING_SHARE of the training pairs, unless it is set."""
    model = settings.model
    if model is None or not (isinstance(model.decoder, CTCSettings) or model.ctc_head):
        return settings
    place, section = ("ctc_head", model.ctc_head) if model.ctc_head else ("decoder", model.decoder)
    assert isinstance(section, CTCSettings | CTCHeadSettings)
    reduction = getattr(model.encoder, "reduction", 1)
    training = np.concatenate([required_upsampling(corpus, data.inputs, reduction) for corpus in data.stored_corpora])
    validation = required_upsampling_of_validation(data.validation, data.inputs, reduction)
    chosen = int(np.quantile(training, FITTING_SHARE, method="inverted_cdf"))
    upsample = section.upsample or chosen
    text = (
        f"upsample {upsample}: the loss skips pairs with more labels than slots, which are "
        f"{describe_share(training > upsample)} training pairs and {describe_share(validation > upsample)} validation "
        "pairs"
    )
    if upsample < chosen:
        on_event(Note(f"{text}; to train on them, set model.{place}.upsample = {chosen}, or remove it", "warning"))
    else:
        on_event(Note(f"{text} (with upsample 1: {np.mean(training > 1):.1%} of the training pairs)", "choice"))
    chosen_section = section.model_copy(update={"upsample": upsample})
    return settings.model_copy(update={"model": model.model_copy(update={place: chosen_section})})


def describe_share(is_skipped: NDArray[np.bool_]) -> str:
    return f"{is_skipped.sum():,} of {len(is_skipped):,}"


def required_upsampling(corpus: StoredCorpus, inputs: Input, reduction: int) -> Counts:
    """The least `upsample` with which each pair of the corpus fits."""
    parts = []
    for folder, begin, end in corpus.folder_spans(0, corpus.num_rows):
        begins = {side: corpus.array(folder, f"{side}.begin")[begin : end + 1] for side in ("source", "target")}
        slots = count_slots(np.diff(begins["source"]), inputs, reduction)
        parts.append(divide_up(count_required_slots(corpus.array(folder, "target"), begins["target"]), slots))
    return np.concatenate(parts)


def required_upsampling_of_validation(validation: ValidationSet, inputs: Input, reduction: int) -> Counts:
    """The same for the pairs of the validation set."""
    begins = np.cumsum([0, *map(len, validation.targets)])
    labels = np.array([label for target in validation.targets for label in target], np.int64)
    slots = count_slots(np.array([len(row) for row in validation.sources]), inputs, reduction)
    return divide_up(count_required_slots(labels, begins), slots)


def count_slots(lengths: Counts, inputs: Input, reduction: int) -> Counts | int:
    """Of sources of these lengths, as they are stored; text then gets an end token"""
    if inputs.num_slots is not None:
        return inputs.num_slots
    slots: Counts = -(-lengths // reduction) + ("source" in inputs.text_sides)
    return slots


def count_required_slots(labels: NDArray[np.integer], begins: NDArray[np.integer]) -> Counts:
    """L + R of the rows labels[begins[i] : begins[i + 1]]"""
    begins = np.asarray(begins, np.int64)
    repeats = np.zeros(begins[-1] - begins[0] + 1, np.int64)  # before each label, how many labels repeat the one before
    row_labels = np.asarray(labels[begins[0] : begins[-1]])
    repeats[2:] = np.cumsum(row_labels[1:] == row_labels[:-1])
    first, last = begins[:-1] - begins[0], begins[1:] - begins[0]
    required: Counts = last - first + repeats[last] - repeats[np.minimum(first + 1, last)]
    return required


def divide_up(required: Counts, slots: Counts | int) -> Counts:
    """ceil(required / slots), but at least 1"""
    quotient: Counts = -(-required // slots)
    return quotient.clip(min=1)
