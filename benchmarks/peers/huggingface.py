"""Train a Marian model with Hugging Face's Seq2SeqTrainer, logging a line per step, in the peer's environment.

python huggingface.py '{"data": ..., "work": ..., "steps": ..., "layers": ..., ...}'
"""

import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

PAD, UNK, BOS, EOS = range(4)
IGNORED = -100  # where a label is padding


def tokens(folder: Path, name: str) -> list[list[int]]:
    """The ids of each line's pieces, with the end token."""
    ids = {piece: number for number, piece in enumerate((folder / "vocabulary").read_text("utf-8").splitlines())}
    return [[*map(ids.__getitem__, line.split(" ")), EOS] for line in (folder / name).read_text("utf-8").splitlines()]


def padded(rows: list[list[int]], fill: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows])


class Feed(TrainerCallback):  # type: ignore[misc]
    """Makes the batches, and prints each finished one with its number of target tokens."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.counts: deque[int] = deque()  # of the batches made and not yet trained on: one is made ahead

    def __call__(self, pairs: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        source = padded([pair["input_ids"] for pair in pairs], PAD)
        labels = padded([pair["labels"] for pair in pairs], IGNORED)
        self.counts.append(int((labels != IGNORED).sum()))
        return {
            "input_ids": source,
            "attention_mask": (source != PAD).long(),
            "labels": labels,
            "decoder_input_ids": self.model.prepare_decoder_input_ids_from_labels(labels),  # smoothing asks for them
        }

    def on_step_end(self, arguments: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        print(f"step {state.global_step}: {self.counts.popleft()} tokens", flush=True)


def main(given: dict[str, Any]) -> None:
    model = MarianMTModel(
        MarianConfig(
            vocab_size=8000,
            d_model=given["width"],
            encoder_layers=given["layers"],
            decoder_layers=given["layers"],
            encoder_attention_heads=given["heads"],
            decoder_attention_heads=given["heads"],
            encoder_ffn_dim=given["inner"],
            decoder_ffn_dim=given["inner"],
            dropout=given["dropout"],
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=256,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            forced_eos_token_id=EOS,
            decoder_start_token_id=BOS,
        )
    )
    arguments = Seq2SeqTrainingArguments(
        output_dir=given["work"],
        max_steps=given["steps"],
        per_device_train_batch_size=256,  # sentences: it has no batches of so many tokens
        train_sampling_strategy="group_by_length",
        label_smoothing_factor=0.1,
        learning_rate=1e-3,
        use_cpu=True,
        seed=1,
        remove_unused_columns=False,
        disable_tqdm=True,
        save_strategy="no",
        report_to=[],
    )
    folder, feed = Path(given["data"]), Feed(model)
    sides = zip(tokens(folder, "train.en"), tokens(folder, "train.de"), strict=True)
    pairs = [{"input_ids": source, "labels": target} for source, target in sides]
    Seq2SeqTrainer(model, arguments, train_dataset=pairs, data_collator=feed, callbacks=[feed]).train()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
