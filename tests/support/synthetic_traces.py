"""Traces that no model produced: sentences of any length and script, with any weights and probabilities."""

from base64 import b64encode
from itertools import pairwise

import numpy as np

from heedful.inputs.pictures import patch_boxes, picture_png
from heedful.inspection.api import name_boxes
from heedful.trace import LatentAlignment, Piece, SearchNode, SearchTree, Sentence, Text, TraceStep, weights_blob

WORDS = (
    *("the", "quick", "brown", "fox", "jumps", "over", "extraordinarily", "lazy", "dogs", "while", "understanding"),
    *("nothing", "about", "international", "cooperation", "and", "responsibility"),
)
HEBREW = ("החתול", "השחור", "שתה", "את", "החלב", "בבוקר", "מוקדם", "מאוד")
CHINESE = tuple("我们今天在北京大学学习深度学习和注意力机制")
MAX_PIECE_LETTERS = 6  # longer words consist of two pieces


def text_of(words, language="en", joiner=" "):
    """A text with its pieces and an end token."""
    pieces, position = [], 0
    for index, word in enumerate(words):
        cuts = [0, 4, len(word)] if len(word) > MAX_PIECE_LETTERS and joiner else [0, len(word)]
        for start, end in pairwise(cuts):
            shown = (joiner if start == 0 else "") + word[start:end]
            pieces.append(Piece(text=shown, start=position + start, end=position + end, word=index))
        position += len(word) + len(joiner)
    whole = joiner.join(words)
    return Text(text=whole, pieces=(*pieces, Piece(text="</s>", start=len(whole), end=len(whole))), language=language)


def english(num_words):
    return text_of([WORDS[index % len(WORDS)] for index in range(num_words)])


