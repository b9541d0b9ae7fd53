"""Attention: score -> mask -> normalize -> weighted sum.

    e_ti = score(q_t, k_i)          how well slot i answers query t
    a_t  = normalize(e_t)           a distribution over the real slots
    c_t  = sum_i a_ti v_i           the context

Every class below has the same face: `prepare` does the per-sentence work once, `forward` asks. Shapes are written
[..., T, S]: the dots are B for one distribution and B, H for several heads.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.contract import Glance, Map, Memory

# ---------------------------------------------------------------------------------------------------------- scores


class Score(Protocol):
    """(query, key) -> how well they fit. `recalls` says that the previous weights are needed to score the next."""

    recalls: bool

    def prepare(self, keys: Tensor) -> Tensor:
        """[..., S, key width] -> [..., S, a], once per sentence."""
        ...

    def __call__(self, query: Tensor, keys: Tensor, past: Tensor | None = None) -> Tensor:
        """[..., T, query width], prepared [..., S, a] -> scores [..., T, S]."""
        ...


class Dot(nn.Module):
    """score = q . k            (Luong, Pham, Manning 2015, "dot")"""

    recalls = False

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        if query_width != key_width:
            raise ValueError(
                f"a dot product needs equal widths, not {query_width} (query) and {key_width} (key): choose 'bilinear'"
            )

    def prepare(self, keys: Tensor) -> Tensor:
        """The keys as they are."""
        return keys

    def forward(self, query: Tensor, keys: Tensor, past: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """[..., T, D], [..., S, D] -> [..., T, S]"""
        return query @ keys.transpose(-2, -1)

    if TYPE_CHECKING:
        __call__ = forward


class ScaledDot(Dot):
    """score = q . k / sqrt(d), d the width of *this* query: per head d_head, never the model's width (Vaswani 2017)"""

    def forward(self, query: Tensor, keys: Tensor, past: Tensor | None = None) -> Tensor:
        """[..., T, D], [..., S, D] -> [..., T, S]"""
        return super().forward(query, keys, past) / math.sqrt(query.size(-1))

    if TYPE_CHECKING:
        __call__ = forward


