"""Beam search: keep the best few prefixes at every step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heedful.errors import require

require("torch", extra="train", whose="heedful.search")

import torch

from heedful.nn.contract import Decoder, Look, Maps, Memory
from heedful.performance.attribute_cache import cached_attributes
from heedful.performance.topk import top_sums
from heedful.search.decoding import DecodingLimits, StepOutput, start_decoding
from heedful.search.generation import Greedy, Sample
from heedful.search.hypotheses import BeamOptions, SentenceBeam
from heedful.search.maps import collect_maps
from heedful.types import SearchResult


@dataclass(frozen=True, slots=True)
class Beam(BeamOptions):
    """The `num_best` sequences found by keeping the `size` best prefixes at each step

    Each step considers 2 x size continuations, so `size` prefixes remain even if every prefix ends. An end token counts
    only among the `size` best. LENGTH_RULES defines the score L / penalty(n), STOPPING_RULES when a sentence is done. A
    beam of 1 is greedy search if length_rule="none"; with a length penalty it may continue after an end token, because
    a longer hypothesis may score higher.
    """

    def __call__(
        self,
        decoder: Decoder,
        memory: Memory,
        limits: DecodingLimits,
        *,
        look: Look | None = None,
        trace: bool = False,
    ) -> list[SearchResult]:
        """Up to `num_best` hypotheses per sentence, best first."""
        with torch.inference_mode(), cached_attributes(decoder):
            decoding, last = start_decoding(decoder, memory, limits, look)
            beams = [SentenceBeam(self, limits.eos, max_length, trace) for max_length in limits.max_lengths(len(last))]
            active = beams  # those that are not done; each has the same number of batch rows, in this order
            maps: list[Maps] = []  # one per step
            while active:
                output = decoding.step(last)
                if output.maps is not None:
                    maps.append(output.maps)
                if output.prefix_log_probs is not None:
                    for row, beam in enumerate(active):
                        beam.start_with_prefix(last[row, 1:].tolist(), output.prefix_log_probs[row].tolist())
                self._extend(active, output)
                staying = [place for place, beam in enumerate(active) if not beam.done]
                sentences = None if len(staying) == len(active) else torch.tensor(staying, device=last.device)
                active = [active[place] for place in staying]
                if active:
                    for beam in active:
                        beam.pad(self.size)  # a tiny vocabulary or a forced prefix leaves fewer continuations
                    nodes = [node for beam in active for node in beam.live]
                    rows = torch.tensor([node.row for node in nodes], device=last.device)
                    last = torch.tensor([[node.token] for node in nodes], device=last.device)
                    decoding.advance(rows, last.squeeze(1), sentences)
        return [_search_result(beam, maps, memory, sentence) for sentence, beam in enumerate(beams)]

    def _extend(self, beams: Sequence[SentenceBeam], output: StepOutput) -> None:
        """Extend each beam by its 2 x size best continuations."""
        rows, vocabulary = len(output.filtered) // len(beams), output.filtered.size(1)
        totals = torch.tensor([[node.total for node in beam.live] for beam in beams], dtype=torch.float64)  # [B, k]
        best, where = top_sums(totals, output.filtered.view(len(beams), rows, -1), 2 * self.size)
        parents, tokens = where // vocabulary, where % vocabulary
        log_probs = output.log_probs.view(len(beams), -1).gather(1, where.to(output.log_probs.device))
        columns = zip(beams, best.tolist(), parents.tolist(), tokens.tolist(), log_probs.tolist(), strict=True)
        for place, (beam, *continuations) in enumerate(columns):
            beam.extend(place * rows, *continuations)


def _search_result(beam: SentenceBeam, steps: list[Maps], memory: Memory, sentence: int) -> SearchResult:
    hypotheses = beam.best_hypotheses()
    if steps:
        with_maps = (
            replace(hypothesis, maps=collect_maps(steps[: len(rows)], rows, memory, sentence))
            for hypothesis, rows in hypotheses
        )
        return SearchResult(tuple(with_maps), beam.trace())
    return SearchResult(tuple(hypothesis for hypothesis, _ in hypotheses), beam.trace())


SEARCHES = {"greedy": Greedy, "sample": Sample, "beam": Beam}
