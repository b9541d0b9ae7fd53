"""Routes: which models translate from one language to another, directly or through a third language (a pivot).

    find_routes((("a", "pt", "en"), ("b", "en", "ru")))
        pt -> en   a
        en -> ru   b
        pt -> ru   a, then b, via en

A pair of languages has one route: the first model that translates it or, if there is none, the first two models that
do so together. Other models of the same pair are selected by name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from heedful.serve.rejection import RequestRejected
from heedful.text.language_codes import base_language

ANY_LANGUAGE = (None, "", "auto")


@dataclass(frozen=True, slots=True)
class ModelLanguages:
    """The name of a model and its languages."""

    name: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class TranslationRoute:
    """The models that translate from `source` to `target`, in order; `via` is the language between two of them."""

    source: str
    target: str
    models: tuple[str, ...]
    via: str | None = None

    def __str__(self) -> str:
        return f"{self.source} to {self.target}" + (f" (via {self.via})" if self.via else "")


def normalize_code(code: str) -> str:
    return code.lower().replace("_", "-")


def is_same_language(code: str, other: str) -> bool:
    """Whether two codes can mean the same language: true for EN-US and en, false for pt-BR and pt-PT."""
    code, other = normalize_code(code), normalize_code(other)
    return code == other or (base_language(code) == base_language(other) and ("-" not in code or "-" not in other))


@lru_cache(maxsize=16)  # computed for every request, and changes only with the models
def find_routes(models: tuple[ModelLanguages, ...]) -> tuple[TranslationRoute, ...]:
    """Direct routes in the order of the models, then pivots."""
    routes: dict[tuple[str, str], TranslationRoute] = {}
    for model in models:
        pair = model.source, model.target
        routes.setdefault(pair, TranslationRoute(*pair, (model.name,)))
    for first, second in product(models, models):
        pair = first.source, second.target
        is_known = any(matches(route, *pair) for route in routes.values())
        if is_same_language(first.target, second.source) and not is_same_language(*pair) and not is_known:
            routes[pair] = TranslationRoute(*pair, (first.name, second.name), via=first.target)
    return tuple(routes.values())


def matches(route: TranslationRoute, source: str | None, target: str | None) -> bool:
    """Whether a route translates these languages; None and `auto` match every language."""
    pairs = ((source, route.source), (target, route.target))
    return all(code is None or code in ANY_LANGUAGE or is_same_language(code, other) for code, other in pairs)


def select_route(routes: Sequence[TranslationRoute], source: str | None, target: str | None) -> TranslationRoute:
    """The route between two languages; raise RequestRejected (400) if there is none or if several are possible."""
    candidates = [route for route in routes if matches(route, source, target)]
    if not candidates:
        raise RequestRejected(400, no_route_message(routes, source, target))
    codes = [(base_language(route.source), base_language(route.target)) for route in candidates]
    if len(set(codes)) > 1:
        missing = [side for side, code in (("source", source), ("target", target)) if code in ANY_LANGUAGE]
        raise RequestRejected(
            400, f"the {' and '.join(missing)} language must be given; this server translates {list_routes(routes)}"
        )
    wanted = [normalize_code(code or "") for code in (source, target)]

    def num_exact_codes(route: TranslationRoute) -> int:
        return sum(
            normalize_code(code) == other for code, other in zip((route.source, route.target), wanted, strict=True)
        )

    return max(candidates, key=num_exact_codes)  # of several varieties of a language; the first if none is exact


def no_route_message(routes: Sequence[TranslationRoute], source: str | None, target: str | None) -> str:
    if len(routes) == 1:
        (route,) = routes
        wrong = target if matches(route, source, None) else source
        return f"this model translates from {route.source} to {route.target}, not {wrong}"
    wanted = [
        f"{word} {code}"
        for word, code in (("from", source), ("to", target))
        if code is not None and code not in ANY_LANGUAGE
    ]
    return f"no model translates {' '.join(wanted)}; this server translates {list_routes(routes)}"


def list_routes(routes: Iterable[TranslationRoute]) -> str:
    return ", ".join(map(str, routes))


def join_translations(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """One translation from the two steps of a pivot, in the form of the API.

    Score, tokens and alternatives are those of the second step. Source and target words are linked if the same word of
    the pivot is linked to both. No confidence: both models are calibrated for their own languages only.
    """
    flagged = {flag["name"] for flag in first["flags"]}
    output_flags = [flag for flag in second["flags"] if flag["side"] == "output" and flag["name"] not in flagged]
    return {
        **second,
        "source": first["source"],
        "pivot": first["text"],
        "alignment": join_alignments(first["alignment"], second["alignment"]),
        "flags": [*first["flags"], *output_flags],
        "confidence": None,
    }


def join_alignments(
    first: Iterable[Sequence[int]] | None, second: Iterable[Sequence[int]] | None
) -> list[tuple[int, int]] | None:
    """{(i, k) : some j has (i, j) in the first and (j, k) in the second}; None if either is None."""
    if first is None or second is None:
        return None
    return sorted({(i, k) for (i, j), (other, k) in product(first, second) if j == other})
