"""After the last step: which weights are best, how good they are, and the model directory that holds them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from heedful.alignment import Looked, Reading, association, best_reading
from heedful.bundle import Generation, card, open_bundle, write
from heedful.data.prepare import Resampled
from heedful.data.store import MANIFEST
from heedful.engines.base import Question, Search
from heedful.engines.torch import Torch, search_of
from heedful.metrics.significance import run_paired_test
from heedful.model.seq2seq import Seq2Seq
from heedful.search import Beam
from heedful.text.tokenizer import EOS
from heedful.training import checkpoint
from heedful.training.checkpoint import records, replace_text
from heedful.training.distributed import whole
from heedful.training.events import Ended
from heedful.training.finetune import first_weights
from heedful.training.optimizer import averaged, named, put
from heedful.training.report import REPORT, write_report
from heedful.training.resolve import fresh
from heedful.training.statistics import statistics_of
from heedful.training.validate import Scored, crowned, merit, read, scored, slots_of, validate
from heedful.types import Hypothesis

if TYPE_CHECKING:
    from heedful.training.loop import Run

BEAM = 5
LOOKED_AT, RELATED = 200, 5_000  # pairs: of validation, and of training
LENGTH_PENALTIES = (1.0, 1.4, 0.6)  # tried on the validation set, while there is time
JUDGED = 2_000  # lines, at most, that tell chance from merit: a bootstrap of more takes much memory


def work_after(run: "Run") -> float:
    """What `finish` takes, in validations: every candidate once, then a beam for each penalty and for the tests."""
    tests = sum(corpus.rows for corpus in run.prepared.split("test"))
    beams = len(LENGTH_PENALTIES) + tests / max(1, len(run.held))
    return 3 + 5 * beams


def candidates(run: "Run") -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The weights that may be the best: every process takes part in gathering them, the first has them."""
    yield "last", whole(run.model, named(run.model), run.world)
    if run.mean:
        yield "ema", whole(run.model, run.mean.own, run.world)
    if run.world.first:
        if run.settings.start:  # tuned on too little, it may have become worse
            every = first_weights(run.settings.start)
            yield "start", {name: every[name].to(run.device) for name in named(run.model)}
        if run.best["step"] not in (None, run.step):
            for weights in kept(run, [run.folder / checkpoint.name_of(run.best["step"], "best")]):
                yield "best", weights
        if run.chosen.average and not run.sharded:
            yield "average", averaged(kept(run, checkpoint.steps_in(run.folder)[: run.chosen.average]))


def kept(run: "Run", folders: Sequence[Path]) -> Iterator[dict[str, Tensor]]:
    """The weights of some checkpoints; one that was damaged, or never written on a full disk, is left out aloud."""
    for folder in folders:
        try:
            found = checkpoint.verify(folder)
        except checkpoint.Damaged as error:
            run.warn(f"{error}; it is left out")
            continue
        yield found.tensors("model")


def finish(run: "Run") -> Path:
    """Choose on validation, score with a beam, write the model directory; a finished run is left as it is."""
    into = run.folder / "model"
    if run.already and (into / MANIFEST).is_file() and any(one["event"] == "ended" for one in records(run.watch.path)):
        if run.world.first and not (run.folder / REPORT).is_file():
            write_report(run.folder)
        return open_bundle(into).folder
    if not run.world.first:
        for _ in candidates(run):
            pass
        return into
    model = fresh(run.settings, run.prepared, run.device).eval()
    name, best = chosen_of(run, model)
    put(named(model), best, name)
    penalty, found = evaluated(run, model)
    scores = {corpus: {one.name: asdict(one) for one in some.scores} for corpus, some in found.items()}
    for corpus, some in found.items():
        replace_text(run.folder / f"{corpus}.hypotheses", "".join(text + "\n" for text in some.outputs))
    write_model(run, into, best, penalty, scores, found["validation"].answers, reading_of(run, model))
    summary = {"weights": name, "length_penalty": penalty, "beam": BEAM, **scores}
    run.watch(Ended(run.step, run.ended or "", name, summary, str(into), run.elapsed))
    write_report(run.folder)
    return into


