r"""Show step by step how BLEU, chrF, ROUGE and METEOR of one sentence are computed.

    for explanation in explain("the cat sat", ["a cat sat"]):
        print(explanation.title, *explanation.lines, sep="\n")

sacreBLEU's value is shown too if it has the metric.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heedful.metrics.ngrams import (
    BleuCounts,
    bleu,
    bleu_counts,
    brevity_penalty,
    chrf,
    chrf_counts,
    chrf_means,
    clip_counts,
    count_ngrams,
    f_score,
    longest_common_subsequence,
    matching_chunks,
    meteor,
    rouge,
    smooth_counts,
)
from heedful.metrics.score import (
    DEFAULT_OPTIONS,
    MetricOptions,
    apply_case,
    make_bleu,
    make_meteor_words,
    make_stem,
    make_tokenizer,
    sentence_scores,
)

MAX_ORDER = 4  # of BLEU's n-grams
Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class MetricExplanation:
    """The computation of a value between 0 and 100, line by line."""

    title: str
    lines: tuple[str, ...]
    value: float
    library: float | None  # sacreBLEU's value; None if sacreBLEU lacks the metric


def explain(
    hypothesis: str, references: Sequence[str], *, options: MetricOptions = DEFAULT_OPTIONS
) -> list[MetricExplanation]:
    """Explain every metric that can be computed by hand."""
    tokenize = make_tokenizer(options)
    words, reference_words = tokenize(hypothesis), [tokenize(reference) for reference in references]
    library = {
        name: sentence_scores(name, [hypothesis], [[reference] for reference in references], options=options)[0]
        for name in ("bleu", "chrf")
    }
    return [
        explain_bleu(words, reference_words, options, library["bleu"]),
        explain_chrf(
            apply_case(hypothesis, options),
            [apply_case(reference, options) for reference in references],
            library["chrf"],
        ),
        *(explain_rouge(words, reference_words, kind) for kind in (1, 2, "l")),
        explain_meteor(hypothesis, references, options),
    ]


def format_row(name: str, text: str) -> str:
    return f"{name:>12}  {text}".rstrip()


# ---------------------------------------------------------------------------------------------------------- BLEU


def explain_bleu(
    words: Words, references: Sequence[Words], options: MetricOptions, library: float
) -> MetricExplanation:
    """Tokens, matching n-grams, precisions, brevity penalty, and the product for each order next to sacreBLEU's."""
    counts = bleu_counts(words, references, MAX_ORDER)
    lines = [
        format_row("tokens", format_words(words)),
        *(format_row(name, format_words(reference)) for name, reference in label_references(references)),
    ]
    for n, fraction in enumerate(smooth_counts(counts, options.smoothing), 1):
        lines += precision_lines(words, references, n, counts, fraction)
    penalty = brevity_penalty(counts.length, counts.reference_length)
    formula = f" = exp(1 - {counts.reference_length}/{counts.length})" if 0 < penalty < 1 else ""
    lengths = " and ".join(str(len(reference)) for reference in references)
    closest = f"{counts.reference_length}, the closest of {lengths}" if len(references) > 1 else lengths
    lines.append(format_row("brevity", f"{counts.length} tokens against {closest}: BP{formula} = {penalty:.6f}"))
    lines += (product_line(words, references, n, options) for n in range(1, MAX_ORDER + 1))
    value = bleu(counts, options.smoothing, effective=True)
    return MetricExplanation(f"BLEU (smoothing: {options.smoothing})", tuple(lines), value, library)


def precision_lines(
    words: Words, references: Sequence[Words], n: int, counts: BleuCounts, smoothed_fraction: tuple[float, int]
) -> Iterator[str]:
    """p_n before and after smoothing, the n-grams that match, and the n-grams whose count is clipped."""
    matches, total = smoothed_fraction
    if not total:
        yield format_row(f"p{n}", f"the sentence is too short for n = {n}")
        return
    plain_fraction = counts.matches[n - 1], counts.totals[n - 1]
    hypothesis_counts = count_ngrams(words, n)
    matching = clip_counts(hypothesis_counts, (count_ngrams(reference, n) for reference in references))
    fraction = "{}/{}".format(*plain_fraction)
    fraction += f" -> {matches:g}/{total}" if smoothed_fraction != plain_fraction else ""
    grams = (" ".join(gram) + (f" (x {count})" if count > 1 else "") for gram, count in matching.items())
    yield format_row(f"p{n}", f"{fraction:<14} = {divide(matches, total):.6f}   {' · '.join(grams)}")
    for gram, count in matching.items():
        if hypothesis_counts[gram] > count:
            text = f"'{' '.join(gram)}' occurs {hypothesis_counts[gram]} times, but at most {count} x in a reference"
            yield format_row("clipped", text)


