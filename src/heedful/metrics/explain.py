r"""The arithmetic of one sentence's BLEU, chrF, ROUGE and METEOR, as one would do it on paper.

    for one in explain("the cat sat", ["a cat sat"]):
        print(one.title, *one.lines, sep="\n")

Each ends in a value; where sacreBLEU has the metric, its own number stands beside ours.
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
    chunks,
    clipped,
    f_score,
    longest_common,
    meteor,
    ngrams,
    overlap,
    rouge,
    smoothed,
)
from heedful.metrics.score import DEFAULT, Options, bleu_of, cased, sentence_scores, tokenizer

ORDER = 4  # of BLEU
Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class Explained:
    """How a value between 0 and 100 comes about, line by line."""

    title: str
    lines: tuple[str, ...]
    value: float
    library: float | None  # the same by sacreBLEU; None of what it has not


def explain(hypothesis: str, references: Sequence[str], *, options: Options = DEFAULT) -> list[Explained]:
    """Every metric whose arithmetic can be shown."""
    cut = tokenizer(options)
    words, others = cut(hypothesis), [cut(one) for one in references]
    theirs = {
        name: sentence_scores(name, [hypothesis], [[one] for one in references], options=options)[0]
        for name in ("bleu", "chrf")
    }
    return [
        explain_bleu(words, others, options, theirs["bleu"]),
        explain_chrf(cased(hypothesis, options), [cased(one, options) for one in references], theirs["chrf"]),
        *(explain_rouge(words, others, kind) for kind in (1, 2, "l")),
        explain_meteor(words, others),
    ]


def row(name: str, text: str) -> str:
    """A line under its name."""
    return f"{name:>12}  {text}".rstrip()


# ---------------------------------------------------------------------------------------------------------- BLEU


def explain_bleu(words: Words, references: Sequence[Words], options: Options, library: float) -> Explained:
    """Tokens, clipped n-grams, precisions, brevity penalty, and the product of every order beside sacreBLEU's."""
    counts = bleu_counts(words, references, ORDER)
    lines = [row("tokens", said(words)), *(row(name, said(one)) for name, one in numbered(references))]
    for n, share in enumerate(smoothed(counts, options.smoothing), 1):
        lines += precision_lines(words, references, n, counts, share)
    penalty = brevity_penalty(counts.length, counts.reference_length)
    formula = f" = exp(1 - {counts.reference_length}/{counts.length})" if 0 < penalty < 1 else ""
    lengths = " and ".join(str(len(one)) for one in references)
    closest = f"{counts.reference_length}, the closest of {lengths}" if len(references) > 1 else lengths
    lines.append(row("brevity", f"{counts.length} tokens against {closest}: BP{formula} = {penalty:.6f}"))
    lines += (product_line(words, references, n, options) for n in range(1, ORDER + 1))
    value = bleu(counts, options.smoothing, effective=True)
    return Explained(f"BLEU (smoothing: {options.smoothing})", tuple(lines), value, library)


def precision_lines(
    words: Words, references: Sequence[Words], n: int, counts: BleuCounts, share: tuple[float, int]
) -> Iterator[str]:
    """p_n as a fraction, before and after smoothing, the n-grams that matched, and those that were clipped."""
    if not share[1]:
        yield row(f"p{n}", f"too short a sentence for n = {n}")
        return
    plain, (matches, total) = (counts.matches[n - 1], counts.totals[n - 1]), share
    own = ngrams(words, n)
    found = clipped(own, (ngrams(one, n) for one in references))
    fraction = "{}/{}".format(*plain) + (f" -> {matches:g}/{total}" if share != plain else "")
    grams = (" ".join(gram) + (f" (x {count})" if count > 1 else "") for gram, count in found.items())
    yield row(f"p{n}", f"{fraction:<14} = {quotient(matches, total):.6f}   {' · '.join(grams)}")
    for gram in found:
        if own[gram] > found[gram]:
            yield row(
                "clipped",
                f"'{' '.join(gram)}' occurs {own[gram]} times, but no reference has it more than {found[gram]} x",
            )


