"""The settings of every peer, and how its log is parsed.

Equal for all: the pieces of `data`, tied embeddings, pre-norm, label smoothing 0.1, 4,096 tokens per batch, Adam, fp32,
two threads, a fixed seed; the peer's defaults for the rest. Differences, where a peer has no such option:

- batch size: eole and JoeyNMT count the longer side with padding, Marian counts source tokens without padding; the
  Trainer counts sentences, 256
- batching: sentences of similar length (the Trainer starts with the longest), but any sentences in JoeyNMT
- the Trainer's model is post-norm, and JoeyNMT also applies dropout to attention weights

Every peer logs every step with its number of target tokens. The counts of all four were checked with an epoch on
val.de, which has 16,609 tokens with end tokens: each counted exactly those, without padding.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peers.install import program


@dataclass(frozen=True)
class Size:
    layers: int  # of the encoder, and as many of the decoder
    width: int
    inner: int
    heads: int
    dropout: float


SIZES = {"tiny": Size(4, 128, 256, 4, dropout=0.3), "base": Size(6, 512, 2048, 8, dropout=0.1)}
BATCH = 4096


@dataclass(frozen=True)
class Job:
    size: Size
    steps: int
    data: Path
    work: Path  # thrown away when the job is done

    @property
    def pieces(self) -> list[str]:
        """The vocabulary without the four special tokens, which every peer adds."""
        return (self.data / "vocabulary").read_text("utf-8").splitlines()[4:]

    def write(self, name: str, text: str) -> str:
        (self.work / name).write_text(text, encoding="utf-8", newline="\n")
        return str(self.work / name)

    def settings(self, tree: dict[str, Any]) -> str:
        """The settings as YAML (JSON is valid YAML)."""
        return self.write("settings.yaml", json.dumps(tree))


Command = list[str | Path]


def eole(job: Job) -> Command:
    size, vocabulary = job.size, job.write("vocabulary", "\n".join(job.pieces))
    settings = {
        "seed": 1,
        "share_vocab": True,
        "src_vocab": vocabulary,
        "tgt_vocab": vocabulary,
        "src_vocab_size": 8000,
        "tgt_vocab_size": 8000,
        "n_sample": 0,
        "report_every": 1,
        "data": {"train": {"path_src": str(job.data / "train.en"), "path_tgt": str(job.data / "train.de")}},
        "training": {
            "model_path": str(job.work / "model"),
            "world_size": 0,
            "gpu_ranks": [],
            "batch_type": "tokens",
            "batch_size": BATCH,
            "batch_size_multiple": 1,
            "bucket_size": 29_000,  # sentences sorted at a time: all
            "num_workers": 0,
            "accum_count": [1],
            "accum_steps": [0],
            "optim": "adam",
            "learning_rate": 1.0,
            "decay_method": "noam",
            "warmup_steps": 1000,
            "normalization": "tokens",
            "label_smoothing": 0.1,
            "dropout": [size.dropout],
            "dropout_steps": [0],
            "attention_dropout": [0.0],
            "compute_dtype": "fp32",
            "train_steps": job.steps,
        },
        "model": {
            "architecture": "transformer",
            "layers": size.layers,
            "heads": size.heads,
            "hidden_size": size.width,
            "transformer_ff": size.inner,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": size.width, "position_encoding_type": "SinusoidalInterleaved"},
        },
    }
    return [program("eole", "eole"), "train", "-c", job.settings(settings)]


def huggingface(job: Job) -> Command:
    given = asdict(job.size) | {"steps": job.steps, "data": str(job.data), "work": str(job.work)}
    script = Path(__file__).with_name("huggingface.py")
    return [
        program("huggingface", "python"),
        "-P",
        script,
        json.dumps(given),
    ]  # -P: do not import modules next to the script


def joeynmt(job: Job) -> Command:
    size, vocabulary = job.size, job.write("vocabulary", "\n".join(job.pieces))
    side = {"level": "word", "max_length": 100, "voc_file": vocabulary}  # words: the pieces are cut already
    half = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "embeddings": {"embedding_dim": size.width, "scale": True},
        "hidden_size": size.width,
        "ff_size": size.inner,
        "dropout": size.dropout,
        "layer_norm": "pre",
    }
    settings = {
        "name": "peer",
        "joeynmt_version": "2.3.0",
        "model_dir": str(job.work / "model"),
        "use_cuda": False,
        "random_seed": 1,
        "data": {
            "train": str(job.data / "train"),
            "dev": str(job.data / "val"),
            "dataset_type": "plain",
            "src": {"lang": "en", **side},
            "trg": {"lang": "de", **side},
        },
        "testing": {},
        "training": {
            "optimizer": "adam",
            "learning_rate": 0.001,
            "learning_rate_warmup": 1000,
            "scheduling": "warmupinversesquareroot",
            "normalization": "tokens",
            "label_smoothing": 0.1,
            "batch_size": BATCH,
            "batch_type": "token",
            "updates": job.steps,
            "logging_freq": 1,
        },
        "model": {"tied_embeddings": True, "tied_softmax": True, "encoder": half, "decoder": half},
    }
    return [program("joeynmt", "python"), "-m", "joeynmt", "train", job.settings(settings), "--skip-test"]


def marian(job: Job) -> Command:
    size = job.size
    ids = {piece: number for number, piece in enumerate(["</s>", "<unk>", *job.pieces])}
    vocabulary = job.write("vocabulary.yml", json.dumps(ids, ensure_ascii=False))
    options = {
        "seed": 1,
        "model": job.work / "model.npz",
        "tempdir": job.work,
        "type": "transformer",
        "enc-depth": size.layers,
        "dec-depth": size.layers,
        "dim-emb": size.width,
        "transformer-dim-ffn": size.inner,
        "transformer-heads": size.heads,
        "transformer-dropout": size.dropout,
        "transformer-preprocess": "n",
        "transformer-postprocess": "da",
        "transformer-postprocess-top": "n",
        "label-smoothing": 0.1,
        "learn-rate": 0.001,
        "max-length": 100,
        "mini-batch": 1000,  # sentences, at most
        "mini-batch-words": BATCH,
        "cpu-threads": 2,
        "workspace": 4000,
        "disp-freq": "1u",
        "after": f"{job.steps}u",
    }
    return [
        program("marian", "pymarian"),
        *("--train-sets", job.data / "train.en", job.data / "train.de", "--vocabs", vocabulary, vocabulary),
        *(word for name, value in options.items() for word in (f"--{name}", str(value))),
        *("--tied-embeddings-all", "--sync-sgd"),
    ]


@dataclass(frozen=True)
class Peer:
    command: Callable[[Job], Command]
    step: re.Pattern[str]  # the line of a step, and in it the number of its target tokens
    per_second: bool = False  # whether that number is their rate since the line before


PEERS = {
    "eole": Peer(eole, re.compile(r"Step .*; bsz: +\d+/ *(\d+)/")),
    "huggingface": Peer(huggingface, re.compile(r"step \d+: (\d+) tokens")),
    "joeynmt": Peer(joeynmt, re.compile(r"Step: .*Tokens per Sec: +(\d+)"), per_second=True),
    "marian": Peer(marian, re.compile(r"Up\. .* \* ([\d,]+) @")),
}
