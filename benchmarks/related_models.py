"""Is what the lectures mention besides translation as good here as in the libraries of each field?

- metrics: METEOR (without synonyms, with stems) and NIST against NLTK, CIDEr against pycocoevalcap, on random corpora
- graphs: the graph attention layer on Cora and CiteSeer, standard split and settings of the paper (Velickovic et al.
  2018), next to uniform weights; the difference to a dense reference; a random graph of a million edges
- words: word2vec on Tatoeba against gensim with the same settings (skip-gram, one thread): Spearman's correlation on
  WordSim353, SimLex-999 and, for Russian, RUSSE; Portuguese analogies (LX); words per second

- labels: the category of an emoji by its caption, European against Brazilian Portuguese (split by document), and, per
  slot, letters to phonemes, against logistic regression on n-grams of letters (scikit-learn)
- initialization: BLEU with 5,000 sentence pairs, with embeddings that start from word vectors and without

    python benchmarks/related_models.py [--quick] [--only PART ...]

HEEDFUL_DATA is the directory with planetoid, tatoeba-mono, tatoeba-eng-por, word-similarity, emoji-captions, ntrex and
g2p. Needs `pip install gensim nltk pycocoevalcap scipy scikit-learn snowballstemmer`. A part is skipped
if one of its packages is missing. --quick: fewer corpora, edges, seeds and updates.
"""

import argparse
import lzma
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from statistics import fmean, pstdev
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful import load, train
from heedful.config import parse_settings
from heedful.embeddings import WordVectors, write_vectors
from heedful.embeddings.word2vec import WordOptions, split_words, train_vectors
from heedful.metrics.labels import split_slots
from heedful.metrics.score import MetricOptions, score, sentence_scores
from heedful.nn.encoders import GraphAttention
from heedful.nn.encoders.graph import add_self_loops
from report import DATA, header, read_lines, skip, verdict

Claim = tuple[str, float, float]
MAX_DIFFERENCE = 1e-9  # of scores up to 1,000
WORDS = {
    "english": "the a cat cats dog dogs sat sitting sit on mat mats is was run runs running , .",
    "russian": "кот кота коты лежит лежал лежали на лавке лавку и собака собаки . ,",
}


# ------------------------------------------------------------------------------------------------------- metrics


def random_line(random: Random, words: list[str], lengths: tuple[int, ...]) -> str:
    return " ".join(random.choices(words, k=random.choice(lengths)))


def compare_metrics(quick: bool) -> Iterator[Claim]:
    """The largest difference to NLTK and pycocoevalcap over random corpora."""
    from nltk.translate.meteor_score import meteor_score
    from nltk.translate.nist_score import corpus_nist
    from pycocoevalcap.cider.cider import Cider
    from snowballstemmer import stemmer as snowball_stemmer

    class Stemmer:
        def __init__(self, language: str) -> None:
            self.stem = snowball_stemmer(language).stemWord

    class NoSynonyms:
        def synsets(self, _word: str) -> list[str]:
            return []

    random, num_corpora = Random(1), 50 if quick else 500
    largest = {"METEOR": 0.0, "NIST": 0.0, "CIDEr": 0.0}
    for _ in range(num_corpora):
        language = random.choice(list(WORDS))
        words = WORDS[language].split()
        num_lines, num_references = random.randint(2, 8), random.choice((1, 2, 5))
        hypotheses = [random_line(random, words, (0, 1, 2, 5, 8, 13)) for _ in range(num_lines - 1)]
        hypotheses.append(random_line(random, words, (8, 13)))  # NLTK's NIST needs one 5-gram
        references = [
            [random_line(random, words, (1, 2, 5, 8, 13)) for _ in range(num_lines)] for _ in range(num_references)
        ]
        rows = list(zip(*references, strict=True))
        options = MetricOptions("none", stemmer=language)
        meteors = sentence_scores("meteor", hypotheses, references, options=options)
        differences = {
            "METEOR": max(
                abs(
                    ours
                    - 100
                    * meteor_score(
                        [line.split() for line in row],
                        hypothesis.split(),
                        stemmer=Stemmer(language),
                        wordnet=NoSynonyms(),
                    )
                )
                for ours, hypothesis, row in zip(meteors, hypotheses, rows, strict=True)
            ),
            "NIST": abs(
                score("nist", hypotheses, references, options=options).value
                - corpus_nist(
                    [[line.split() for line in row] for row in rows], [hypothesis.split() for hypothesis in hypotheses]
                )
            ),
            "CIDEr": abs(
                score("cider", hypotheses, references, options=options).value
                - 100
                * Cider().compute_score(
                    {number: list(row) for number, row in enumerate(rows)},
                    {number: [hypothesis] for number, hypothesis in enumerate(hypotheses)},
                )[0]
            ),
        }
        largest = {name: max(value, differences[name]) for name, value in largest.items()}
    print(f"\n{num_corpora} random corpora, 1, 2 or 5 references, English and Russian: the largest differences")
    for name, value in largest.items():
        print(f"{name:>8} {value:.1e}")
        yield f"{name} equals the library's within {MAX_DIFFERENCE:g}", float(value <= MAX_DIFFERENCE), 1.0


