"""More evidence than attention: four measurements of an answer y to a source x.

    lens           what each decoder layer would predict, if the output layer read its state
    neighbors      the pieces with the most similar embeddings
    contributions  how much each source piece contributes to log p(y_t | y_<t, x), by erasure and by gradients
    deletion       log p(y | x) after the most important source pieces are erased, for each measure of importance

All of them decode the answer y by force and change only what the model reads or how far it computes. A model that does
not expose what a measurement needs, such as its embeddings, lacks this measurement.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.alignment import AlignmentMethod
from heedful.data.batch import pad_sources
from heedful.nn.contract import Memory
from heedful.nn.decoders import TransformerDecoder
from heedful.trace import MIN_LOG_PROB, LensStep, RatedPieces, TraceAlignment, numbers_blob, readable_piece

Array = NDArray[Any]
PieceNames = Callable[[Sequence[int]], list[str]]  # ids -> names

NUM_NEIGHBORS = 5
NUM_LENS_PIECES = 3
MAX_DELETIONS = 20  # a curve ends here: later deletions say little, because hardly anything is left
NUM_RANDOM_ORDERS = 5
GRID_SIZE = 64  # points of the path of integrated gradients at which log p is computed first
NUM_INTERVALS = (32, 64, 128)  # of the integral: more until the sum of the contributions is exact enough
MAX_GAP = 0.05  # between the sum of the contributions and d, relative to 1 + |d|, for every piece of the target
MAX_TOKENS_PER_PASS = 1024  # of sources and targets, which limits the memory of a pass


@dataclass(frozen=True)
class AnswerScorer:
    """Computes log p(y_t | y_<t, x) of a fixed answer y for sources x that differ from the original one."""

    encoder: Any
    decoder: Any
    bos: int
    unk: int | None  # replaces an erased piece; None: its slot is masked out of the cross-attention
    source: Any  # a tuple of ids; or features [S, F], of which those of erased slots become `erased`
    target: tuple[int, ...]  # with its end token, unless the answer was cut
    device: torch.device
    erased: float = 1.0  # white patches

    @property
    def reduction(self) -> int:
        """Rows of the source per slot of the memory."""
        return getattr(self.encoder, "reduction", 1)

    @property
    def num_slots(self) -> int:
        return -(-len(self.source) // self.reduction)

    @property
    def rows_per_pass(self) -> int:
        return max(1, MAX_TOKENS_PER_PASS // (len(self.source) + len(self.target)))

    @property
    def is_text(self) -> bool:
        return np.ndim(self.source) == 1

    def encode(self, rows: Tensor) -> Memory:
        memory: Memory = self.encoder(rows, torch.ones(rows.shape[:2], dtype=torch.bool, device=self.device))
        return memory

    def encode_vectors(self, table: nn.Embedding, vectors: Tensor) -> Memory:
        """The memory of sources whose embeddings are `vectors` [B, S, D] instead of rows of the table."""
        hook = table.register_forward_hook(lambda *_: vectors)
        try:
            return self.encode(self.repeat_source(len(vectors)))
        finally:
            hook.remove()

    def decode(self, memory: Memory) -> Tensor:
        """The decoder's states [B, T, D] before each piece of the answer."""
        inputs = torch.tensor([[self.bos, *self.target[:-1]]] * memory.mask.size(0), device=self.device)
        states: Tensor = self.decoder(inputs, self.decoder.start(memory))[0].states
        return states

    def repeat_source(self, rows: int) -> Tensor:
        return pad_sources([self.source] * rows, 0)[0].to(self.device)

    def log_probs(self, memory: Memory) -> Tensor:
        """log p of each piece of the answer, [B, T]"""
        target = torch.tensor(self.target, device=self.device).unsqueeze(1)
        rows = self.decode(memory)  # projected row by row: [B, T, V] can be large
        log_probs = [self.decoder.project(row).float().log_softmax(-1).gather(1, target).squeeze(1) for row in rows]
        return torch.stack(log_probs).clamp(min=MIN_LOG_PROB)

    @torch.inference_mode()
    def log_probs_without(self, erased_slots: Sequence[Collection[int]]) -> Array:
        """log p of each piece of the answer if these slots of the source are erased, [len(erased_slots), T]"""
        log_probs = []
        for first in range(0, len(erased_slots), self.rows_per_pass):
            batch = erased_slots[first : first + self.rows_per_pass]
            tokens = self.repeat_source(len(batch))
            is_erased = torch.tensor(
                [[row // self.reduction in slots for row in range(len(self.source))] for slots in batch],
                device=self.device,
            )
            if not self.is_text:
                memory = self.encode(tokens.masked_fill(is_erased.unsqueeze(-1), self.erased))
            elif self.unk is not None:
                memory = self.encode(tokens.masked_fill(is_erased, self.unk))
            else:
                memory = self.encode(tokens)
                memory = replace(memory, mask=memory.mask & ~is_erased)
            log_probs.append(self.log_probs(memory))
        return torch.cat(log_probs).cpu().numpy()

    @torch.inference_mode()
    def can_erase(self) -> bool:
        """False without a source, or without an unknown piece if the memory does not have one slot per piece."""
        if len(self.source) == 0 or not self.is_text:
            return len(self.source) > 0
        return self.unk is not None or self.encode(self.repeat_source(1)).mask.size(1) == len(self.source)


def ignore_progress(stage: str) -> None:
    pass


def measure_evidence(
    scorer: AnswerScorer,
    piece_names: tuple[PieceNames, PieceNames],
    erasable: Sequence[int],
    cross_attention: Array | None,
    alignment: TraceAlignment | None,
    report: Callable[[str], None] = ignore_progress,
) -> dict[str, Any]:
    """The fields `lens`, `neighbors`, `contributions` and `deletion` of a `Sentence`.

    `piece_names` are those of source and target, `erasable` the source slots that deletion curves erase,
    `cross_attention` the weights [layers, heads, T, S], and `alignment` the head that aligns words best.
    """
    report("layers and neighbors")
    source_table = find_table(scorer.encoder, scorer.source) if scorer.is_text and len(scorer.source) else None
    tables = [source_table, find_table(scorer.decoder, scorer.target)]
    sides = zip(("source", "target"), tables, (scorer.source, scorer.target), piece_names, strict=True)
    neighbors = {side: nearest_pieces(table, ids, names) for side, table, ids, names in sides if table is not None}
    contributions: dict[str, Array] = {}
    if can_erase := scorer.can_erase():
        report("contributions of source pieces by erasure")
        contributions["erasure"] = erasure_contributions(scorer)
    if tables[0] is not None and (gradients := gradient_contributions(scorer, tables[0], report)) is not None:
        contributions["gradients"] = gradients
    report("deletion curves")
    importance = {name: array.sum(0) for name, array in contributions.items()}
    importance |= attention_importance(cross_attention, alignment, len(scorer.target), scorer.num_slots)
    return {
        "lens": tuple(lens_layers(scorer, piece_names[1])),
        "neighbors": {side: pieces for side, pieces in neighbors.items() if pieces},
        "contributions": {name: numbers_blob(array) for name, array in contributions.items()},
        "deletion": deletion_curves(scorer, importance, erasable) if can_erase else {},
    }


# ------------------------------------------------------------------------------------------------------ the logit lens


@torch.inference_mode()
def lens_layers(scorer: AnswerScorer, names: PieceNames) -> Iterator[tuple[LensStep, ...]]:
    """p_l(. | y_<t, x) = softmax(project(norm(state of layer l at step t))), for every decoder layer l

    The layers of a Transformer add to one vector, so the output layer can read it after each of them; the last layer
    gives the model's own distribution. A recurrent decoder has no such vector, and no lens.
    """
    decoder = scorer.decoder
    if not isinstance(decoder, TransformerDecoder):
        return
    state = decoder.start(scorer.encode(scorer.repeat_source(1)))
    x = decoder.embed(torch.tensor([[scorer.bos, *scorer.target[:-1]]], device=scorer.device))
    for layer, source in zip(decoder.layers, state.source, strict=True):
        x, _, _ = layer(x, None, source)
        yield make_lens_steps(decoder.project(decoder.norm(x)[0]).float().log_softmax(-1), scorer.target, names)


def make_lens_steps(log_probs: Tensor, target: Sequence[int], names: PieceNames) -> tuple[LensStep, ...]:
    """For log-probabilities [T, V]: those of the target's pieces, their ranks and the best pieces."""
    own = log_probs.gather(1, torch.tensor(target, device=log_probs.device).unsqueeze(1))
    ranks = (log_probs > own).sum(1).tolist()
    values, indices = log_probs.topk(min(NUM_LENS_PIECES, log_probs.size(1)))
    return tuple(
        LensStep(logp=round(max(log_prob, MIN_LOG_PROB), 4), rank=rank, top=rate_pieces(names, *best))
        for log_prob, rank, *best in zip(own[:, 0].tolist(), ranks, indices.tolist(), values.tolist(), strict=True)
    )


def rate_pieces(names: PieceNames, ids: Sequence[int], values: Sequence[float]) -> RatedPieces:
    """Pieces as shown, with their values; four decimals are enough to show, and keep a page small."""
    pairs = zip(names(ids), values, strict=True)
    return tuple((readable_piece(name), round(max(value, MIN_LOG_PROB), 4)) for name, value in pairs)


# ---------------------------------------------------------------------------------------------------------- neighbors


def find_table(part: Any, ids: Sequence[int]) -> nn.Embedding | None:
    """The embedding table of an encoder or a decoder: its only `nn.Embedding`, if it has a row for every id."""
    modules = part.modules() if isinstance(part, nn.Module) else ()
    tables = [module for module in modules if isinstance(module, nn.Embedding)]
    return tables[0] if len(tables) == 1 and max(ids, default=-1) < tables[0].num_embeddings else None


@torch.inference_mode()
def nearest_pieces(table: nn.Embedding, ids: Sequence[int], names: PieceNames) -> tuple[RatedPieces, ...]:
    """The other pieces v with the largest cos(E_u, E_v), for each id u; none if some rows have no name."""
    vectors = F.normalize(table.weight.float(), dim=-1)
    rows = torch.tensor(ids, device=vectors.device)
    cosines = (vectors[rows] @ vectors.T).scatter(1, rows.unsqueeze(1), -torch.inf)
    values, indices = cosines.topk(min(NUM_NEIGHBORS, len(vectors) - 1))
    with suppress(LookupError):  # a table may have more rows than the vocabulary has pieces
        return tuple(rate_pieces(names, *best) for best in zip(indices.tolist(), values.tolist(), strict=True))
    return ()


# ------------------------------------------------------------------------------------------------------ contributions


def erasure_contributions(scorer: AnswerScorer) -> Array:
    """c_ts = log p(y_t | y_<t, x) - log p(y_t | y_<t, x without piece s), [T, S]"""
    log_probs = scorer.log_probs_without([(), *((slot,) for slot in range(scorer.num_slots))])
    contributions: Array = (log_probs[0] - log_probs[1:]).T
    return contributions


def gradient_contributions(
    scorer: AnswerScorer,
    table: nn.Embedding,
    report: Callable[[str], None] = ignore_progress,
    *,
    step_groups: Sequence[Sequence[int]] | None = None,
) -> Array | None:
    """Integrated gradients (Sundararajan, Taly, Yan 2017), [T, S], for the embeddings e_1 .. e_S of the source:

    c_ts = e_s . integral from 0 to 1 of (d / d e_s) log p(y_t | y_<t, a e) da

    The path begins at zero embeddings, because every model has them and they favor no piece: each slot then has only
    its position. (The vector of the unknown piece is often random: a tokenizer with byte fallback never uses it.)
    The integral is a sum over intervals, as many as needed for the contributions of every step t to add up to
    d_t = log p(y_t | y_<t, e) - log p(y_t | y_<t, 0). None if they do not, as with hard attention, or if the model has
    no gradients. With `step_groups`, the contributions are those to the sum of log p over the steps of each group,
    [len(step_groups), S]; the fewer groups, the faster.
    """
    groups = step_groups or [[step] for step in range(len(scorer.target))]
    # Not in inference mode, where there are no gradients, and without cuDNN, whose RNNs have none in evaluation mode.
    # A RuntimeError is autograd's: an operation of the model has no gradient, or the model does not call its table.
    with (
        suppress(RuntimeError),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),
    ):
        embedded = table(scorer.repeat_source(1))[0].detach()  # [S, D]
        grid = np.linspace(0, 1, GRID_SIZE + 1)
        log_probs = log_probs_on_path(scorer, table, embedded, grid)
        difference = np.array([(log_probs[-1] - log_probs[0])[list(group)].sum() for group in groups])
        for num_intervals in NUM_INTERVALS:
            report(f"contributions of source pieces by gradients ({num_intervals} intervals)")
            edges = split_path(grid, log_probs, num_intervals)
            contributions = sum_gradients(scorer, table, embedded, edges, groups)
            if not np.isfinite(contributions).all():  # of CTC: log 0 has no gradient, however many intervals
                return None
            if (np.abs(contributions.sum(1) - difference) <= MAX_GAP * (1 + np.abs(difference))).all():
                return contributions
    return None


@torch.no_grad()
def log_probs_on_path(scorer: AnswerScorer, table: nn.Embedding, embedded: Tensor, grid: Array) -> Array:
    """log p(y_t | y_<t, a e) for every a of the grid, [len(grid), T]"""
    factors = torch.tensor(grid, dtype=embedded.dtype, device=embedded.device)[:, None, None]
    batches = factors.split(scorer.rows_per_pass)
    log_probs = [scorer.log_probs(scorer.encode_vectors(table, batch * embedded)) for batch in batches]
    return torch.cat(log_probs).cpu().numpy()


def split_path(grid: Array, log_probs: Array, num_intervals: int) -> Array:
    """The edges of intervals that are short where log p changes fast: a trained model often jumps on the path.

    Four fifths of the intervals follow the change of log p [grid, T], one fifth the length of the path.
    """
    change = np.abs(np.diff(log_probs, axis=0)).sum(1)
    density = change + (0.25 * change.sum() + 1e-9) / len(change)
    position = np.concatenate(([0.0], np.cumsum(density / density.sum())))
    return np.interp(np.linspace(0, 1, num_intervals + 1), position, grid)


def sum_gradients(
    scorer: AnswerScorer, table: nn.Embedding, embedded: Tensor, edges: Array, groups: Sequence[Sequence[int]]
) -> Array:
    """c_gs = sum_i w_i e_s . (d / d e_s) sum over t in g of log p(y_t | y_<t, a_i e), [groups, S]

    a_i is the middle of interval i and w_i its width.
    """
    middles, widths = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    factors, weights = (
        torch.tensor(array, dtype=embedded.dtype, device=embedded.device) for array in (middles, widths)
    )
    total = np.zeros((len(groups), len(embedded)))
    for batch, weight in zip(factors.split(scorer.rows_per_pass), weights.split(scorer.rows_per_pass), strict=True):
        vectors = (batch[:, None, None] * embedded).requires_grad_()
        states = scorer.decode(scorer.encode_vectors(table, vectors))
        for row, group in enumerate(groups):
            log_probs = torch.zeros_like(weight)
            for step in group:
                logits = scorer.decoder.project(states[:, step]).float()
                log_probs = log_probs + logits.log_softmax(-1)[:, scorer.target[step]]
            (gradient,) = torch.autograd.grad(log_probs @ weight, vectors, retain_graph=True)
            total[row] += (gradient * embedded).sum((0, 2)).cpu().numpy()
    return total


# ----------------------------------------------------------------------------------------------------- deletion curves


def attention_importance(
    weights: Array | None, alignment: TraceAlignment | None, num_pieces: int, num_slots: int
) -> dict[str, Array]:
    """The attention that each source slot receives in all steps: the mean of all heads, and the best aligning head."""
    if weights is None or weights.shape[-1] != num_slots:
        return {}
    importance = {"attention": weights.mean((0, 1)).sum(0)}
    if alignment is not None and alignment.layer is not None and alignment.head is not None:
        method = AlignmentMethod(alignment.step, alignment.layer, alignment.head)
        importance["head"] = method(weights, num_pieces).sum(0)
    return importance


def deletion_curves(
    scorer: AnswerScorer,
    importance: Mapping[str, Array],
    erasable: Sequence[int],
    *,
    max_deletions: int = MAX_DELETIONS,
    num_random_orders: int = NUM_RANDOM_ORDERS,
) -> dict[str, tuple[float, ...]]:
    """log p(y | x without the k most important pieces) for k = 0, 1, .. and each measure of importance.

    The importance of a slot is the sum over all steps, with its sign. `random` is the mean over random orders. The
    faster a curve falls, the better its measure finds the pieces that the model used.
    """
    count = min(len(erasable), max_deletions)
    if count == 0:
        return {}
    generator = np.random.default_rng(1)
    orders = {
        name: [[slot for slot in np.argsort(-values, kind="stable").tolist() if slot in erasable]]
        for name, values in importance.items()
    }
    orders["random"] = [generator.permutation(erasable).tolist() for _ in range(num_random_orders)]
    deleted = {name: [[frozenset(order[:k]) for k in range(count + 1)] for order in orders[name]] for name in orders}
    unique = list({slots for curves in deleted.values() for curve in curves for slots in curve})
    log_probs = dict(zip(unique, scorer.log_probs_without(unique).sum(1).tolist(), strict=True))
    return {
        name: tuple(np.mean([[log_probs[slots] for slots in curve] for curve in curves], axis=0).tolist())
        for name, curves in deleted.items()
    }