class Bilinear(Dot):
    """score = q . W k            (Luong 2015, "general"); W k is worked out once per sentence"""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__(query_width, query_width)
        self.key = nn.Linear(key_width, query_width, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """W k"""
        return self.key(keys)  # type: ignore[no-any-return]


class Additive(nn.Module):
    """score = v . tanh(W q + U k + b)            (Bahdanau, Cho, Bengio 2015); U k + b once per sentence

    The same function as v . tanh(W' [q; k]) with W' = [W U].
    """

    recalls = False

    def __init__(self, query_width: int, key_width: int, width: int | None = None) -> None:
        super().__init__()
        width = width or query_width
        self.query = nn.Linear(query_width, width, bias=False)
        self.key = nn.Linear(key_width, width)
        self.energy = nn.Linear(width, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """U k + b"""
        return self.key(keys)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor, past: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """[..., T, D], [..., S, a] -> [..., T, S]"""
        pairs = self.query(query).unsqueeze(-2) + keys.unsqueeze(-3)  # [..., T, S, a]
        return self.energy(torch.tanh(pairs)).squeeze(-1)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


class Location(nn.Module):
    """score_i = (W q)_i: where to look follows from the query alone            (Luong 2015, "location")

    W has one row per slot, so the longest source is fixed when the model is built.
    """

    recalls = False

    def __init__(self, query_width: int, key_width: int, slots: int = 256) -> None:  # noqa: ARG002
        super().__init__()
        self.slots = slots
        self.slot = nn.Linear(query_width, slots, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """The keys as they are: only their number matters."""
        return keys

    def forward(self, query: Tensor, keys: Tensor, past: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """[..., T, D], [..., S, D] -> [..., T, S]"""
        if keys.size(-2) > self.slots:
            raise ValueError(
                f"location attention was built for {self.slots} slots, but this sequence has {keys.size(-2)}: "
                f"shorten it, or build the model with slots >= {keys.size(-2)}"
            )
        return self.slot(query)[..., : keys.size(-2)]  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


class ContentLocation(nn.Module):
    """score_i = v . tanh(W q + U k_i + F f_i + b),  f = filters * previous weights            (Chorowski et al. 2015)

    The convolution tells each slot how much its neighborhood was attended one step ago, so attention can move on
    steadily. It needs the previous weights: recurrent decoders only.
    """

    recalls = True

    def __init__(
        self, query_width: int, key_width: int, width: int | None = None, filters: int = 8, span: int = 7
    ) -> None:
        super().__init__()
        if span % 2 == 0:
            raise ValueError(f"span must be odd, to be centred on its slot; got {span}")
        self.content = Additive(query_width, key_width, width)
        self.convolve = nn.Conv1d(1, filters, span, padding=span // 2, bias=False)
        self.place = nn.Linear(filters, self.content.key.out_features, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """U k + b"""
        return self.content.prepare(keys)

    def forward(self, query: Tensor, keys: Tensor, past: Tensor | None = None) -> Tensor:
        """[..., 1, D], [..., S, a], previous weights [..., 1, S] -> [..., 1, S]"""
        if past is None or query.size(-2) != 1:
            raise ValueError("content_location needs the weights of the previous step: use it in a recurrent decoder")
        features = self.convolve(past.reshape(-1, 1, past.size(-1)))  # [rows, filters, S]
        features = features.transpose(1, 2).reshape(*past.shape[:-2], past.size(-1), -1)  # [..., S, filters]
        return self.content(query, keys + self.place(features))

    if TYPE_CHECKING:
        __call__ = forward


SCORES: dict[str, type[Dot | Additive | Location | ContentLocation]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "bilinear": Bilinear,
    "additive": Additive,
    "location": Location,
    "content_location": ContentLocation,
}

# ----------------------------------------------------------------------------------------------------- normalizers


def soft(scores: Tensor) -> Tensor:
    """a_i = exp(e_i) / sum_k exp(e_k)"""
    return scores.softmax(-1)


def hard(scores: Tensor) -> Tensor:
    """a = one slot, the best; its gradient is that of the soft choice (straight-through)"""
    weights = scores.softmax(-1)
    choice = torch.zeros_like(weights).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
    return choice + (weights - weights.detach())


NORMALIZERS: dict[str, Callable[[Tensor], Tensor]] = {"soft": soft, "hard": hard}


# ---------------------------------------------------------------------------------------------------------- attend


class Attended(NamedTuple):
    """The context, the weights where the score needs them next time, and the map where somebody looks."""

    context: Tensor  # [..., T, D]
    past: Tensor | None  # [..., T, S]
    map: Map | None


def attend(
    score: Score,
    normalize: Callable[[Tensor], Tensor],
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    past: Tensor | None = None,
    glance: Glance | None = None,
) -> Attended:
    """c = normalize(score(q, k) on real slots) v

    `mask` broadcasts to [..., T, S]. `causal` lets query t of the last T slots see slot j only when
    j <= t + (S - T). A query with no real slot gets a zero context, never NaN. When nothing asks for the weights and
    the score is a scaled dot product, PyTorch's fused kernel does the same arithmetic.
    """
    record = glance.record if glance is not None else frozenset()
    steps, slots = query.size(-2), keys.size(-2)
    causal = causal and steps > 1  # one query at the end sees everything
    if not record and type(score) is ScaledDot and normalize is soft and not (causal and steps != slots):
        return Attended(_fused(query, keys, values, mask, causal), None, None)

    scores = score(query, keys, past)
    seen = mask
    if causal:
        triangle = torch.ones(steps, slots, dtype=torch.bool, device=query.device).tril(slots - steps)
        seen = triangle if mask is None else mask & triangle
    if seen is None:
        weights = normalize(scores)
    else:
        # The lowest number and not -inf: a query with no real slot must not divide zero by zero.
        weights = normalize(scores.masked_fill(~seen, torch.finfo(scores.dtype).min)) * seen
        scores = scores.masked_fill(~seen, -torch.inf) if "scores" in record else scores
    whole = {"weights": weights, "scores": scores, "queries": query, "keys": keys, "values": values}
    seen_by = Map(**{name: whole[name] for name in record}) if record else None
    return Attended(weights.to(values.dtype) @ values, weights if score.recalls else None, seen_by)


def _fused(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    if mask is not None and causal:
        mask = mask & torch.ones(query.size(-2), keys.size(-2), dtype=torch.bool, device=query.device).tril()
        causal = False
    if query.dtype is torch.bfloat16 and query.device.type == "cpu" and torch.is_grad_enabled():
        # Measured: the CPU's bf16 attention backward costs some twenty times the fp32 one.
        with torch.autocast("cpu", enabled=False):
            context = F.scaled_dot_product_attention(
                query.float(), keys.float(), values.float(), attn_mask=mask, is_causal=causal
            )
        return context.to(query.dtype)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)


# --------------------------------------------------------------------------------------- what a decoder may ask with


class Source(NamedTuple):
    """What is asked: the per-sentence work, done."""

    keys: Tensor  # [B, S, a], or [B, H, S, a] with heads
    values: Tensor  # [B, S, D], or [B, H, S, d]
    mask: Tensor | None  # broadcasts to [B, T, S], or to [B, H, T, S]


def needed(mask: Tensor) -> Tensor | None:
    """The mask, or None where it hides nothing.

    Asked only when decoding on a CPU, where looking is free, and never while the model is traced for an export, where
    the answer for one example would be taken for all.
    """
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    if mask.device.type != "cpu" or torch.is_grad_enabled() or traced:
        return mask
    return None if bool(mask.all()) else mask


def fold(query: Tensor, source: Source, *, apart: bool) -> tuple[Tensor, Source]:
    """Let k rows of queries share one row of source, by asking k T questions of it: [k B, T, D] -> [B, k T, D].

    `apart` gives every row its own copy of the source instead, for what must be told apart row by row.
    """
    shared = source.keys.size(0)
    if not apart:
        return query.reshape(shared, -1, query.size(-1)), source
    times = query.size(0) // shared
    keys, values, mask = source
    own = None if mask is None else mask.repeat_interleave(times, 0)
    return query, Source(keys.repeat_interleave(times, 0), values.repeat_interleave(times, 0), own)


class Attention(nn.Module):
    """One distribution over the slots; the context is a mixture of the annotation vectors themselves.

    `width` is the width of the context.
    """

    heads = 1

    def __init__(self, score: Score, memory_width: int, normalize: str = "soft") -> None:
        super().__init__()
        self.score = score
        self.width = memory_width
        self.normalize = NORMALIZERS[normalize]
        self.recalls = score.recalls

    def prepare(self, memory: Memory) -> Source:
        """Prepared keys [B, S, a] and values [B, S, D], once per sentence."""
        mask = needed(memory.mask)
        return Source(self.score.prepare(memory.states), memory.states, None if mask is None else mask.unsqueeze(1))

    def forward(
        self, query: Tensor, source: Source, past: Tensor | None = None, glance: Glance | None = None
    ) -> Attended:
        """[B, T, query width] -> context [B, T, D]; maps have H = 1. The source may be shared by several rows."""
        rows, steps, _ = query.shape
        if rows != source.keys.size(0):
            query, source = fold(query, source, apart=self.recalls or glance is not None)
        context, past, found = attend(
            self.score, self.normalize, query, source.keys, source.values, mask=source.mask, past=past, glance=glance
        )
        context = context.view(rows, steps, -1)
        if found is not None:
            found = found.each(lambda part: part.unsqueeze(1))
        if glance is not None and glance.silent:
            _check_heads(glance.silent, 1)
            context = torch.zeros_like(context)
        return Attended(context, past, found)

    if TYPE_CHECKING:
        __call__ = forward


class _Heads(nn.Module):
    """What every multi-head attention shares: how heads are cut, asked and put together again.

    concat:   [head_1 .. head_H] W_O, each head on its own width / H of the projected (never the raw) vectors
    average:  (1 / H) sum_h head_h, each head as wide as the output
    """

    def __init__(self, width: int, heads: int, score: Score | None, normalize: str, combine: str) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        if combine not in COMBINES:
            raise ValueError(f"combine {combine!r} is unknown; choose from {', '.join(COMBINES)}")
        self.width = width
        self.heads = heads
        self.score: Score = score or ScaledDot(width // heads, width // heads)
        self.recalls = self.score.recalls
        self.normalize = NORMALIZERS[normalize]
        self.average = combine == "average"
        self.value_width = heads * width if self.average else width  # of all heads together
        self.out = nn.Identity() if self.average else nn.Linear(width, width)

    def _cut(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """[B, T, ..] -> `parts` tensors [B, H, T, d]: the parts lie side by side, and the heads within each."""
        rows, steps, whole = x.shape
        if self.average:  # the last part, the values, is wider
            narrow, wide = x.split((whole - self.value_width, self.value_width), -1)
            return (*(self._cut_one(part) for part in narrow.chunk(parts - 1, -1)), self._cut_one(wide))
        return x.view(rows, steps, parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _cut_one(self, x: Tensor) -> Tensor:
        rows, steps, _ = x.shape
        return x.view(rows, steps, self.heads, -1).transpose(1, 2)

    def _ask(self, query: Tensor, source: Source, causal: bool, past: Tensor | None, glance: Glance | None) -> Attended:
        context, past, found = attend(
            self.score,
            self.normalize,
            query,
            source.keys,
            source.values,
            mask=source.mask,
            causal=causal,
            past=past,
            glance=glance,
        )
        if glance is not None and glance.silent:
            _check_heads(glance.silent, self.heads)
            heard = torch.ones(self.heads, dtype=torch.bool, device=context.device)
            heard[list(glance.silent)] = False
            context = context * heard[:, None, None]
        if self.average:
            return Attended(context.mean(1), past, found)
        rows, _, steps, _ = context.shape
        return Attended(self.out(context.transpose(1, 2).reshape(rows, steps, self.width)), past, found)


COMBINES = ("concat", "average")


class MultiHead(_Heads):
    """Several distributions over a memory, each head h with its own projections:

    head_h = attend(W_Q^h q, W_K^h m, W_V^h m)            then concat or average
    """

    def __init__(
        self,
        width: int,
        heads: int,
        memory_width: int,
        *,
        score: Score | None = None,
        normalize: str = "soft",
        combine: str = "concat",
    ) -> None:
        super().__init__(width, heads, score, normalize, combine)
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(memory_width, width + self.value_width)  # W_K and W_V side by side: one product

    def prepare(self, memory: Memory) -> Source:
        """Prepared keys and values [B, H, S, d], once per sentence."""
        keys, values = self._cut(self.memory(memory.states), 2)
        mask = needed(memory.mask)
        return Source(self.score.prepare(keys), values, None if mask is None else mask[:, None, None, :])

    def forward(
        self, query: Tensor, source: Source, past: Tensor | None = None, glance: Glance | None = None
    ) -> Attended:
        """[B, T, D] -> context [B, T, D]. The source may be shared by several rows."""
        query = self.query(query)
        shape = query.shape
        if shape[0] == source.keys.size(0):
            return self._ask(self._cut_one(query), source, False, past, glance)
        query, source = fold(query, source, apart=self.recalls or glance is not None)
        context, past, found = self._ask(self._cut_one(query), source, False, past, glance)
        return Attended(context.view(shape), past, found)

    if TYPE_CHECKING:
        __call__ = forward


class SelfAttention(_Heads):
    """Several distributions of a sequence over itself: Q, K, V = x W_Q, x W_K, x W_V in one product."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        score: Score | None = None,
        normalize: str = "soft",
        combine: str = "concat",
    ) -> None:
        super().__init__(width, heads, score, normalize, combine)
        if self.recalls:
            raise ValueError(
                "self-attention has no previous step to recall: content_location is for recurrent decoders"
            )
        self.project = nn.Linear(width, 2 * width + self.value_width)

    def forward(
        self,
        x: Tensor,
        *,
        past: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        glance: Glance | None = None,
    ) -> tuple[Tensor, Tensor, Map | None]:
        """[B, T, D] -> [B, T, D], and the keys and values side by side of everything seen so far (past and x).

        They are kept as the projection gave them, [B, t, keys and values], so that a step extends, and a beam
        reorders, one tensor of long rows per layer.
        """
        projected = self.project(x)
        seen = projected.narrow(2, self.width, self.width + self.value_width)
        if past is None:
            query, keys, values = self._cut(projected, 3)
        else:
            seen = torch.cat((past, seen), 1)
            query, (keys, values) = self._cut_one(projected.narrow(2, 0, self.width)), self._cut(seen, 2)
        source = Source(self.score.prepare(keys), values, mask)
        context, _, found = self._ask(query, source, causal, None, glance)
        return context, seen, found

    if TYPE_CHECKING:
        __call__ = forward


def _check_heads(silent: tuple[int, ...], heads: int) -> None:
    if wrong := [head for head in silent if not 0 <= head < heads]:
        raise ValueError(f"cannot silence head {wrong[0]} of an attention with {heads} (they count from 0)")
