"""The laws that every encoder, decoder, score, normalizer and search must obey, as plain functions of a case."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from heedful.model.seq2seq import Seq2Seq
from heedful.nn.contract import RECORDS, Look, Maps, Memory, State, select
from heedful.nn.decoders import CTCDecoder, LabelDecoder
from heedful.nn.encoders import Graphs
from heedful.search import DecodingLimits, Greedy, Sample
from heedful.types import FATES, Hypothesis, SearchResult
from support.zoo import BOS, EOS, FEATURES, SEARCH_CASES, Case, V, source_tensors

SOURCE = [[5, 3, 9, 4, 2], [7, 8, 2], [6, 2]]
TARGET = torch.tensor([[1, 4, 9, 3, 5], [1, 8, 8, 2, 6], [1, 3, 7, 10, 4]])
LIMIT = 6
EVERYTHING = Look(frozenset(RECORDS))


def close(one: Tensor, other: Tensor, *, within: float = 1e-10) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=within)


def read(model: Seq2Seq, rows: list[list[int]] = SOURCE, *, look: Look | None = None) -> Memory:
    return model.encoder(*source_tensors(model.encoder, rows), look=look)


def step_by_step_is_all_at_once(model: Seq2Seq) -> None:
    memory = read(model)
    whole, after = model.decoder(TARGET, model.decoder.start(memory))
    state, parts = model.decoder.start(memory), []
    for tokens in (TARGET[:, :1], TARGET[:, 1:2], TARGET[:, 2:]):  # one, one, then several on top of a past
        decoded, state = model.decoder(tokens, state)
        parts.append(decoded.states)
    close(whole.states, torch.cat(parts, 1))
    for one, other in zip(leaves(after.past), leaves(state.past), strict=True):
        close(one, other)


def future_tokens_change_nothing(model: Seq2Seq) -> None:
    memory = read(model)
    changed = TARGET.clone()
    changed[:, 3:] = changed[:, 3:].flip(0)
    one, _ = model.decoder(TARGET, model.decoder.start(memory))
    other, _ = model.decoder(changed, model.decoder.start(memory))
    assert torch.equal(one.states[:, :3], other.states[:, :3])
    depends_on_past = not isinstance(model.decoder, LabelDecoder)  # labels do not depend on each other
    assert torch.equal(one.states[:, 3:], other.states[:, 3:]) != depends_on_past


def padding_changes_nothing(model: Seq2Seq) -> None:
    narrow = read(model)
    wide = model.encoder(*source_tensors(model.encoder, SOURCE, other_padding=True))
    real = narrow.mask.unsqueeze(-1)
    close(narrow.states * real, wide.states[:, : real.size(1)] * real)
    one, _ = model.decoder(TARGET, model.decoder.start(narrow))
    other, _ = model.decoder(TARGET, model.decoder.start(wide))
    close(one.states, other.states)


def rows_are_independent(model: Seq2Seq) -> None:
    rows = torch.tensor([2, 0, 0])
    memory = read(model)
    whole, state = model.decoder(TARGET, model.decoder.start(memory))
    picked, _ = model.decoder(TARGET[rows], select(model.decoder.start(memory), rows))
    close(whole.states[rows], picked.states)
    more, _ = model.decoder(TARGET[:, :2], state)
    again, _ = model.decoder(TARGET[rows, :2], select(state, rows))
    close(more.states[rows], again.states)
    for row, source in enumerate(SOURCE):
        alone, _ = model.decoder(TARGET[row : row + 1], model.decoder.start(read(model, [source])))
        close(whole.states[row : row + 1], alone.states)


def a_shared_source_is_the_same_as_copies(model: Seq2Seq) -> None:
    state = model.decoder.start(read(model))
    if not state.shared:
        return
    several = torch.arange(len(SOURCE)).repeat_interleave(3)
    tokens = torch.cat([TARGET[several], TARGET[several].roll(1, 0)], 1)[:, ::2]
    copies, _ = model.decoder(tokens, select(state, several))
    shared, _ = model.decoder(tokens, State(state.source, select(state.past, several), shared=True))
    close(copies.states, shared.states)


def weights_are_a_distribution_over_real_slots(model: Seq2Seq) -> None:
    memory = read(model, look=EVERYTHING)
    decoded, _ = model.decoder(TARGET, model.decoder.start(memory), EVERYTHING)
    assert decoded.maps is not None
    assert memory.maps is not None
    source, source_mask = source_tensors(model.encoder, SOURCE)
    steps = TARGET.size(1)
    causal = torch.ones(steps, steps, dtype=torch.bool).tril()
    real = source_mask[:, None, None, :: getattr(model.encoder, "reduction", 1)]
    if isinstance(model.encoder, Graphs):  # a node looks at its neighbors and itself
        real = neighbors_and_itself(source, source_mask)
    for maps, mask in (
        (decoded.maps.cross, memory.mask[:, None, None, :]),
        (decoded.maps.decoder, causal),
        (memory.maps.encoder, real),
    ):
        for layer_map in maps:
            weights, scores = layer_map.weights, layer_map.scores
            assert weights is not None
            close(weights.sum(-1), torch.ones_like(weights[..., 0]))
            hidden = ~mask.expand_as(weights)
            assert (weights[hidden] == 0).all()
            if isinstance(model.decoder, CTCDecoder) and maps is decoded.maps.cross:  # a posterior has no scores
                assert scores is None
                continue
            assert scores is not None
            assert (scores[hidden] == -torch.inf).all()
            assert (scores[~hidden] > -torch.inf).all()


def neighbors_and_itself(nodes: Tensor, mask: Tensor) -> Tensor:
    """[B, 1, S, S]: which nodes each node looks at"""
    slots = torch.arange(mask.size(1))
    neighbors = nodes[..., FEATURES:].masked_fill(~mask.unsqueeze(-1), 0)
    return ((neighbors.unsqueeze(-1) == slots + 1).any(2) | (slots == slots[:, None])).unsqueeze(1)


def preparing_once_is_preparing_at_every_step(model: Seq2Seq) -> None:
    memory = read(model)
    kept, fresh = model.decoder.start(memory), model.decoder.start(memory)
    for tokens in TARGET.split(1, 1):
        one, kept = model.decoder(tokens, kept)
        other, after = model.decoder(tokens, fresh)
        assert torch.equal(one.states, other.states)
        fresh = State(model.decoder.start(memory).source, after.past, after.shared)


def looking_changes_nothing(model: Seq2Seq) -> None:
    """This also says that the fused path gives the result of the explicit one."""
    plain, seen = read(model), read(model, look=EVERYTHING)
    close(plain.states, seen.states)
    assert plain.maps is None
    one, _ = model.decoder(TARGET, model.decoder.start(plain))
    other, _ = model.decoder(TARGET, model.decoder.start(plain), EVERYTHING)
    close(one.states, other.states)
    assert one.maps is None
    assert other.maps is not None


def silence_is_zero_context(model: Seq2Seq) -> None:
    """Silencing every head of every cross-attention makes the decoder independent of the source."""
    if isinstance(model.decoder, CTCDecoder):  # it has no heads
        return
    memory = read(model)
    decoded, _ = model.decoder(TARGET, model.decoder.start(memory), EVERYTHING)
    assert decoded.maps is not None
    maps = decoded.maps.cross
    heads = [(layer, head) for layer, layer_map in enumerate(maps) for head in range(layer_map.weights.size(1))]
    if not heads:
        return
    everyone = Look(frozenset(), frozenset(("cross", layer, head) for layer, head in heads))
    start = model.decoder.start(memory)
    other = Memory(memory.states.flip(0) + 1.0, memory.mask)
    deaf, _ = model.decoder(TARGET, start, everyone)
    still, _ = model.decoder(TARGET, State(model.decoder.start(other).source, start.past, start.shared), everyone)
    close(deaf.states, still.states)
    assert deaf.maps is None
    assert not torch.allclose(deaf.states, decoded.states)


MODEL_LAWS = (
    step_by_step_is_all_at_once,
    future_tokens_change_nothing,
    padding_changes_nothing,
    rows_are_independent,
    a_shared_source_is_the_same_as_copies,
    weights_are_a_distribution_over_real_slots,
    preparing_once_is_preparing_at_every_step,
    looking_changes_nothing,
    silence_is_zero_context,
)


def forced(model: Seq2Seq, memory: Memory, answer: Hypothesis, row: int, look: Look | None) -> tuple[Tensor, Maps]:
    """Log-probabilities [T] of the answer and of its end, and the maps, from one pass over the known tokens."""
    one = Memory(memory.states[row : row + 1], memory.mask[row : row + 1])
    said = [*answer.tokens, *([EOS] if answer.finished else [])]
    decoded, _ = model.decoder(torch.tensor([[BOS, *said[:-1]]]), model.decoder.start(one), look)
    each = model.decoder.project(decoded.states).log_softmax(-1)[0]
    return each.gather(1, torch.tensor(said).unsqueeze(1)).squeeze(1), decoded.maps


def check_search(case: Case, model: Seq2Seq) -> None:
    search, rules = SEARCH_CASES[case.search], DecodingLimits(BOS, EOS, LIMIT)
    memory = read(model, look=EVERYTHING)
    found = search(model.decoder, memory, rules, look=EVERYTHING, trace=True)
    assert len(found) == len(SOURCE)
    for row, answers in enumerate(found):
        well_ordered(answers, getattr(search, "num_best", 1))
        replays(answers)
        for answer in answers.hypotheses:
            each, maps = forced(model, memory, answer, row, EVERYTHING)
            close(torch.tensor(answer.log_probabilities, dtype=torch.double), each.detach(), within=1e-8)
            assert abs(answer.log_probability - float(each.sum())) < 1e-8
            same_maps(answer.maps, maps, memory.maps, row)
    plain = search(model.decoder, memory, rules)
    assert [tokens(answers) for answers in plain] == [tokens(answers) for answers in found]
    assert all(answer.maps is None for answers in plain for answer in answers.hypotheses)
    assert all(answers.trace is None for answers in plain)
    for row, source in enumerate(SOURCE):  # what else is in the batch must not matter
        alone = replace(search, indices=(row,)) if isinstance(search, Sample) else search
        assert tokens(alone(model.decoder, read(model, [source]), rules)[0]) == tokens(plain[row])
    if case.search == "beam-1":
        greedy = Greedy()(model.decoder, memory, rules)
        assert [tokens(answers) for answers in greedy] == [tokens(answers) for answers in plain]
        for one, other in zip(greedy, plain, strict=True):
            assert abs(one.best.score - other.best.score) < 1e-9


def tokens(found: SearchResult) -> list[tuple[int, ...]]:
    return [answer.tokens for answer in found.hypotheses]


def well_ordered(found: SearchResult, best: int) -> None:
    answers = found.hypotheses
    assert 1 <= len(answers) <= best
    scores = [answer.score for answer in answers]
    assert scores == sorted(scores, reverse=True)
    assert len({(answer.tokens, answer.finished) for answer in answers}) == len(answers)
    for answer in answers:
        assert EOS not in answer.tokens
        assert all(0 <= token < V for token in answer.tokens)
        assert len(answer.tokens) <= LIMIT
        assert answer.finished or len(answer.tokens) == LIMIT
        assert len(answer.log_probabilities) == len(answer.tokens) + answer.finished


def replays(found: SearchResult) -> None:
    assert found.trace is not None
    again = found.trace.rebuild_hypotheses()[: len(found.hypotheses)]
    for one, other in zip(again, found.hypotheses, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.score == other.score
        assert one.log_probabilities == other.log_probabilities
        assert one.log_probability == other.log_probability
    for index, one in enumerate(found.trace.candidates):
        assert one.fate in FATES
        assert one.why
        assert (one.score is None) == (one.fate in ("kept", "pruned"))
        if one.parent is not None:
            parent = found.trace.candidates[one.parent]
            assert one.parent < index
            assert parent.fate == "kept"
            assert parent.step == one.step - 1


def same_maps(mine: Maps, forced: Maps, encoder: Maps | None, row: int) -> None:
    assert encoder is not None
    assert len(mine.encoder) == len(encoder.encoder)
    for one, other in zip(mine.encoder, encoder.encoder, strict=True):
        assert torch.equal(one.weights, other.weights[row])
    for ours, theirs in ((mine.cross, forced.cross), (mine.decoder, forced.decoder)):
        for one, other in zip(ours, theirs, strict=True):
            for name in RECORDS:
                mine_is, forced_is = getattr(one, name), getattr(other, name)
                if mine_is is None:
                    assert forced_is is None
                else:
                    close(mine_is, forced_is[0], within=1e-8)


def leaves(tree: object) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return []


def check(case: Case) -> None:
    """Every law on one case."""
    with torch.no_grad():
        model = case.model()
        for law in MODEL_LAWS:
            law(model)
        check_search(case, model)
