"""Perplexity and bits per character of a language model."""

from collections.abc import Sequence
from math import exp, log


def measure_perplexity(
    log_probability: float, tokens: Sequence[Sequence[int]], texts: Sequence[str]
) -> dict[str, float]:
    """L = sum of log p of all tokens; N counts the end of each text as a token, a word and a character.

    perplexity = exp(-L / N tokens)   word_perplexity = exp(-L / N words)   bits = -L / (N characters ln 2)

    Models with different vocabularies have comparable perplexities per word and bits per character, but not per token.
    """
    ends = len(texts)
    num_tokens = sum(map(len, tokens)) + ends
    num_words = sum(len(text.split()) for text in texts) + ends
    num_characters = sum(map(len, texts)) + ends
    return {
        "perplexity": exp(min(700.0, -log_probability / num_tokens)),
        "word_perplexity": exp(min(700.0, -log_probability / num_words)),
        "bits": -log_probability / (num_characters * log(2)),
    }
