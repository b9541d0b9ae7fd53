"""Attention: score -> mask -> normalize -> weighted sum.

    e_ti = score(q_t, k_i)          how relevant slot i is to query t
    a_t  = normalizer(e_t)          a distribution over the real slots
    c_t  = sum_i a_ti v_i           the context

Every class has the same interface: `prepare` runs once per sentence, `forward` runs for each query. In shapes such as
[..., T, S], the dots are B, or B, H with several heads.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from heedful import performance
from heedful.nn.contract import Glance, Map, Memory
from heedful.performance.bf16_attention import scaled_dot_product_attention

# -------------------------------------------------------------------------------------------------------------- scores


class ScoreFunction(Protocol):
    """(query, key) -> score. With `has_state`, it is a `StatefulScore` and also reads the state after the last step."""

    has_state: bool

    def prepare(self, keys: Tensor) -> Tensor:
        """[..., S, key width] -> [..., S, a], once per sentence."""
        ...

    def __call__(self, query: Tensor, keys: Tensor, state: Tensor | None = None) -> Tensor:
        """[..., T, query width], prepared [..., S, a] -> scores [..., T, S]."""
        ...


class StatefulScore(ScoreFunction, Protocol):
    """A score with a state, such as the weights of the last step. Only recurrent decoders have it: T = 1."""

    def start(self, keys: Tensor) -> Tensor:
        """The state before the first step, [..., 1, any width], from prepared keys."""
        ...

    def advance(self, query: Tensor, state: Tensor, weights: Tensor) -> Tensor:
        """The state after a step with this query and these weights."""
        ...


class Dot(nn.Module):
    """score = q . k            (Luong, Pham, Manning 2015, "dot")"""

    has_state = False

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        if query_width != key_width:
            raise ValueError(
                f"dot products need equal widths, not {query_width} (query) and {key_width} (key): use score 'bilinear'"
            )

    def prepare(self, keys: Tensor) -> Tensor:
        return keys

    def forward(self, query: Tensor, keys: Tensor, state: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """[..., T, D], [..., S, D] -> [..., T, S]"""
        return query @ keys.transpose(-2, -1)

    if TYPE_CHECKING:
        __call__ = forward


class ScaledDot(Dot):
    """score = q . k / sqrt(d), d is the width of the query: d_head with several heads            (Vaswani 2017)"""

    def forward(self, query: Tensor, keys: Tensor, state: Tensor | None = None) -> Tensor:
        """[..., T, D], [..., S, D] -> [..., T, S]"""
        return super().forward(query, keys, state) / math.sqrt(query.size(-1))

    if TYPE_CHECKING:
        __call__ = forward


class Bilinear(Dot):
    """score = q . W k            (Luong 2015, "general"); W k is computed once per sentence"""

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

    has_state = False

    def __init__(self, query_width: int, key_width: int, width: int | None = None) -> None:
        super().__init__()
        width = width or query_width
        self.query = nn.Linear(query_width, width, bias=False)
        self.key = nn.Linear(key_width, width)
        self.energy = nn.Linear(width, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """U k + b"""
        return self.key(keys)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor, state: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """[..., T, D], [..., S, a] -> [..., T, S]"""
        pairs = self.query(query).unsqueeze(-2) + keys.unsqueeze(-3)  # [..., T, S, a]
        return self.energy(torch.tanh(pairs)).squeeze(-1)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


LOCATION_SLOTS = 256  # default


class Location(nn.Module):
    """score_i = (W q)_i: depends on the query and the slot number, not on the keys            (Luong 2015, "location")

    W has one row per slot, so a source can have at most `location_slots` slots.
    """

    has_state = False

    def __init__(self, query_width: int, key_width: int, location_slots: int = LOCATION_SLOTS) -> None:  # noqa: ARG002
        super().__init__()
        self.location_slots = location_slots
        self.slot = nn.Linear(query_width, location_slots, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """The keys, unchanged: `forward` uses only their number."""
        return keys

    def forward(self, query: Tensor, keys: Tensor, state: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """[..., T, D], [..., S, D] -> [..., T, S]"""
        if keys.size(-2) > self.location_slots:
            raise ValueError(
                f"location attention was built for {self.location_slots} slots, but this sequence has "
                f"{keys.size(-2)}: shorten it, or build the model with location_slots >= {keys.size(-2)}"
            )
        return self.slot(query)[..., : keys.size(-2)]  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


class ContentLocation(nn.Module):
    """score_i = v . tanh(W q + U k_i + F f_i + b),  f = filters * previous weights            (Chorowski et al. 2015)

    f_i describes how much attention the neighborhood of slot i received in the previous step, which helps attention to
    advance steadily. Only recurrent decoders have these previous weights.
    """

    has_state = True

    def __init__(
        self, query_width: int, key_width: int, width: int | None = None, filters: int = 8, kernel_size: int = 7
    ) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, so that the kernel has a center; got {kernel_size}")
        self.content = Additive(query_width, key_width, width)
        self.convolve = nn.Conv1d(1, filters, kernel_size, padding=kernel_size // 2, bias=False)
        self.place = nn.Linear(filters, self.content.key.out_features, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """U k + b"""
        return self.content.prepare(keys)

    def forward(self, query: Tensor, keys: Tensor, state: Tensor | None = None) -> Tensor:
        """[..., 1, D], [..., S, a], previous weights [..., 1, S] -> [..., 1, S]"""
        if state is None or query.size(-2) != 1:
            raise ValueError("content_location needs the weights of the previous step: use it in a recurrent decoder")
        *batch, _, slots = state.shape
        features = self.convolve(state.reshape(-1, 1, slots))  # [rows, filters, S]
        features = features.transpose(1, 2).reshape(*batch, slots, -1)  # [..., S, filters]
        return self.content(query, keys + self.place(features))

    def start(self, keys: Tensor) -> Tensor:
        """No weights"""
        return torch.zeros_like(keys[..., 0]).unsqueeze(-2)

    def advance(self, query: Tensor, state: Tensor, weights: Tensor) -> Tensor:  # noqa: ARG002
        """The weights of this step"""
        return weights

    if TYPE_CHECKING:
        __call__ = forward


class GaussianWindow(nn.Module):
    """score_i = log sum_m alpha_m exp(-beta_m (kappa_m - i)^2),  kappa_m <- kappa_m + exp(step_m)   (Graves 2013)

    alpha, beta and the steps are exponentials of W q + b. The centers kappa are the state: they only move forward, and
    the keys do not matter. Graves uses the sum itself as the weight; here the normalizer divides by its total.
    """

    has_state = True

    def __init__(self, query_width: int, key_width: int, components: int = 3) -> None:  # noqa: ARG002
        super().__init__()
        self.window = nn.Linear(query_width, 3 * components)
        self.components = components

    def prepare(self, keys: Tensor) -> Tensor:
        """The keys, unchanged: `forward` uses only their number."""
        return keys

    def forward(self, query: Tensor, keys: Tensor, state: Tensor | None = None) -> Tensor:
        """[..., 1, D], [..., S, D], centers after the last step [..., 1, M] -> [..., 1, S]"""
        if state is None or query.size(-2) != 1:
            raise ValueError("gaussian attention needs the centers of the previous step: use it in a recurrent decoder")
        log_alpha, log_beta, step = self.window(query).unsqueeze(-1).chunk(3, -2)  # [..., 1, M, 1]
        slots = torch.ones_like(keys[..., 0]).cumsum(-1).unsqueeze(-2).unsqueeze(-2) - 1  # [..., 1, 1, S]
        distances = state.unsqueeze(-1) + step.exp() - slots
        scores: Tensor = (log_alpha - log_beta.exp() * distances**2).logsumexp(-2)
        return scores

    def start(self, keys: Tensor) -> Tensor:
        """Centers before the first slot"""
        return keys.new_full((*keys.shape[:-2], 1, self.components), -1.0)

    def advance(self, query: Tensor, state: Tensor, weights: Tensor) -> Tensor:  # noqa: ARG002
        """The centers of this step"""
        return state + self.window(query).chunk(3, -1)[2].exp()  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


SCORES: dict[str, type[Dot | Additive | Location | ContentLocation | GaussianWindow]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "bilinear": Bilinear,
    "additive": Additive,
    "location": Location,
    "content_location": ContentLocation,
    "gaussian": GaussianWindow,
}


def make_score(kind: str, query_width: int, key_width: int, location_slots: int = LOCATION_SLOTS) -> ScoreFunction:
    """The score function of this name."""
    if kind == "location":
        return Location(query_width, key_width, location_slots)
    return SCORES[kind](query_width, key_width)


# --------------------------------------------------------------------------------------------------------- normalizers


def soft(scores: Tensor) -> Tensor:
    """a_i = exp(e_i) / sum_k exp(e_k)"""
    return scores.softmax(-1)


def hard(scores: Tensor) -> Tensor:
    """a = one-hot vector of the best slot; the gradient is that of softmax (straight-through)"""
    weights = scores.softmax(-1)
    choice = torch.zeros_like(weights).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
    return choice + (weights - weights.detach())


class Sampled(nn.Module):
    """a = one-hot vector of a slot s drawn from p(s = i) = softmax(e)_i            (Xu et al. 2015, "hard" attention)

    A drawn slot has no gradient. `estimator` says how training replaces it (see `heedful.model.latent`):

        reinforce           the log-likelihood of the sentence rewards the slots that were drawn for it
        marginal            no slot is drawn: p(y_t) = sum_i a_ti p(y_t | s_t = i), exactly
        straight_through    the gradient of softmax, as of `hard`

    In training, a share `soft_share` of the queries attends softly. In evaluation, `decode` selects the most probable
    slot ("best") or the expected context ("expected"), whose output approximates the expected distribution (NWGM).
    """

    def __init__(
        self,
        *,
        estimator: str = "reinforce",
        decode: str = "best",
        soft_share: float = 0.5,
        reward_weight: float = 1.0,
        entropy_weight: float = 0.01,
        baseline_decay: float = 0.9,
    ) -> None:
        super().__init__()
        for name, value, choices in (("estimator", estimator, ESTIMATORS), ("decode", decode, SLOT_DECODING)):
            if value not in choices:
                raise ValueError(f"{name} {value!r} is unknown; choose from {', '.join(choices)}")
        self.estimator, self.decode, self.soft_share = estimator, decode, soft_share
        self.reward_weight, self.entropy_weight, self.baseline_decay = reward_weight, entropy_weight, baseline_decay
        # A moving average, not trained; a parameter, so that checkpoints contain it.
        self.baseline = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, scores: Tensor) -> Tensor:
        """[..., T, S] -> weights [..., T, S]"""
        if not self.training:
            return soft(scores) if self.decode == "expected" else hard(scores)
        # argmax_i(e_i - log(-log u_i)) with uniform u_i is a draw from softmax(e). In bf16, u_i would have 8 bits only.
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        noise = torch.rand_like(exact).clamp(torch.finfo(exact.dtype).tiny, 1 - torch.finfo(exact.dtype).eps)
        slots = (exact - (-noise.log()).log()).argmax(-1, keepdim=True)
        expected = soft(scores)
        drawn = torch.zeros_like(scores).scatter_(-1, slots, 1.0)
        if self.estimator == "straight_through":
            drawn = drawn + (expected - expected.detach())
        is_soft = torch.rand_like(scores[..., :1]) < self.soft_share
        return torch.where(is_soft, expected, drawn)

    if TYPE_CHECKING:
        __call__ = forward


ESTIMATORS = ("reinforce", "marginal", "straight_through")
SLOT_DECODING = ("best", "expected")

Normalizer = Callable[[Tensor], Tensor]
NORMALIZERS: dict[str, Normalizer | type[Sampled]] = {"soft": soft, "hard": hard, "sampled": Sampled}


def make_normalizer(normalizer: str | Normalizer) -> Normalizer:
    """The normalizer of this name, with default options; a function or module is returned unchanged."""
    if not isinstance(normalizer, str):
        return normalizer
    entry = NORMALIZERS[normalizer]
    return entry() if isinstance(entry, type) else entry


# -------------------------------------------------------------------------------------------------------------- attend


class Attended(NamedTuple):
    """The context, the state of the score if it has one, and the map if it was requested."""

    context: Tensor  # [..., T, D]
    state: Tensor | None  # [..., 1, width]
    map: Map | None


def attend(
    score: ScoreFunction,
    normalizer: Normalizer,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    state: Tensor | None = None,
    glance: Glance | None = None,
) -> Attended:
    """c = normalizer(score(q, k) on real slots) v

    `mask` broadcasts to [..., T, S]. With `causal`, query t attends only to slots j <= t + (S - T). A query without
    real slots gets a zero context, not NaN. If nothing is recorded, a scaled dot product with softmax uses
    PyTorch's fused kernel.
    """
    record = glance.record if glance is not None else frozenset()
    steps, slots = query.size(-2), keys.size(-2)
    causal = causal and steps > 1  # a single query is the last one: it attends to every slot
    if not record and type(score) is ScaledDot and normalizer is soft and not (causal and steps != slots):
        return Attended(_attend_fused(query, keys, values, mask, causal), None, None)

    scores = score(query, keys, state)
    visible = mask
    if causal:
        triangle = torch.ones(steps, slots, dtype=torch.bool, device=query.device).tril(slots - steps)
        visible = triangle if mask is None else mask & triangle
    if visible is None:
        weights = normalizer(scores)
    else:
        # Not -inf: the softmax of a query without real slots would be NaN.
        weights = normalizer(scores.masked_fill(~visible, torch.finfo(scores.dtype).min)) * visible
        scores = scores.masked_fill(~visible, -torch.inf) if "scores" in record else scores
    parts = {"weights": weights, "scores": scores, "queries": query, "keys": keys, "values": values}
    recorded = Map(**{name: parts[name] for name in record}) if record else None
    if score.has_state:
        assert state is not None
        state = cast("StatefulScore", score).advance(query, state, weights)
    return Attended(weights.to(values.dtype) @ values, state, recorded)


def _attend_fused(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    if mask is not None and causal:
        mask = mask & torch.ones(query.size(-2), keys.size(-2), dtype=torch.bool, device=query.device).tril()
        causal = False
    return scaled_dot_product_attention(query, keys, values, mask, causal)


# ----------------------------------------------------------------------------------------------- attention as a module


class PreparedSource(NamedTuple):
    """The keys and values that queries attend to, prepared once per sentence."""

    keys: Tensor  # [B, S, a], or [B, H, S, a] with heads
    values: Tensor  # [B, S, D], or [B, H, S, d]
    mask: Tensor | None  # broadcasts to [B, T, S], or to [B, H, T, S]


def mask_if_any(mask: Tensor) -> Tensor | None:
    """The mask, or None if it is all True.

    Checked only when decoding on a CPU, where reading the mask is cheap. Not checked while a model is traced for
    export, because the trace would fix the result of one example.
    """
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    if mask.device.type != "cpu" or torch.is_grad_enabled() or traced or not performance.enabled():
        return mask
    return None if bool(mask.all()) else mask


def share_source(query: Tensor, source: PreparedSource, *, copy: bool) -> tuple[Tensor, PreparedSource]:
    """Merge the k query rows that share a source row into one row of k T queries: [k B, T, D] -> [B, k T, D].

    With `copy`, repeat the source for every query row instead, for results that are needed per row.
    """
    shared_rows = source.keys.size(0)
    if not copy:
        return query.reshape(shared_rows, -1, query.size(-1)), source
    times = query.size(0) // shared_rows
    keys, values, mask = source
    copied_mask = None if mask is None else mask.repeat_interleave(times, 0)
    return query, PreparedSource(keys.repeat_interleave(times, 0), values.repeat_interleave(times, 0), copied_mask)


class Attention(nn.Module):
    """One distribution over the slots; the context is a weighted sum of the annotation vectors themselves.

    `width` is the width of the context.
    """

    heads = 1

    def __init__(self, score: ScoreFunction, memory_width: int, normalizer: str | Normalizer = "soft") -> None:
        super().__init__()
        self.score = score
        self.width = memory_width
        self.normalizer = make_normalizer(normalizer)
        self.has_state = score.has_state

    def prepare(self, memory: Memory) -> PreparedSource:
        """Prepared keys [B, S, a] and values [B, S, D], once per sentence."""
        mask = mask_if_any(memory.mask)
        return PreparedSource(
            self.score.prepare(memory.states), memory.states, None if mask is None else mask.unsqueeze(1)
        )

    def start_score(self, source: PreparedSource) -> Tensor | None:
        """The state of the score before the first step, if it has one."""
        return cast("StatefulScore", self.score).start(source.keys) if self.has_state else None

    def forward(
        self, query: Tensor, source: PreparedSource, state: Tensor | None = None, glance: Glance | None = None
    ) -> Attended:
        """[B, T, query width] -> context [B, T, D]; maps have H = 1. The source may be shared by several rows."""
        rows, steps, _ = query.shape
        if rows != source.keys.size(0):
            query, source = share_source(query, source, copy=self.has_state or glance is not None)
        context, state, recorded = attend(
            self.score,
            self.normalizer,
            query,
            source.keys,
            source.values,
            mask=source.mask,
            state=state,
            glance=glance,
        )
        context = context.view(rows, steps, -1)
        if recorded is not None:
            recorded = recorded.transform(lambda part: part.unsqueeze(1))
        if glance is not None and glance.silent:
            check_heads(glance.silent, 1)
            context = torch.zeros_like(context)
        return Attended(context, state, recorded)

    if TYPE_CHECKING:
        __call__ = forward


class _MultiHeadBase(nn.Module):
    """Base class of multi-head attention: splits vectors into heads and combines their contexts.

    concat:   [head_1 .. head_H] W_O, each head has width / H columns of the projected vectors
    average:  (1 / H) sum_h head_h, each head as wide as the output
    """

    def __init__(
        self, width: int, heads: int, score: ScoreFunction | None, normalizer: str | Normalizer, combine: str
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        if combine not in COMBINE_MODES:
            raise ValueError(f"combine {combine!r} is unknown; choose from {', '.join(COMBINE_MODES)}")
        self.width = width
        self.heads = heads
        self.score: ScoreFunction = score or ScaledDot(width // heads, width // heads)
        self.has_state = self.score.has_state
        self.normalizer = make_normalizer(normalizer)
        self.average = combine == "average"
        self.value_width = heads * width if self.average else width  # of all heads together
        self.out = nn.Identity() if self.average else nn.Linear(width, width)

    def start_score(self, source: PreparedSource) -> Tensor | None:
        """The state of the score before the first step, if it has one."""
        return cast("StatefulScore", self.score).start(source.keys) if self.has_state else None

    def _split_parts(self, x: Tensor, num_parts: int) -> tuple[Tensor, ...]:
        """[B, T, ..] -> `num_parts` tensors [B, H, T, d]; each part of the last dim has the heads in order."""
        rows, steps, width = x.shape
        if self.average:  # the last part, the values, is wider
            narrow, wide = x.split((width - self.value_width, self.value_width), -1)
            return (*(self._split_heads(part) for part in narrow.chunk(num_parts - 1, -1)), self._split_heads(wide))
        return x.view(rows, steps, num_parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _split_heads(self, x: Tensor) -> Tensor:
        rows, steps, _ = x.shape
        return x.view(rows, steps, self.heads, -1).transpose(1, 2)

    def _attend(
        self,
        query: Tensor,
        source: PreparedSource,
        causal: bool,
        state: Tensor | None,
        glance: Glance | None,
    ) -> Attended:
        context, state, recorded = attend(
            self.score,
            self.normalizer,
            query,
            source.keys,
            source.values,
            mask=source.mask,
            causal=causal,
            state=state,
            glance=glance,
        )
        if glance is not None and glance.silent:
            check_heads(glance.silent, self.heads)
            audible = torch.ones(self.heads, dtype=torch.bool, device=context.device)
            audible[list(glance.silent)] = False
            context = context * audible[:, None, None]
        if self.average:
            return Attended(context.mean(1), state, recorded)
        rows, _, steps, _ = context.shape
        context = context.transpose(1, 2).reshape(rows, steps, self.width)
        return Attended(self.out(context), state, recorded)


COMBINE_MODES = ("concat", "average")


class MultiHead(_MultiHeadBase):
    """Multi-head attention to a memory; each head h has its own projections:

    head_h = attend(W_Q^h q, W_K^h m, W_V^h m)            then concat or average

    With `tie_keys_values`, the values are the keys: W_V = W_K.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        memory_width: int,
        *,
        score: ScoreFunction | None = None,
        normalizer: str | Normalizer = "soft",
        combine: str = "concat",
        tie_keys_values: bool = False,
    ) -> None:
        super().__init__(width, heads, score, normalizer, combine)
        if tie_keys_values and self.average:
            raise ValueError("tie_keys_values needs values as wide as the keys: use combine 'concat'")
        self.tie_keys_values = tie_keys_values
        self.query = nn.Linear(width, width)
        # W_K and W_V in one matrix product
        self.memory = nn.Linear(memory_width, width + (0 if tie_keys_values else self.value_width))

    def prepare(self, memory: Memory) -> PreparedSource:
        """Prepared keys and values [B, H, S, d], once per sentence."""
        projected = self.memory(memory.states)
        keys, values = self._split_parts(
            torch.cat((projected, projected), -1) if self.tie_keys_values else projected, 2
        )
        mask = mask_if_any(memory.mask)
        return PreparedSource(self.score.prepare(keys), values, None if mask is None else mask[:, None, None, :])

    def forward(
        self, query: Tensor, source: PreparedSource, state: Tensor | None = None, glance: Glance | None = None
    ) -> Attended:
        """[B, T, D] -> context [B, T, D]. The source may be shared by several rows."""
        query = self.query(query)
        shape = query.shape
        if shape[0] == source.keys.size(0):
            return self._attend(self._split_heads(query), source, False, state, glance)
        query, source = share_source(query, source, copy=self.has_state or glance is not None)
        context, state, recorded = self._attend(self._split_heads(query), source, False, state, glance)
        return Attended(context.view(shape), state, recorded)

    if TYPE_CHECKING:
        __call__ = forward


