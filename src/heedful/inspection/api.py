"""`heedful.inspect(...)`: from models and sentences to a page."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import HeedfulError, require
from heedful.html import write_html
from heedful.inspection.figure import figure
from heedful.inspection.page import framed, page
from heedful.text.normalize import normalize
from heedful.trace import Film, Frame, Reading, Sentence, Trace, parsed
from heedful.translation.translator import Options, Translator, encoded, load

if TYPE_CHECKING:
    from heedful.inspection.record import Search, Subject

SNAPSHOTS = "snapshots.jsonl"  # that training leaves in its folder


@dataclass(frozen=True)
class Page:
    """A trace, and the page that shows it; a notebook shows it by itself."""

    trace: Trace

    def html(self) -> str:
        """One file that needs nothing else."""
        return page(self.trace)

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        path = Path(path)
        write_html(path, self.html())
        return path

    def svg(self, sentence: int = 0, *, pieces: bool = False) -> str:
        """The map of one sentence, for a paper or a slide."""
        if not self.trace.sentences:
            raise HeedfulError("there is no sentence to draw: give one")
        return figure(self.trace.sentences[sentence], pieces=pieces)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """What notebooks ask for: the page in a frame of its own, and a picture where no script may run."""
        shown = {"text/html": framed(self.html())}
        with suppress(HeedfulError):  # a model that looks at no words
            shown["image/svg+xml"] = self.svg()
        return shown


def inspect(
    what: "str | Path | Translator | Subject | Trace",
    sentences: str | Sequence[Any] = (),
    *,
    reference: str | None = None,
    beam: int | None = None,
    against: "str | Path | Translator | Subject | None" = None,
    against_beam: int | None = None,
    importance: bool = True,
    arithmetic: Sequence[str] = (),
    title: str | None = None,
) -> Page:
    """A page about what a model does with some sentences.

    `what` is a model directory, a translator, a `Subject` (any model with the contract's methods; its sentences may be
    lists of ids) or a trace. `against` is another model, or the same with `against_beam`, to compare with. `arithmetic`
    names the places (encoder, cross, decoder) whose vectors go into the page.
    """
    if isinstance(what, Trace):
        return Page(what)
    texts = [sentences] if isinstance(sentences, str) else list(sentences)
    if texts and all(isinstance(one, int) for one in texts):
        texts = [texts]
    if reference is not None and len(texts) != 1:
        raise HeedfulError("a reference belongs to one sentence: give one")
    require("torch", extra="train", whose="heedful.inspect")
    first = opened(what)
    settings = {"importance": importance, "vectors": tuple(arithmetic)}
    found = [one for text in texts for one in looked(first, text, reference, beam, settings)]
    if against is not None or against_beam is not None:
        second = first if against is None else opened(against)
        width = beam if against_beam is None else against_beam
        others = [one for text in texts for one in looked(second, text, reference, width, settings)]
        found = [*apart(found, others, beam, against_beam)]
    film = film_of(first)
    if not found and film is None:
        raise HeedfulError('there is nothing to show: give a sentence, such as heedful inspect my-model "Good morning"')
    name = title or (called(first) if isinstance(first, Translator) else first.name)
    return Page(Trace(title=name, sentences=tuple(found), film=film))


def opened(what: "str | Path | Translator | Subject") -> "Translator | Subject":
    """A translator where a folder is named."""
    return load(what) if isinstance(what, str | Path) else what


def apart(
    ours: Sequence[Sentence], theirs: Sequence[Sentence], beam: int | None, other: int | None
) -> Iterator[Sentence]:
    """Both, with names that tell them apart."""
    same = {one.name for one in ours} & {one.name for one in theirs}
    marks = (
        ("", " (2)")
        if other is None
        else tuple(f", beam {width}" if width else ", as usual" for width in (beam, other))
    )
    for some, mark in zip((ours, theirs), marks, strict=True):
        for one in some:
            yield one.model_copy(update={"name": one.name + mark}) if one.name in same else one


def looked(
    what: "Translator | Subject", text: Any, reference: str | None, beam: int | None, settings: dict[str, Any]
) -> Iterator[Sentence]:
    """The traces of one text: of each of its parts, where it is long; and of the reference, where there is one."""
    from heedful.inspection.record import Question, record

    if not isinstance(what, Translator):
        search = search_of(5 if beam is None else beam)
        if isinstance(text, str) and what.ask is None:
            raise HeedfulError("this model does not know text: give the ids of a source, such as [[5, 7, 2]]")
        question = (
            what.ask(text) if isinstance(text, str) and what.ask else Question(tuple(text), spelled_by(what, text))
        )
        yield record(what, question, search, **settings)
        return
    subject, usual = subject_of(what), what.bundle.generation
    search = search_of(usual.beam if beam is None else beam, usual.length, usual.length_penalty)
    told = what.bundle.statistics.get("alignment")
    more = {**settings, "reading": Reading(**told) if told else None, "about": about(what)}
    lines = [normalize(line)[0] for line in str(text).split("\n")]
    segments = [segment for some in what.segmented(lines, Options(), 0) for segment in some]
    wanted = tuple(encoded(what.target, [reference])[0]) if reference is not None else None
    if wanted is not None and len(segments) != 1:
        raise HeedfulError("a reference belongs to one sentence that is no longer than those of training")
    for segment in segments:
        asked = segment.question
        question = Question(asked.tokens, segment.text, ends=bool(what.end), limit=asked.limit)
        yield record(subject, question, search, reference=wanted, **more)
        if wanted is not None:
            forced = replace(subject, name=f"{subject.name}, reference")
            yield record(forced, question, search, forced=wanted, **more)


def spelled_by(subject: "Subject", ids: Sequence[int]) -> str:
    """A source that was given as ids, as text; its last token is its end."""
    return "".join(subject.source(list(ids)[:-1])).replace("\u2581", " ").strip()


def search_of(beam: int, length: str = "power", penalty: float = 1.0) -> "Search":
    """A beam, or greedy search."""
    from heedful.search import Beam, Greedy

    if beam < 1:
        raise HeedfulError(f"a beam has at least 1 place, not {beam}")
    return Greedy() if beam == 1 else Beam(beam, 1, length, penalty)


def subject_of(translator: Translator) -> "Subject":
    """The model inside a translator."""
    from heedful.engines.torch import Torch
    from heedful.inspection.record import Subject
    from heedful.text.tokenizer import BOS, EOS

    if not isinstance(translator.engine, Torch):
        raise HeedfulError("only PyTorch lets one look inside: load the model directory itself, not an export of it")
    bundle, model = translator.bundle, translator.engine.model
    return Subject(
        model.encoder,
        model.decoder,
        BOS,
        EOS,
        source=translator.source.pieces,
        target=translator.target.pieces,
        say=lambda ids: translator.target.decode([list(ids)])[0].strip(),
        name=called(translator),
        languages=(bundle.description.source, bundle.description.target),
    )


def called(translator: Translator) -> str:
    """The name of a model: its folder's, or that of the run that made it."""
    folder = translator.bundle.folder
    return folder.parent.name if folder.name == "model" else folder.name


def about(translator: Translator) -> str:
    """The model in a line."""
    model, count = translator.bundle.model, translator.bundle.description.parameters
    parts = [f"{part.kind} {part.layers}" for part in (model.encoder, model.decoder)]
    return f"{' + '.join(parts)}, width {model.width}, {count:,} weights"


def film_of(what: "Translator | Subject") -> Film | None:
    """What training filmed, if the model lies in its run."""
    path = what.bundle.folder.parent / SNAPSHOTS if isinstance(what, Translator) else None
    if path is None or not path.is_file():
        return None
    frames: list[Frame] = []
    film = None
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            film = parsed(line).film
        except HeedfulError:  # the last line of a run that was killed
            continue
        frames += film.frames if film else ()
    latest = {frame.step: frame for frame in frames}  # a run that rolled back filmed some steps twice
    return film and film.model_copy(update={"frames": tuple(latest[step] for step in sorted(latest))})
