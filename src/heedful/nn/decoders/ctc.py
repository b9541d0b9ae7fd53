"""The CTC decoder: one distribution over labels per slot, read as p(y_t | y_<t, x) by summing over alignments."""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.contract import Decoded, Look, Map, Maps, Memory, State, last_slot
from heedful.nn.ctc import BLANK
from heedful.nn.layers import promote_to_fp32

NEVER = -1e4  # a log-probability that is zero as a probability. Not -inf, whose sums and differences can be NaN


class SlotLabels(NamedTuple):
    """The distribution over labels and the blank at every slot, in double precision. A padded slot emits the blank."""

    log_probs: Tensor  # [B, S, V]
    probs: Tensor  # [B, S, V]
    mask: Tensor  # [B, S]


class _Prefix(NamedTuple):
    """The alignments of the labels so far, in double precision."""

    last: Tensor  # [B] the last label, or BLANK
    log_prob: Tensor  # [B] log p(y starts with these labels)
    ends_in_blank: Tensor  # [B, S] log p(slots 0..s emit exactly these labels, slot s the blank)
    ends_in_label: Tensor  # [B, S] the same, slot s the last label


class CTCDecoder(nn.Module):
    """p_s = softmax(W h_s), a distribution over labels and the blank for every slot s; see `heedful.nn.ctc`

    With `upsample` = k, every slot becomes k: h_{s,1} .. h_{s,k} = U h_s (Libovicky, Helcl 2018), so a target can have
    up to k times as many labels as the source has slots.

    As a `Decoder`, it returns the exact p(y_t | y_<t, x), so every search works with it. With phi_s(g), the probability
    that the slots up to s emit exactly the labels g (phi_{-1}(g) = 1 if g is empty, otherwise 0):

        p(y starts with g c) = sum_s phi_{s-1}(g) p_s(c)        phi'_{s-1} instead of phi_{s-1} if c is the last label
        p(y = g) = phi_S(g)                                     of g, where phi' counts only what ends in a blank

    The maps are p(slot s is the first of the next label | y_<t, x); the last slot also has the probability of the end.
    `heedful.search.ctc` has the usual searches over slots.
    """

    def __init__(self, output: nn.Linear, memory_width: int, *, upsample: int = 1, bos: int = 2, eos: int = 3) -> None:
        super().__init__()
        if upsample < 1:
            raise ValueError(f"upsample must be at least 1, got {upsample}")
        self.output, self.upsample, self.bos, self.eos = output, upsample, bos, eos
        width = output.in_features
        needs_upper = upsample > 1 or memory_width != width
        self.upper = nn.Linear(memory_width, upsample * width) if needs_upper else nn.Identity()

    def slot_labels(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Log-probabilities of labels and the blank [B, k S, V], and the mask of these slots [B, k S]."""
        states = self.upper(memory.states).unflatten(-1, (self.upsample, -1)).flatten(1, 2)
        logits = promote_to_fp32(self.output(states))
        markers = torch.tensor([self.bos, self.eos], device=logits.device)
        log_probs = logits.index_fill(-1, markers, NEVER).log_softmax(-1)
        return log_probs, memory.mask.repeat_interleave(self.upsample, 1)

    def start(self, memory: Memory) -> State:
        """The distributions of all slots, and the alignments of no labels: blanks."""
        log_probs, mask = self.slot_labels(memory)
        log_probs = log_probs.double()
        padding = torch.full_like(log_probs[0, 0], NEVER)
        padding[BLANK] = 0.0
        log_probs = torch.where(mask.unsqueeze(-1), log_probs, padding)
        blanks = log_probs[:, :, BLANK].cumsum(1)
        last = torch.full_like(mask[:, 0], BLANK, dtype=torch.long)
        nothing = _Prefix(last, torch.zeros_like(blanks[:, 0]), blanks, torch.full_like(blanks, -torch.inf))
        return State(SlotLabels(log_probs, log_probs.exp(), mask), nothing, shared=True)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """[B, T] -> log p(next | labels so far) [B, T, V], and the state after the last label"""
        if look is not None:
            look.check_layers("decoder", 0)
            look.check_layers("cross", 0)
        records_weights = look is not None and "weights" in look.record
        source, past = state.source, state.past
        steps, weights = [], []
        for label in tokens.unbind(1):
            past = self._extend(past, label, source)
            steps.append(self._next_label(past, source))
            if records_weights:
                weights.append(self._next_slot(past, source))
        maps = None
        if look is not None and look.record:
            maps = Maps(cross=(Map(weights=torch.stack(weights, 1).unsqueeze(1)),) if records_weights else ())
        return Decoded(torch.stack(steps, 1), maps), replace(state, past=past)

    def project(self, states: Tensor) -> Tensor:
        """The states, unchanged: they are already log-probabilities."""
        return states

    def _extend(self, past: _Prefix, label: Tensor, source: SlotLabels) -> _Prefix:
        """The alignments of one more label per row; the start token and padding change nothing."""
        emissions = _of_labels(source.log_probs, label)  # [R, S]
        blanks = _of_labels(source.log_probs, torch.full_like(label, BLANK))
        arrivals, arrivals_of_repeat = _arrivals(past)
        arrivals = torch.where((label == past.last).unsqueeze(1), arrivals_of_repeat, arrivals)
        real = source.mask.repeat_interleave(len(arrivals) // len(source.mask), 0)
        arrivals = arrivals.masked_fill(~real, -torch.inf)
        ends_in_label = _accumulate(arrivals, emissions)
        ends_in_blank = _accumulate(_previous(ends_in_label), blanks)
        extended = _Prefix(label, (arrivals + emissions).logsumexp(1), ends_in_blank, ends_in_label)
        is_label = (label != self.bos) & (label != BLANK)
        return _Prefix(
            torch.where(is_label, extended.last, past.last),
            torch.where(is_label, extended.log_prob, past.log_prob),
            torch.where(is_label.unsqueeze(1), extended.ends_in_blank, past.ends_in_blank),
            torch.where(is_label.unsqueeze(1), extended.ends_in_label, past.ends_in_label),
        )

    def _next_label(self, past: _Prefix, source: SlotLabels) -> Tensor:
        """log p(next label or end | labels so far), [R, V]"""
        weights, weights_of_repeat = (_relative(arrivals, past) for arrivals in _arrivals(past))
        probs = (weights.view(len(source.probs), -1, weights.size(1)) @ source.probs).flatten(0, 1)
        repeat = (weights_of_repeat * _of_labels(source.probs, past.last)).sum(1, keepdim=True)
        end = _relative(_exact(past)[:, -1:], past)
        probs = probs.scatter(1, past.last.unsqueeze(1), repeat)
        probs[:, [BLANK, self.bos]] = 0.0
        probs[:, self.eos] = torch.where(past.log_prob > -torch.inf, end.squeeze(1), 1.0)  # more labels than slots
        return probs.log()

    def _next_slot(self, past: _Prefix, source: SlotLabels) -> Tensor:
        """p(slot s is the first of the next label | labels so far), [R, S]; the last slot also has that of the end"""
        weights, weights_of_repeat = (_relative(arrivals, past) for arrivals in _arrivals(past))
        repeats = _of_labels(source.probs, past.last).masked_fill((past.last == BLANK).unsqueeze(1), 0.0)
        blanks = _of_labels(source.probs, torch.full_like(past.last, BLANK))
        slots = weights * (1.0 - blanks - repeats).clamp(min=0.0) + weights_of_repeat * repeats
        slots = slots.scatter_add(
            1,
            last_slot(source.mask).repeat_interleave(len(slots) // len(source.mask)).unsqueeze(1),
            1.0 - slots.sum(1, keepdim=True),
        )
        return slots.view(len(slots), -1, self.upsample).sum(-1)

    if TYPE_CHECKING:
        __call__ = forward


def _of_labels(slots: Tensor, labels: Tensor) -> Tensor:
    """The column of one label per row: [B, S, V], [R] -> [R, S]; R / B consecutive rows share a source."""
    rows, num_slots, _ = slots.shape
    columns = labels.view(rows, 1, -1).expand(-1, num_slots, -1)
    return slots.gather(2, columns).transpose(1, 2).flatten(0, 1)


def _exact(past: _Prefix) -> Tensor:
    """log phi_s(labels so far), [R, S]"""
    return torch.logaddexp(past.ends_in_blank, past.ends_in_label)


def _arrivals(past: _Prefix) -> tuple[Tensor, Tensor]:
    """log phi_{s-1} and log phi'_{s-1}, from which slot s can emit another label, and the last label again"""
    first = torch.where(past.last == BLANK, 0.0, -torch.inf).to(past.log_prob)
    return _previous(_exact(past), first), _previous(past.ends_in_blank, first)


def _previous(slots: Tensor, first: Tensor | None = None) -> Tensor:
    """The values of slot s - 1 at slot s, and `first` or -inf at the first slot."""
    shifted = F.pad(slots, (1, -1), value=-torch.inf)
    if first is not None:
        shifted[:, 0] = first
    return shifted


def _accumulate(arrivals: Tensor, emissions: Tensor) -> Tensor:
    """log x_s for x_s = p_s (x_{s-1} + a_s), without a loop: x_s = P_s sum_{r <= s} a_r / P_{r-1}, P_s = p_0 .. p_s"""
    total = emissions.cumsum(1)
    return total + (arrivals - (total - emissions)).logcumsumexp(1)


def _relative(log_probs: Tensor, past: _Prefix) -> Tensor:
    """p / p(y starts with the labels so far), and 0 if no y does"""
    possible = (past.log_prob > -torch.inf).unsqueeze(1)
    return torch.where(possible, (log_probs - past.log_prob.unsqueeze(1)).exp(), 0.0)