def picture_of(side=32, patch=4, name="cat.png"):
    """A picture with a red square in the upper left corner and a blue one in the lower right corner."""
    pixels = np.full((side, side, 3), 255, np.uint8)
    pixels[patch : side // 2, patch : side // 2] = (220, 40, 40)
    pixels[side // 2 :, side // 2 : side - patch] = (40, 70, 220)
    boxes = name_boxes(patch_boxes(side, side, patch))
    pieces = tuple(Piece(text=f" {label}", word=slot, box=box) for slot, (label, box) in enumerate(boxes))
    return Text(text=name, pieces=pieces, picture=b64encode(picture_png(pixels)).decode())


def wandering_weights(layers, heads, rows, side):
    """Attention over the slots of a picture, around a point that moves with every row."""
    row, column = np.indices((side, side)) + 0.5
    maps = np.zeros((layers, heads, rows, side, side))
    for layer, head, step in np.ndindex(layers, heads, rows):
        x, y = (step * 2.3 + head) % side, (step * 1.7 + 2 * layer + head) % side
        maps[layer, head, step] = np.exp(-((row - y) ** 2 + (column - x) ** 2) / (1 + head))
    return (maps / maps.sum((-2, -1), keepdims=True)).reshape(layers, heads, rows, side * side)


def diagonal_weights(layers, heads, rows, columns, *, is_causal=False, seed=0):
    """Attention near the diagonal, which is sharper in later heads."""
    noise = 1.5 * np.random.default_rng(seed).normal(size=(layers, heads, rows, columns))
    row, column = np.indices((rows, columns))
    scores = noise - 4 * np.abs(row / rows - column / columns) * np.arange(1, heads + 1)[None, :, None, None]
    if is_causal:
        scores = np.where(column > row, -1e9, scores)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def steps_of(target, seed=0):
    """A distribution over ten words for each piece; the piece is the most probable one."""
    random = np.random.default_rng(seed)
    for piece in target.pieces:
        probabilities = np.sort(random.dirichlet([8] + [0.4] * 9))[::-1]
        logs = np.log(np.maximum(probabilities, 1e-6))
        top = tuple((piece.text if rank == 0 else f" w{rank}", float(logp)) for rank, logp in enumerate(logs))
        yield TraceStep(logp=top[0][1], entropy=1.1, top=top)


def tree_of(target):
    """A search with a beam of 3 and five candidates per step, of which the first one is the answer."""
    nodes, parent = [], None
    for at, piece in enumerate(target.pieces):
        is_last = at == len(target.pieces) - 1
        for rank in range(5):
            fate = "finished" if is_last and rank == 0 else "kept" if rank < 3 else "pruned"
            node = {"step": at + 1, "parent": parent, "text": piece.text if rank == 0 else f" w{rank}", "fate": fate}
            numbers = {"logp": -0.1 - rank, "total": -0.1 * at - rank, "rank": rank}
            nodes.append(SearchNode(**node, **numbers, score=-0.2 if fate == "finished" else None))
        parent = len(nodes) - 5
    greedy = {"greedy": target.text, "greedy_score": -0.2}
    return SearchTree(kind="beam", size=3, length="log p", nodes=tuple(nodes), best=parent, **greedy)


def sentence_of(source, target, *, layers=3, heads=4, name="model", **changes):
    """A sentence of a transformer."""
    rows, columns = len(target.pieces), len(source.pieces)
    attention = {
        "encoder": weights_blob(diagonal_weights(layers, heads, columns, columns, seed=1)),
        "cross": weights_blob(diagonal_weights(layers, heads, rows, columns, seed=2)),
        "decoder": weights_blob(diagonal_weights(layers, heads, rows, rows, is_causal=True, seed=3)),
    }
    steps = tuple(steps_of(target))
    fields = {"steps": steps, "tree": tree_of(target), "attention": attention, "logp": sum(step.logp for step in steps)}
    return Sentence(**{"name": name, "source": source, "target": target, "score": -0.2, **fields, **changes})


# The number of pieces -> a sentence with that many of them.
LENGTHS = {
    "3": sentence_of(english(2), english(2)),
    "12": sentence_of(english(9), english(9)),
    "40": sentence_of(english(30), english(28)),
    "120": sentence_of(english(88), english(88)),
    "from Hebrew": sentence_of(text_of(HEBREW, "he"), english(8)),
    "to Hebrew": sentence_of(english(9), text_of(HEBREW, "he")),
    "from Chinese": sentence_of(text_of(CHINESE, "zh", ""), english(9)),
}


def trellis_of(source, target, upsample=2):
    """The alignments of a CTC model, which go along the diagonal."""
    states, slots = 2 * len(target.pieces) - 1, upsample * len(source.pieces)
    centers = np.linspace(0, states - 1, slots)
    weights = np.exp(-((np.arange(states)[:, None] - centers) ** 2))
    path = tuple(centers.round().astype(int).tolist())
    blob = weights_blob((weights / weights.sum(0))[None])
    return LatentAlignment(kind="ctc", probabilities=blob, paths=(path,), logps=(-4.0,))


def drawn_slots_of(source, target, heads=1):
    """The slots that sampled attention can draw."""
    weights = diagonal_weights(1, heads, len(target.pieces), len(source.pieces))[0]
    paths = tuple(map(tuple, weights.argmax(-1).tolist()))
    logps = tuple(np.log(weights.max(-1)).sum(-1).tolist())
    return LatentAlignment(kind="sampled", probabilities=weights_blob(weights), paths=paths, logps=logps)


def caption(num_words=6, **changes):
    """A sentence of a model that describes pictures of 64 slots."""
    plain = sentence_of(picture_of(), english(num_words), layers=2)
    rows = len(plain.target.pieces)
    cross = weights_blob(wandering_weights(2, 4, rows, 8))
    return plain.model_copy(update={"attention": {**plain.attention, "cross": cross}, **changes})


def continuation(num_given=2, num_words=9, **changes):
    """A sentence of a language model, which continues the first words."""
    plain = sentence_of(english(num_given), english(num_words))
    steps = tuple(step.model_copy(update={"forced": at < num_given}) for at, step in enumerate(plain.steps))
    attention = {"decoder": plain.attention["decoder"]}
    source = Text(text=plain.source.text, pieces=())
    return plain.model_copy(update={"source": source, "steps": steps, "attention": attention, **changes})