def chosen_of(run: "Run", model: Seq2Seq) -> tuple[str, dict[str, Tensor]]:
    """The candidate that is best on validation."""
    best: dict[str, Tensor] = {}
    name, value = "", -math.inf
    for label, weights in candidates(run):
        put(named(model), weights, label)
        found = validate(model, run.held, run.target, run.device, step=run.step, samples=0, weights=label)
        better = merit(found, run.chosen.metric) > value
        run.watch(crowned(found) if better else found)
        if better:
            name, value = label, merit(found, run.chosen.metric)
            best = {key: weight.detach().cpu().clone() for key, weight in weights.items()}
    return name, best


def evaluated(run: "Run", model: Seq2Seq) -> tuple[float, dict[str, Scored]]:
    """The length penalty for which validation speaks, and every held-out corpus scored with it."""
    tried: dict[float, Scored] = {}
    for penalty in LENGTH_PENALTIES:
        if tried and not run.already and run.limit is not None and run.elapsed > run.limit - run.reserve / 2:
            break
        tried[penalty] = scored(model, run.held, run.target, run.device, beam(penalty))
    metric = "chrf" if run.chosen.metric == "loss" else run.chosen.metric
    penalty = surely_best({one: found.outputs for one, found in tried.items()}, run.held.references, metric)
    found = {"validation": tried[penalty]}
    for corpus in run.prepared.split("test"):
        found[corpus.name] = scored(model, read([corpus]), run.target, run.device, beam(penalty))
    return penalty, found


def surely_best(said: Mapping[float, Sequence[str]], references: Sequence[str], metric: str) -> float:
    """The penalty whose translations are best; the first of them, unless another is better beyond chance.

    Penalties differ by little on validation, and by chance the one that is best there is worse elsewhere.
    """
    first, *others = said
    if not others:
        return first
    systems = {str(penalty): list(outputs[:JUDGED]) for penalty, outputs in said.items()}
    found = run_paired_test([metric], systems, references[:JUDGED])
    best = max((one for one in found if one.verdict == "better"), key=lambda one: one.value, default=found[0])
    return float(best.system)


def beam(penalty: float) -> Beam:
    """As `heedful translate` will search."""
    found = search_of(Search(BEAM, length_penalty=penalty))
    assert isinstance(found, Beam)
    return found


def reading_of(run: "Run", model: Seq2Seq) -> Reading | None:
    """The head that aligns words best, for `heedful translate --alignment best`; None of a model that does not look."""
    most = slots_of(model)
    rows = [
        row
        for row in range(len(run.held))
        if 0 < len(run.held.sources[row]) < most and 0 < len(run.held.targets[row]) < most
    ][:LOOKED_AT]
    corpus = run.corpora[0].plain if isinstance(run.corpora[0], Resampled) else run.corpora[0]
    pairs = corpus.pairs(range(min(corpus.rows, RELATED)))
    engine = Torch(model, run.device)
    looks: list[Looked] = []
    for row in rows:
        source, target = run.held.sources[row], run.held.targets[row]
        attention = engine.given([Question((*source, EOS), 1)], [target], attention=True)[0].attention
        if attention is None or attention.shape[-1] <= len(source):
            return None
        looks.append((attention[..., :-1], source, target))
    return best_reading(looks, association((source.tolist(), target.tolist()) for source, target in pairs))


def write_model(
    run: "Run",
    into: Path,
    weights: dict[str, Tensor],
    penalty: float,
    scores: dict[str, Any],
    answers: Sequence[Hypothesis],
    reading: Reading | None,
) -> None:
    """The model directory, with its card."""
    settings, prepared = run.settings, run.prepared
    assert settings.model is not None
    languages = (settings.source, settings.target)
    learned = [one.plain if isinstance(one, Resampled) else one for one in run.corpora]
    statistics = statistics_of(prepared, learned, answers, reading)
    longest = prepared.manifest["longest_tokens"]
    text = card(
        settings.model,
        languages,
        sum(weight.numel() for weight in weights.values()),
        scores,
        corpora=[one.name for one in learned],
        pairs=statistics["pairs"],
        fingerprint=prepared.fingerprint,
        longest_tokens=longest,
    )
    write(
        into,
        model=settings.model,
        weights={name: weight.float().numpy() for name, weight in weights.items()},
        tokenizers={side: prepared.tokenizer(side) for side in ("source", "target")},
        languages=languages,
        tags=sorted({one["tag"] for one in prepared.manifest["corpora"] if one["tag"]}),
        generation=Generation(beam=BEAM, length_penalty=penalty, limit=2 * longest + 10),
        statistics=statistics,
        scores=scores,
        card=text,
    )