class SelfAttention(_MultiHeadBase):
    """Multi-head attention of a sequence to itself: Q, K, V = x W_Q, x W_K, x W_V in one product."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        score: ScoreFunction | None = None,
        normalizer: str = "soft",
        combine: str = "concat",
    ) -> None:
        super().__init__(width, heads, score, normalizer, combine)
        if self.has_state:
            raise ValueError(
                "self-attention has no previous step: content_location and gaussian are for recurrent decoders"
            )
        if isinstance(self.normalizer, Sampled):
            raise ValueError("sampled attention is for recurrent decoders: use normalizer 'soft' or 'hard'")
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
        """[B, T, D] -> [B, T, D], and the cached keys and values of all tokens so far (past and x).

        The cache is one tensor [B, t, keys and values] per layer, which is fast to extend and to reorder.
        """
        projected = self.project(x)
        seen = projected.narrow(2, self.width, self.width + self.value_width)
        if past is None:
            query, keys, values = self._split_parts(projected, 3)
        else:
            seen = torch.cat((past, seen), 1)
            query, (keys, values) = self._split_heads(projected.narrow(2, 0, self.width)), self._split_parts(seen, 2)
        source = PreparedSource(self.score.prepare(keys), values, mask)
        context, _, recorded = self._attend(query, source, causal, None, glance)
        return context, seen, recorded

    if TYPE_CHECKING:
        __call__ = forward


def check_heads(silent: tuple[int, ...], heads: int) -> None:
    if unknown := [head for head in silent if not 0 <= head < heads]:
        raise ValueError(f"cannot silence head {unknown[0]} of an attention with {heads} heads (numbered from 0)")
