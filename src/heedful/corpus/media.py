"""Examines pictures, recordings and graphs for `heedful check`: which cannot be read, are unsuitable, or are the same.

Two pictures are the same if the model sees the same pixels, two recordings if they have the same samples, two graphs if
they have the same nodes and edges: their digest is not that of the file.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.config import AudioInputSettings, GraphInputSettings, ImageInputSettings
from heedful.errors import DataError
from heedful.inputs.graphs import Graph, GraphLimits, check_neighbors, load_graph, most_neighbors, unique_edges
from heedful.inputs.kinds import NOUNS
from heedful.inputs.media import MISSING, MediaError
from heedful.inputs.pictures import decode_picture
from heedful.inputs.sound import Recording, read_recording

MAX_ENLARGEMENT = 2.0  # of each side; beyond, a picture is small
MIN_USED_SHARE = 1 / 8  # of the input's area; the rest is padding
FULL_SCALE = 0.999
CLIPPED_SAMPLES = 3  # in a row at full scale; one or two may be a loud peak
MIN_CLIPPED_SHARE = 1e-3
MAX_SILENT_SAMPLE = 1e-3  # 60 dB below full scale
MIN_RATE_SHARE = 0.95  # of the input's rate
MIN_TIMED_ROWS = 20  # with fewer, the usual speed is not known
MAX_SPEED_RATIO = 4.0  # characters per second, compared with the median
PROGRESS_PAIRS = 64
MAX_MEASURED_GRAPHS = 500
MIN_NEIGHBORS = 16  # that the settings leave room for

MediaSettings = ImageInputSettings | AudioInputSettings | GraphInputSettings


@dataclass(frozen=True, slots=True)
class MediaExamination:
    """The digest of a picture, recording or graph (0: unreadable or without content) and its faults: kind -> detail."""

    digest: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None  # of a recording


def examine_picture(path: Path, settings: ImageInputSettings) -> MediaExamination:
    picture = decode_picture(path, settings.height, settings.width)
    (height, width), (scaled_height, scaled_width) = picture.size, picture.scaled_size
    faults = {}
    if max(scaled_height / height, scaled_width / width) > MAX_ENLARGEMENT:
        faults["small_picture"] = f"{width:,} x {height:,} pixels for an input of {settings.width} x {settings.height}"
    if scaled_height * scaled_width < MIN_USED_SHARE * settings.height * settings.width:
        faults["narrow_picture"] = f"{width:,} x {height:,} pixels"
    if picture.is_one_color:
        return MediaExamination(faults=faults | {"one_color": ""})
    return MediaExamination(hash_numbers(picture.pixels), faults)


def examine_recording(path: Path, settings: AudioInputSettings) -> MediaExamination:
    recording = read_recording(path, max_seconds=settings.max_seconds, rate=settings.rate)
    faults, loudness = {}, np.abs(recording.samples)
    if recording.rate < MIN_RATE_SHARE * settings.rate:
        faults["low_rate"] = f"{recording.rate:,} samples per second for an input of {settings.rate:,}"
    if (share := clipped_share(loudness)) > MIN_CLIPPED_SHARE:
        faults["clipped"] = f"{share:.1%} of the samples are at full scale"
    if loudness.max() <= MAX_SILENT_SAMPLE:
        return MediaExamination(faults=faults | {"silent": ""}, seconds=recording.seconds)
    return MediaExamination(hash_recording(recording), faults, recording.seconds)


def examine_graph(path: Path, settings: GraphInputSettings) -> MediaExamination:
    stored = load_graph(path, settings)
    graph = check_neighbors(unique_edges(stored, directed=settings.directed), settings.max_neighbors, str(path))
    faults = {}
    keys = stored.edges[0] * stored.num_nodes + stored.edges[1]
    if num_copies := len(keys) - len(np.unique(keys)):
        faults["repeated_edges"] = f"{num_copies:,} of {len(keys):,} edges occur before"
    if not graph.edges.size and graph.num_nodes > 1:
        faults["no_edges"] = f"{graph.num_nodes:,} nodes"
    return MediaExamination(hash_graph(graph), faults)


EXAMINERS: dict[str, Callable[[Path, Any], MediaExamination]] = {
    "image": examine_picture,
    "audio": examine_recording,
    "graph": examine_graph,
}


def clipped_share(loudness: NDArray[Any]) -> float:
    """The share of samples that begin a run of CLIPPED_SAMPLES at full scale."""
    is_full = loudness >= FULL_SCALE
    is_run = is_full.copy()
    for distance in range(1, CLIPPED_SAMPLES):
        is_run[:-distance] &= is_full[distance:]
        is_run[-distance:] = False
    return float(is_run.mean())


def label_slots(digests: Sequence[int], labels: Sequence[str]) -> tuple[list[int], list[int]]:
    """A row and a digest for each labeled slot of each source: two are the same if the same slot is labeled."""
    slots = [
        (row, digest, slot)
        for row, (digest, line) in enumerate(zip(digests, labels, strict=True))
        for slot, label in enumerate(line.split(" "))
        if label != "?"
    ]
    hashes = [
        digest and int.from_bytes(hashlib.blake2b(f"{digest} {slot}".encode(), digest_size=8).digest(), "big")
        for _, digest, slot in slots
    ]
    return [row for row, _, _ in slots], hashes


def hash_recording(recording: Recording) -> int:
    """Of the samples as 16 bits, so that WAV and FLAC are the same."""
    return hash_numbers((recording.samples * 32_767).round().clip(-32_768, 32_767).astype("<i2"))


def hash_graph(graph: Graph) -> int:
    """Of the features and the edges, which are sorted."""
    parts = (graph.features.astype("<f4"), graph.edges.astype("<i8"))
    return int.from_bytes(hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=8).digest(), "big")


def hash_numbers(array: NDArray[Any]) -> int:
    return int.from_bytes(hashlib.blake2b(array.tobytes(), digest_size=8).digest(), "big")


def examine_media(
    sources: Sequence[str],
    folder: Path,
    settings: MediaSettings,
    progress: Callable[[int], None],
) -> list[MediaExamination]:
    """Examine the files of a piece, whose paths are relative to `folder`; a file may have several texts."""
    examine, noun = EXAMINERS[settings.kind], NOUNS[settings.kind].source
    examined: dict[str, MediaExamination] = {}
    for row, source in enumerate(sources):
        if source not in examined:
            try:
                examined[source] = examine(folder / source, settings)
            except MediaError as error:
                kind = "missing" if error.reason.startswith(MISSING) else "unreadable"
                examined[source] = MediaExamination(faults={f"{kind}_{noun}": error.reason})
        if row % PROGRESS_PAIRS == 0:
            progress(min(PROGRESS_PAIRS, len(sources) - row))
    return [examined[source] for source in sources]


def note_speeds(examined: Sequence[MediaExamination], texts: Sequence[str]) -> list[MediaExamination]:
    """The examinations, with the fault `speed` where a text is much too long or short for its recording."""
    speeds = [
        len(text) / each.seconds if each.seconds and text else None for each, text in zip(examined, texts, strict=True)
    ]
    known = [speed for speed in speeds if speed is not None]
    if len(known) < MIN_TIMED_ROWS:
        return list(examined)
    usual = float(np.median(known))
    return [
        each
        if speed is None or 1 / MAX_SPEED_RATIO <= speed / usual <= MAX_SPEED_RATIO
        else MediaExamination(
            each.digest,
            each.faults | {"speed": f"{speed:.1f} characters per second; usual here are {usual:.1f}"},
            each.seconds,
        )
        for each, speed in zip(examined, speeds, strict=True)
    ]


def measure_graphs(files: Sequence[str], columns: Sequence[str] = (), sheet: str | None = None) -> dict[str, int]:
    """`features` and `max_neighbors` of `[input]` for the graphs of a table, from the first MAX_MEASURED_GRAPHS."""
    from heedful.corpus.readers import read_pairs, resolve_files

    (path,) = resolve_files(files, "graph", "labels")
    sources = [
        source
        for block in read_pairs(files, "graph", "labels", columns=columns, sheet=sheet)
        for source in block.source
    ]
    num_features, most, reason = 0, 0, "the table is empty"
    for source in dict.fromkeys(sources[:MAX_MEASURED_GRAPHS]):
        try:
            graph = load_graph(path.parent / source, GraphLimits(num_features or None))
        except MediaError as error:
            reason = str(error)
            continue
        num_features = num_features or graph.features.shape[1]
        most = max(most, most_neighbors(unique_edges(graph, directed=False))[1])
    if not num_features:
        raise DataError(f"{path}: no graph can be read ({reason}): add the paths of graphs, relative to its directory")
    return {"features": num_features, "max_neighbors": max(MIN_NEIGHBORS, most)}