def product_line(words: Words, references: Sequence[Words], n: int, options: Options) -> str:
    """100 BP (p_1 ... p_n)^(1/n), over the orders that so short a sentence has."""
    counts = bleu_counts(words, references, n)
    value = bleu(counts, options.smoothing, effective=True)
    shares = [share for share in smoothed(counts, options.smoothing) if share[1]]
    # The tokens are cut already: joined by spaces they need no tokenization.
    library = bleu_of(Options("none", smoothing=options.smoothing), max_ngram_order=n, effective_order=True)
    theirs = library.sentence_score(" ".join(words), [" ".join(one) for one in references]).score
    penalty = brevity_penalty(counts.length, counts.reference_length)
    product = f"100 x {penalty:.4f} x ({' x '.join(f'{quotient(*one):.4f}' for one in shares)})^(1/{len(shares)})"
    ours = f"{product} = {value:.4f}" if any(counts.matches) else f"no word matches: {value:.4f}"
    return row(f"BLEU-{n}", f"{ours}   sacreBLEU: {theirs:.4f}")


# ----------------------------------------------------------------------------------------------- the other metrics


def explain_chrf(hypothesis: str, references: Sequence[str], library: float) -> Explained:
    """Precision and recall of every order, their means, and F_2."""
    counts = chrf_counts(hypothesis, references)
    best = [chrf_counts(hypothesis, [one]) for one in references].index(counts)
    precision, recall = chrf_means(counts)
    lines = chosen(best, references)
    for n, one in enumerate(counts, 1):
        fractions = f"P = {one.matches}/{one.hypothesis}", f"R = {one.matches}/{one.reference}"
        lines.append(row(f"n = {n}", f"{fractions[0]:<14} {fractions[1]}"))
    lines.append(row("means", f"P = {precision:.6f}   R = {recall:.6f}"))
    value = chrf(counts)
    lines.append(row("chrF", f"100 x 5 P R / (4 P + R) = {value:.4f}   sacreBLEU: {library:.4f}"))
    return Explained("chrF (characters, without spaces)", tuple(lines), value, library)


def explain_rouge(words: Words, references: Sequence[Words], kind: int | str) -> Explained:
    """Precision, recall and F_1 against the best reference."""
    name = f"ROUGE-{kind}".upper()
    every = [rouge(words, one, kind) for one in references]
    values = [100 * f_score(one.precision, one.recall) for one in every]
    best = values.index(max(values))
    found = every[best]
    lines = chosen(best, references)
    if kind == "l":
        lines.append(row("in common", " ... ".join(longest_common(words, references[best])) or "nothing"))
    lines += [
        row("recall", f"{found.matches}/{found.reference} = {found.recall:.6f}   (what ROUGE was defined as)"),
        row("precision", f"{found.matches}/{found.hypothesis} = {found.precision:.6f}"),
        row(name, f"F1 = 2 P R / (P + R) = {values[best] / 100:.4f}"),
    ]
    return Explained(name, tuple(lines), values[best], None)


def explain_meteor(words: Words, references: Sequence[Words]) -> Explained:
    """Matches, chunks, F_3 and the penalty, against the best reference."""
    values = [100 * meteor(words, one) for one in references]
    best = values.index(max(values))
    runs, found = chunks(words, references[best]), overlap(words, references[best], 1)
    mean = f_score(found.precision, found.recall, 3)
    lines = chosen(best, references)
    lines += [
        row("chunks", " | ".join(map(" ".join, runs)) or "none"),
        row("words", f"P = {found.matches}/{found.hypothesis}   R = {found.matches}/{found.reference}"),
        row("F", f"10 P R / (R + 9 P) = {mean:.4f}"),
        row("penalty", f"0.5 ({len(runs)}/{found.matches})^3 = {0.5 * quotient(len(runs), found.matches) ** 3:.4f}"),
        row("METEOR", f"F (1 - penalty) = {values[best] / 100:.4f}"),
    ]
    return Explained("METEOR (exact words: no stems, no synonyms)", tuple(lines), values[best], None)


def quotient(part: float, whole: float) -> float:
    """Zero of nothing is zero."""
    return part / whole if whole else 0.0


def chosen(best: int, references: Sequence[object]) -> list[str]:
    """Which of several references is meant."""
    return [row("reference", f"{best + 1}, the best of {len(references)}")] if len(references) > 1 else []


def numbered(references: Sequence[Words]) -> Iterator[tuple[str, Words]]:
    """reference, or reference 1, reference 2, ..."""
    for number, one in enumerate(references, 1):
        yield f"reference {number}" if len(references) > 1 else "reference", one


def said(words: Words) -> str:
    """The words, and how many."""
    return f"{' '.join(words)}   ({len(words)})"