# -------------------------------------------------------------------------------------------------------- graphs

PUBLISHED = {"cora": 83.0, "citeseer": 72.5}  # standard deviation 0.7
MIN_ACCURACY = {"cora": 82.3, "citeseer": 70.3}
NUM_SEEDS, QUICK_EPOCHS, PATIENCE = 10, 40, 100


@dataclass(frozen=True)
class Citations:
    """A citation graph: sparse features [N, F], edges [2, E] with self-loops, a class per node, nodes by split."""

    features: Tensor
    edges: Tensor
    labels: Tensor
    split: dict[str, Tensor]


def read_citations(name: str) -> Citations:
    """Features are divided by their number, as in the paper."""
    rows = [line.split("\t") for line in read_lines(f"planetoid/{name}.nodes.tsv.gz")]
    pairs = [tuple(map(int, line.split("\t"))) for line in read_lines(f"planetoid/{name}.edges.tsv.gz")]
    entries = [(node, int(feature)) for node, row in enumerate(rows) for feature in row[3].split()]
    nodes, columns = torch.tensor(entries).T
    values = 1 / torch.bincount(nodes, minlength=len(rows))[nodes]
    shape = len(rows), int(columns.max()) + 1
    features = torch.sparse_coo_tensor(torch.stack([nodes, columns]), values, shape, check_invariants=True).coalesce()
    one_way = torch.tensor(pairs).T
    edges = add_self_loops(torch.cat([one_way, one_way.flip(0)], 1), len(rows))
    split = {
        part: torch.tensor([node for node, row in enumerate(rows) if row[2] == part])
        for part in ("train", "valid", "test")
    }
    return Citations(features, edges, torch.tensor([int(row[1]) for row in rows]), split)