def product_line(words: Words, references: Sequence[Words], n: int, options: MetricOptions) -> str:
    """100 BP (p_1 ... p_n)^(1/n), over the orders for which the sentence is long enough."""
    counts = bleu_counts(words, references, n)
    value = bleu(counts, options.smoothing, effective=True)
    fractions = [(matches, total) for matches, total in smooth_counts(counts, options.smoothing) if total]
    # The words are already tokens, so they are not tokenized again.
    metric = make_bleu(MetricOptions("none", smoothing=options.smoothing), max_ngram_order=n, effective_order=True)
    library = metric.sentence_score(" ".join(words), [" ".join(reference) for reference in references]).score
    penalty = brevity_penalty(counts.length, counts.reference_length)
    factors = " x ".join(f"{divide(matches, total):.4f}" for matches, total in fractions)
    product = f"100 x {penalty:.4f} x ({factors})^(1/{len(fractions)})"
    text = f"{product} = {value:.4f}" if any(counts.matches) else f"no word matches: {value:.4f}"
    return format_row(f"BLEU-{n}", f"{text}   sacreBLEU: {library:.4f}")


# ----------------------------------------------------------------------------------------------- the other metrics


def explain_chrf(hypothesis: str, references: Sequence[str], library: float) -> MetricExplanation:
    counts = chrf_counts(hypothesis, references)
    best = [chrf_counts(hypothesis, [reference]) for reference in references].index(counts)
    precision, recall = chrf_means(counts)
    lines = best_reference_rows(best, references)
    for n, order in enumerate(counts, 1):
        fractions = f"P = {order.matches}/{order.hypothesis}", f"R = {order.matches}/{order.reference}"
        lines.append(format_row(f"n = {n}", f"{fractions[0]:<14} {fractions[1]}"))
    lines.append(format_row("means", f"P = {precision:.6f}   R = {recall:.6f}"))
    value = chrf(counts)
    lines.append(format_row("chrF", f"100 x 5 P R / (4 P + R) = {value:.4f}   sacreBLEU: {library:.4f}"))
    return MetricExplanation("chrF (characters, without spaces)", tuple(lines), value, library)


def explain_rouge(words: Words, references: Sequence[Words], kind: int | str) -> MetricExplanation:
    name = f"ROUGE-{kind}".upper()
    overlaps = [rouge(words, reference, kind) for reference in references]
    values = [100 * f_score(each.precision, each.recall) for each in overlaps]
    best = values.index(max(values))
    matching = overlaps[best]
    lines = best_reference_rows(best, references)
    if kind == "l":
        lines.append(
            format_row("in common", " ... ".join(longest_common_subsequence(words, references[best])) or "nothing")
        )
    lines += [
        format_row(
            "recall", f"{matching.matches}/{matching.reference} = {matching.recall:.6f}   (the definition of ROUGE)"
        ),
        format_row("precision", f"{matching.matches}/{matching.hypothesis} = {matching.precision:.6f}"),
        format_row(name, f"F1 = 2 P R / (P + R) = {values[best] / 100:.4f}"),
    ]
    return MetricExplanation(name, tuple(lines), values[best], None)


def explain_meteor(hypothesis: str, references: Sequence[str], options: MetricOptions) -> MetricExplanation:
    tokenize, stem = make_meteor_words(options), make_stem(options)
    words, reference_words = tokenize(hypothesis), [tokenize(reference) for reference in references]
    values = [100 * meteor(words, reference, stem) for reference in reference_words]
    best = values.index(max(values))
    chunks = matching_chunks(words, reference_words[best], stem)
    matches, length, reference_length = sum(map(len, chunks)), len(words), len(reference_words[best])
    mean = f_score(divide(matches, length), divide(matches, reference_length), 3)
    lines = best_reference_rows(best, references)
    lines += [
        format_row("chunks", " | ".join(map(" ".join, chunks)) or "none"),
        format_row("words", f"P = {matches}/{length}   R = {matches}/{reference_length}"),
        format_row("F", f"10 P R / (R + 9 P) = {mean:.4f}"),
        format_row("penalty", f"0.5 ({len(chunks)}/{matches})^3 = {0.5 * divide(len(chunks), matches) ** 3:.4f}"),
        format_row("METEOR", f"F (1 - penalty) = {values[best] / 100:.4f}"),
    ]
    stems = f"stems: {options.stemmer}" if stem else "exact words, no stems"
    return MetricExplanation(f"METEOR ({stems}, no synonyms)", tuple(lines), values[best], None)


def divide(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def best_reference_rows(best: int, references: Sequence[object]) -> list[str]:
    """A row with the number of the best reference, if there are several."""
    return [format_row("reference", f"{best + 1}, the best of {len(references)}")] if len(references) > 1 else []


def label_references(references: Sequence[Words]) -> Iterator[tuple[str, Words]]:
    """reference, or reference 1, reference 2, ..."""
    for number, reference in enumerate(references, 1):
        yield f"reference {number}" if len(references) > 1 else "reference", reference


def format_words(words: Words) -> str:
    return f"{' '.join(words)}   ({len(words)})"
