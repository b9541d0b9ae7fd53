"""Run by test_conventions.py in a process of its own: our beam against the real CTranslate2 and Hugging Face.

One small random model is given to all three; they must return the same n-best lists with the same scores, in every
convention that LENGTHS and STOPPINGS offer for them.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from heedful import config
from heedful.build import build
from heedful.data.batch import pad_rows
from heedful.exporters.ctranslate2 import build_spec
from heedful.exporters.marian import convert_weights
from heedful.model.seq2seq import Seq2Seq
from heedful.search import Beam, DecodingLimits

V, WIDTH, HEADS, INNER, LAYERS = 40, 32, 4, 48, 2
PAD, BOS, EOS = 0, 1, 2
LIMIT, SIZE = 14, 4


def shape(norm: str) -> config.ModelSettings:
    part = {"kind": "transformer", "layers": LAYERS, "heads": HEADS, "feedforward_size": INNER, "norm": norm}
    return config.ModelSettings.model_validate(
        {
            "width": WIDTH, "positions": "sinusoidal_halves", "max_positions": 64,
            "scale_embeddings": True, "tie_embeddings": "all", "output_bias": True,
            "encoder": part, "decoder": part,
        }
    )  # fmt: skip


def model(norm: str) -> Seq2Seq:
    torch.manual_seed(7)
    made = build(shape(norm), V, V)
    for name, parameter in made.named_parameters():
        nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, std=0.25)
    with torch.no_grad():
        made.decoder.plain_projection.bias[EOS] = 1.5  # sentences end, sooner or later
        made.decoder.plain_projection.bias[PAD] = -1e4
    return made.eval()


def weights_of(made: Seq2Seq) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in made.state_dict().items()}


def sources() -> list[list[int]]:
    draw = torch.Generator().manual_seed(3)
    return [
        [*torch.randint(3, V, (int(n),), generator=draw).tolist(), EOS]
        for n in torch.randint(3, 12, (60,), generator=draw)
    ]


def ours(made: Seq2Seq, search: Beam) -> list[list[tuple[tuple[int, ...], float]]]:
    with torch.inference_mode():
        memory = made.encoder(*pad_rows(sources(), PAD))
    found = search(made.decoder, memory, DecodingLimits(BOS, EOS, LIMIT))
    return [[(answer.tokens, answer.score) for answer in answers.hypotheses] for answers in found]


def compare(what: str, mine: list, theirs: list) -> None:
    same = sum([a[0] for a in one] == [b[0] for b in other] for one, other in zip(mine, theirs, strict=True))
    apart = max(
        abs(a[1] - b[1]) for one, other in zip(mine, theirs, strict=True) for a, b in zip(one, other, strict=False)
    )
    print(f"{what}: {same} of {len(mine)} n-best lists equal, scores within {apart:.1e}")
    assert same == len(mine), what
    assert apart < 1e-3, what


def against_ctranslate2() -> None:
    import ctranslate2

    for norm in ("pre", "post"):
        made = model(norm)
        spec = build_spec(shape(norm), weights_of(made))
        words = ["<blank>", "<s>", "</s>", "<unk>", *(f"w{index}" for index in range(4, V))]
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.add_source_eos = False
        spec.validate()
        spec.optimize()
        with tempfile.TemporaryDirectory() as folder:
            spec.save(folder)
            translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32")
            for alpha in (0.0, 0.6, 1.0):
                answers = translator.translate_batch(
                    [[words[token] for token in row] for row in sources()],
                    beam_size=SIZE,
                    num_hypotheses=SIZE,
                    length_penalty=alpha,
                    min_decoding_length=0,  # its default of 1 forbids an empty answer, and renormalizes
                    max_decoding_length=LIMIT,
                    return_scores=True,
                )
                theirs = [
                    [
                        (tuple(words.index(word) for word in hypothesis), score)
                        for hypothesis, score in zip(answer.hypotheses, answer.scores, strict=True)
                    ]
                    for answer in answers
                ]
                search = Beam(SIZE, SIZE, "power", length_penalty=alpha, stopping="ctranslate2")
                compare(f"ctranslate2, {norm}-norm, length penalty {alpha}", ours(made, search), theirs)


def against_hugging_face() -> None:
    from transformers import MarianConfig, MarianMTModel

    made = model("post")
    about = MarianConfig(
        vocab_size=V,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        max_position_embeddings=64,
    )
    theirs = MarianMTModel(about).eval()
    every = np.arange(V)
    arrays = convert_weights(shape("post"), weights_of(made), every, every)
    missing, unknown = theirs.load_state_dict(
        {name: torch.from_numpy(one) for name, one in arrays.items()}, strict=False
    )
    assert not unknown
    assert all("embed" in name or "lm_head" in name for name in missing)  # tables that are tied, and positions
    tokens, mask = pad_rows(sources(), PAD)
    for early, stopping in ((True, "enough"), (False, "likely")):
        for alpha in (0.0, 0.6, 1.0):
            answer = theirs.generate(
                input_ids=tokens,
                attention_mask=mask.long(),
                num_beams=SIZE,
                num_return_sequences=SIZE,
                do_sample=False,
                length_penalty=alpha,
                early_stopping=early,
                max_new_tokens=LIMIT,
                return_dict_in_generate=True,
                output_scores=True,
            )
            lists = []
            for row, score in zip(answer.sequences.tolist(), answer.sequences_scores.tolist(), strict=True):
                said = row[1:]
                said = said[: said.index(EOS)] if EOS in said else [token for token in said if token != PAD]
                lists.append((tuple(said), score))
            grouped = [lists[begin : begin + SIZE] for begin in range(0, len(lists), SIZE)]
            search = Beam(SIZE, SIZE, "power", length_penalty=alpha, stopping=stopping)
            compare(f"hugging face, early_stopping={early}, length penalty {alpha}", ours(made, search), grouped)


if __name__ == "__main__":
    {"ctranslate2": against_ctranslate2, "transformers": against_hugging_face}[sys.argv[1]]()