class UniformAttention(GraphAttention):
    """Every neighbor has the same weight."""

    def score_edges(self, nodes: Tensor, sources: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG002
        return nodes.new_zeros(len(sources), self.heads)


class NodeClassifier(nn.Module):
    """The paper's two layers: 8 heads of width 8, concatenated; one head with a logit per class."""

    def __init__(self, layer: type[GraphAttention], num_features: int, num_classes: int) -> None:
        super().__init__()
        self.hidden = layer(num_features, 64, 8, dropout=0.6, weight_dropout=0.6)
        self.output = layer(64, num_classes, 1, combine="average", dropout=0.6, weight_dropout=0.6)

    def forward(self, graph: Citations) -> Tensor:
        return self.output(F.elu(self.hidden(graph.features, graph.edges)), graph.edges)


def train_classifier(graph: Citations, layer: type[GraphAttention], seed: int, max_epochs: int) -> tuple[float, int]:
    """Test accuracy in percent at the epoch with the best validation loss and accuracy, and the number of epochs."""
    torch.manual_seed(seed)
    model = NodeClassifier(layer, graph.features.shape[1], int(graph.labels.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    best_loss, best_accuracy, test_accuracy, waited, epoch = float("inf"), 0.0, 0.0, 0, 0

    def accuracy(logits: Tensor, part: str) -> float:
        nodes = graph.split[part]
        return float((logits[nodes].argmax(1) == graph.labels[nodes]).float().mean())

    while waited < PATIENCE and epoch < max_epochs:
        epoch += 1
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(graph)[graph.split["train"]], graph.labels[graph.split["train"]]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(graph)
        loss = float(F.cross_entropy(logits[graph.split["valid"]], graph.labels[graph.split["valid"]]))
        is_lower, is_higher = loss <= best_loss, accuracy(logits, "valid") >= best_accuracy
        if is_lower and is_higher:
            test_accuracy = accuracy(logits, "test")
        best_loss, best_accuracy = min(loss, best_loss), max(accuracy(logits, "valid"), best_accuracy)
        waited = 0 if is_lower or is_higher else waited + 1
    return 100 * test_accuracy, epoch


def compare_with_dense(num_graphs: int) -> float:
    """The largest difference of a layer to the same layer on a matrix of all pairs of nodes, in float32."""
    largest = 0.0
    for seed in range(num_graphs):
        torch.manual_seed(seed)
        num_nodes = 2 + seed % 40
        layer = GraphAttention(8, 12, 3, combine="average" if seed % 2 else "concat")
        edges = add_self_loops(torch.randint(num_nodes, (2, 3 * num_nodes)).unique(dim=1), num_nodes)
        features, is_edge = torch.randn(num_nodes, 8), torch.zeros(num_nodes, num_nodes, dtype=torch.bool)
        is_edge[edges[1], edges[0]] = True
        nodes = layer.project(features).unflatten(-1, (3, -1)).transpose(0, 1)  # [H, N, d]
        target_part, source_part = (nodes @ part.unsqueeze(-1) for part in (layer.target_score, layer.source_score))
        scores = F.leaky_relu(target_part + source_part.transpose(1, 2), 0.2).masked_fill(~is_edge, -torch.inf)
        heads = scores.softmax(-1) @ nodes
        reference = heads.mean(0) if layer.average else heads.transpose(0, 1).flatten(1)
        largest = max(largest, float((layer(features, edges) - reference).abs().max().detach()))
    return largest


def measure_edges(num_edges: int) -> tuple[float, float]:
    """Seconds and bytes per edge of a forward and backward pass, 8 heads of width 8, 10 edges per node.

    The bytes are the growth of the process's peak memory, so call it with growing numbers of edges.
    """
    torch.manual_seed(0)
    layer, num_nodes = GraphAttention(64, 64, 8), num_edges // 10
    edges, features = torch.randint(num_nodes, (2, num_edges)), torch.randn(num_nodes, 64)
    before, start = getrusage(RUSAGE_SELF).ru_maxrss, process_time()
    layer(features, edges).sum().backward()
    seconds, kilobytes = process_time() - start, getrusage(RUSAGE_SELF).ru_maxrss - before
    return seconds / num_edges, 1024 * kilobytes / num_edges


def compare_graphs(quick: bool) -> Iterator[Claim]:
    """Accuracy on Cora and CiteSeer, the dense reference, the cost per edge."""
    difference = compare_with_dense(200)
    print(f"\n200 random graphs, sparse against dense in float32: largest difference {difference:.1e}")
    yield "the layer equals a dense reference within 1e-6", float(difference <= 1e-6), 1.0
    print("    edges  ns per edge  bytes per edge   (forward and backward, 8 heads of width 8, one thread)")
    for num_edges in (100_000, 300_000 if quick else 1_000_000):
        seconds, num_bytes = measure_edges(num_edges)
        print(f"{num_edges:>9,} {1e9 * seconds:>12,.0f} {num_bytes:>15,.0f}", flush=True)
    yield f"edges per kilobyte of memory at {num_edges:,} edges", 1000 / num_bytes, 0.5
    graphs = {name: read_citations(name) for name in PUBLISHED}
    for layer, name in product((GraphAttention, UniformAttention), graphs):
        results = []
        for seed in range(1 if quick else NUM_SEEDS):
            results.append(train_classifier(graphs[name], layer, seed, QUICK_EPOCHS if quick else 100_000))
            print(f"  {name} {layer.__name__} seed {seed}: {results[-1][0]:.1f}, {results[-1][1]} epochs", flush=True)
        accuracies = [accuracy for accuracy, _ in results]
        mean, deviation = fmean(accuracies), pstdev(accuracies)
        print(f"{name:>9} {layer.__name__:>16} {mean:.2f} +- {deviation:.2f}, published {PUBLISHED[name]} +- 0.7")
        if layer is GraphAttention:
            yield f"mean accuracy on {name}", mean, 50.0 if quick else MIN_ACCURACY[name]


# --------------------------------------------------------------------------------------------------------- words

MAX_LOSS = 0.02  # of a correlation against gensim's
MIN_SPEED = 0.5  # words per second, divided by gensim's
SIMILARITY_SETS = {
    "eng": {"WordSim353": ("wordsim353.tsv", "\t"), "SimLex-999": ("simlex999.txt", "\t")},
    "rus": {"RUSSE HJ": ("russe-hj.csv", ",")},
    "por": {},
}
ANALOGY_SETS = {"por": {"LX-4WAnalogies": "LX-4WAnalogies.txt.gz"}}


def read_similarities(name: str, separator: str) -> list[tuple[str, str, float]]:
    lines = (DATA / "word-similarity" / name).read_text(encoding="utf-8").splitlines()
    rows = [line.split(separator) for line in lines if line and not line.startswith("#")]
    return [(row[0].lower(), row[1].lower(), float(row[2])) for row in rows if row[2].replace(".", "").isdigit()]


def correlate(vectors: WordVectors, pairs: list[tuple[str, str, float]]) -> tuple[float, int]:
    """Spearman's correlation with human judgments, and the number of pairs of which both words have vectors."""
    from scipy.stats import spearmanr  # type: ignore[import-untyped, unused-ignore]

    known = [pair for pair in pairs if pair[0] in vectors.rows and pair[1] in vectors.rows]
    cosines = [vectors.similarity(first, second) for first, second, _ in known]
    return float(spearmanr(cosines, [judgment for _, _, judgment in known]).statistic), len(known)


def complete_analogies(vectors: WordVectors, name: str) -> tuple[float, int]:
    """The share of analogies whose first answer is right, and how many have vectors for all four words."""
    rows = [line.lower().split() for line in read_lines(f"word-similarity/{name}") if not line.startswith(":")]
    known = [row for row in rows if all(word in vectors.rows for word in row)]
    right = sum(vectors.analogy(first, second, third, 1)[0][0] == fourth for first, second, third, fourth in known)
    return right / len(known), len(known)


def compare_words(quick: bool) -> Iterator[Claim]:
    """heedful and gensim on the same words, one after the other."""
    from gensim.models import Word2Vec

    for language in ("eng",) if quick else ("eng", "rus", "por"):
        with lzma.open(DATA / "tatoeba-mono" / f"{language}.txt.xz", "rt", encoding="utf-8") as stream:
            lines = list(islice(stream, 40_000 if quick else None))
        options = WordOptions(epochs=1 if quick else 5)
        start = process_time()
        ours = train_vectors(lambda lines=lines: lines, options)  # type: ignore[misc]
        seconds = {"heedful": process_time() - start}
        start = process_time()
        sentences = [split_words(line) for line in lines]
        model = Word2Vec(
            sentences,
            sg=1,
            workers=1,
            vector_size=options.width,
            window=options.window,
            negative=options.negatives,
            sample=options.subsample,
            min_count=options.min_count,
            epochs=options.epochs,
            seed=options.seed,
        )
        seconds["gensim"] = process_time() - start
        tables = {"heedful": ours, "gensim": WordVectors(model.wv.index_to_key, model.wv.vectors)}
        num_words = options.epochs * sum(map(len, sentences))
        print(
            f"\n{language}: {len(lines):,} lines, {len(ours.words):,} words in the vocabulary, {options.epochs} epochs"
        )
        for name, table in tables.items():
            print(f"  {name:>8} {num_words / seconds[name]:>9,.0f} words per second of one core", flush=True)
            assert set(table.words) == set(ours.words)
        yield f"{language}: speed divided by gensim's", seconds["gensim"] / seconds["heedful"], MIN_SPEED
        for title, (file, separator) in SIMILARITY_SETS[language].items():
            pairs = read_similarities(file, separator)
            results = {name: correlate(table, pairs) for name, table in tables.items()}
            known = results["gensim"][1]
            print(f"  {title} ({known} pairs): " + ", ".join(f"{name} {rho:.4f}" for name, (rho, _) in results.items()))
            loss = results["gensim"][0] - results["heedful"][0]
            yield f"{language} {title}: {MAX_LOSS} + heedful - gensim", MAX_LOSS - loss, -1.0 if quick else 0.0
        for title, file in ANALOGY_SETS.get(language, {}).items():
            shares = {name: complete_analogies(table, file) for name, table in tables.items()}
            known = shares["gensim"][1]
            print(
                f"  {title} ({known} questions): "
                + ", ".join(f"{key} {share:.4f}" for key, (share, _) in shares.items())
            )
            loss = shares["gensim"][0] - shares["heedful"][0]
            yield f"{language} {title}: {MAX_LOSS} + heedful - gensim", MAX_LOSS - loss, 0.0


# -------------------------------------------------------------------------------------------------------- labels

MAX_ACCURACY_LOSS = 2.0  # percent, against logistic regression
NUM_STEPS, QUICK_STEPS = 1_500, 40
WINDOW = 4  # letters on each side of a letter, for the regression
NO_PHONEME = "_"  # of a letter that shares the phoneme of the letter before
Pairs = list[tuple[str, str]]
RECURRENT = {
    "width": 128,
    "dropout": 0.3,
    "tie_embeddings": "none",
    "encoder": {"kind": "recurrent", "width": 256, "dropout": 0.3},
}


class LabeledData(NamedTuple):
    """Texts and their labels, held out by split."""

    train: Pairs
    valid: Pairs
    test: Pairs
    per_slot: bool = False


def read_emoji() -> LabeledData:
    """English captions and categories."""
    header_row, *rows = (line.split("\t") for line in read_lines("emoji-captions/captions.tsv.gz"))
    caption, category, split = map(header_row.index, ("en", "category", "split"))
    learned, valid, test = (
        [(row[caption], row[category]) for row in rows if row[split] == part] for part in ("train", "valid", "test")
    )
    return LabeledData(learned, valid, test)


def read_portuguese() -> LabeledData:
    """News in both varieties; of ten documents, eight are for training, one for validation and one for the test."""
    documents = read_lines("ntrex/DOCUMENT_IDS.tsv.gz")
    numbers = {document: number for number, document in enumerate(dict.fromkeys(documents))}
    parts: tuple[Pairs, Pairs, Pairs] = ([], [], [])
    for label, name in (("European", "por"), ("Brazilian", "por-BR")):
        lines = read_lines(f"ntrex/newstest2019-ref.{name}.txt.gz")
        for line, document in zip(lines, documents, strict=True):
            parts[max(0, numbers[document] % 10 - 7)].append((" ".join(line.split()), label))
    return LabeledData(*parts)


def read_phonemes() -> LabeledData:
    """Portuguese words, letter by letter, and the phonemes of each letter, from the alignment in the lexicon."""
    parts: tuple[Pairs, Pairs, Pairs] = ([], [], [])
    for row, line in enumerate(read_lines("g2p/gruut-pt.tsv.gz")):
        letters: list[str] = []
        phonemes: list[str] = []
        for group in line.split("\t")[2].split(" "):
            written, _, spoken = group.partition("}")
            parts_of_group = written.split("|")
            letters += parts_of_group
            phonemes += [spoken, *[NO_PHONEME] * (len(parts_of_group) - 1)]
        if all(letters) and all(phonemes):
            parts[max(0, row % 10 - 7)].append((" ".join(letters), " ".join(phonemes)))
    return LabeledData(*parts, per_slot=True)


def label_with_heedful(data: LabeledData, steps: int, folder: Path) -> list[str]:
    """The labels of the test texts, by an LSTM."""
    trees: dict[str, Any] = {}
    for split, pairs in (("train", data.train), ("validation", data.valid)):
        for side, lines in zip(("text", "labels"), zip(*pairs, strict=True), strict=True):
            (folder / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        trees[split] = [{"files": [str(folder / f"{split}.{side}") for side in ("text", "labels")]}]
    pooling = "none" if data.per_slot else "attention"
    tokenizer = {"kind": "fields"} if data.per_slot else {"kind": "bpe", "vocab_size": 2_000}
    settings = parse_settings(
        {
            "source": "und",
            "target": "labels",
            "data": {**trees, "prepared_dir": str(folder / "prepared")},
            "tokenizer": {**tokenizer, "shared": False},
            "model": {**RECURRENT, "decoder": {"kind": "labels", "pooling": pooling, "dropout": 0.3}},
            "train": {"output_dir": str(folder / "run"), "steps": steps, "batch_tokens": 2048, "ema": 0.99},
        }
    )
    labeler = load(train(settings, force=True))
    return [result.text for result in labeler([text for text, _ in data.test])]


def label_with_regression(data: LabeledData) -> list[str]:
    """The labels of the test texts, by logistic regression on n-grams of letters, or on the letters near each one."""
    from sklearn.feature_extraction import DictVectorizer  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-not-found, import-untyped, unused-ignore]

    def near_letters(text: str) -> list[dict[str, str]]:
        letters = ["", *text.split(" "), ""]
        return [
            {
                f"{first} {last}": "".join(letters[max(0, slot + first) : slot + last + 1])
                for first in range(-WINDOW, 1)
                for last in range(WINDOW + 1)
            }
            for slot in range(1, len(letters) - 1)
        ]

    regression = LogisticRegression(max_iter=1_000)
    if not data.per_slot:
        model = make_pipeline(CountVectorizer(analyzer="char_wb", ngram_range=(1, 4), binary=True), regression)
        model.fit(*zip(*data.train, strict=True))
        return list(model.predict([text for text, _ in data.test]))
    model = make_pipeline(DictVectorizer(), regression)
    slots = [slot for text, _ in data.train for slot in near_letters(text)]
    model.fit(slots, [label for _, labels in data.train for label in labels.split(" ")])
    return [" ".join(model.predict(near_letters(text))) for text, _ in data.test]


def compare_labels(quick: bool) -> Iterator[Claim]:
    """Accuracy and macro F1 of both on unseen texts."""
    tasks = {"emoji": read_emoji, "Portuguese": read_portuguese, "phonemes": read_phonemes}
    for name, read in tasks.items():
        data = read()
        if quick or data.per_slot:  # the regression takes long with many classes
            limits = (400, 100, 200) if quick else (4_000, 500, 2_000)
            texts, valid, test = (
                pairs[:: max(1, len(pairs) // limit)] for pairs, limit in zip(data[:3], limits, strict=True)
            )
            data = LabeledData(texts, valid, test, data.per_slot)
        with TemporaryDirectory() as folder:
            outputs = {"heedful": label_with_heedful(data, QUICK_STEPS if quick else NUM_STEPS, Path(folder))}
        outputs["regression"] = label_with_regression(data)
        print(f"\n{name}: {len(data.train):,} texts, {len(data.test):,} in the test")
        accuracies = {}
        for system, lines in outputs.items():
            true = [labels for _, labels in data.test]
            predicted, true = split_slots(lines, true) if data.per_slot else (lines, true)
            accuracies[system] = score("accuracy", predicted, true).value
            print(f"{system:>12}  accuracy {accuracies[system]:.2f}  macro F1 {score('f1', predicted, true).value:.2f}")
        gain = accuracies["heedful"] - accuracies["regression"]
        yield f"{name}: {MAX_ACCURACY_LOSS} + accuracy - regression's", MAX_ACCURACY_LOSS + gain, -100 if quick else 0.0


# ------------------------------------------------------------------------------------------------ initialization

NUM_PAIRS, VECTOR_WIDTH = 5_000, 128


def compare_initialization(quick: bool) -> Iterator[Claim]:
    """BLEU of English-Portuguese with and without word vectors, three seeds."""
    scores: dict[str, list[float]] = {"random": [], "word vectors": []}
    with TemporaryDirectory() as name:
        folder = Path(name)
        vectors = {}
        for side in ("eng", "por"):
            for split, count in (("train", 500 if quick else NUM_PAIRS), ("valid", 200), ("test", 1_000)):
                lines = read_lines(f"tatoeba-eng-por/{split}.{side}.gz")[:count]
                (folder / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            with lzma.open(DATA / "tatoeba-mono" / f"{side}.txt.xz", "rt", encoding="utf-8") as stream:
                text = list(islice(stream, 5_000 if quick else None))
            options = WordOptions(width=VECTOR_WIDTH, epochs=1 if quick else 5)
            vectors[side] = folder / f"{side}.vec"
            write_vectors(vectors[side], train_vectors(lambda text=text: text, options))  # type: ignore[misc]
        for seed, start in product(range(1, 2 if quick else 4), scores):
            files = {"source": str(vectors["eng"]), "target": str(vectors["por"])}
            settings = parse_settings(
                {
                    "source": "eng",
                    "target": "por",
                    "seed": seed,
                    "data": {
                        "prepared_dir": str(folder / "prepared"),
                        **{
                            key: [{"files": [str(folder / f"{split}.{side}") for side in ("eng", "por")]}]
                            for key, split in (("train", "train"), ("validation", "valid"))
                        },
                    },
                    "tokenizer": {"kind": "bpe", "vocab_size": 6_000, "shared": False},
                    "model": {
                        **RECURRENT,
                        "tie_embeddings": "target",
                        "decoder": {
                            "kind": "recurrent",
                            "width": 256,
                            "dropout": 0.3,
                            "attention": {"score": "additive"},
                        },
                        **({"embeddings": files} if start == "word vectors" else {}),
                    },
                    "train": {
                        "output_dir": str(folder / f"{seed}-{start.replace(' ', '-')}"),
                        "steps": QUICK_STEPS if quick else NUM_STEPS,
                        "ema": 0.99,
                    },
                }
            )
            translator = load(train(settings, force=True))
            sources, references = ((folder / f"test.{side}").read_text("utf-8").splitlines() for side in vectors)
            outputs = [result.text for result in translator(sources[: 50 if quick else None])]
            scores[start].append(score("bleu", outputs, references[: len(outputs)]).value)
            print(f"  seed {seed}, {start}: BLEU {scores[start][-1]:.2f}", flush=True)
    gain = fmean(scores["word vectors"]) - fmean(scores["random"])
    yield "BLEU gained by word vectors", gain, -100.0 if quick else 0.0


PARTS = {
    "metrics": (compare_metrics, ("nltk", "pycocoevalcap", "snowballstemmer")),
    "words": (compare_words, ("gensim", "scipy")),
    "graphs": (compare_graphs, ()),
    "labels": (compare_labels, ("sklearn",)),
    "initialization": (compare_initialization, ()),
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="the short form")
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="the parts to run")
    arguments = options.parse_args()
    header(__file__)
    claims: list[Claim] = []
    for name in arguments.only:
        compare, packages = PARTS[name]
        if missing := [package for package in packages if find_spec(package) is None]:
            skip(name, f"needs {', '.join(missing)}")
            continue
        claims += list(compare(arguments.quick))
        print(f"({process_time():.0f} s of one core so far)", flush=True)
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
