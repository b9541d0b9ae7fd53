"""Hugging Face's encoder-decoder models (Marian, T5, BART, M2M and their like) under the same glass.

    subject = hugging_face(model, tokenizer, name="opus-mt")
    heedful.inspect(subject, "Good morning").save("inspect.html")

The model is wrapped in heedful's contract, so every search and its whole tree are heedful's own. Nothing is cached
between steps: a sentence takes a moment longer, and any model of that shape will do.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.inspection.record import Question, Subject
from heedful.nn.contract import Decoded, Look, Map, Maps, Memory, State
from heedful.search.filters import SuppressTokens


class _Encoder:
    def __init__(self, model: Any) -> None:
        self.encoder = model.get_encoder()

    def __call__(self, tokens: Tensor, mask: Tensor, look: Look | None = None) -> Memory:
        out = self.encoder(input_ids=tokens, attention_mask=mask.long(), output_attentions=look is not None)
        maps = Maps(encoder=tuple(Map(weights=one) for one in out.attentions)) if look else None
        return Memory(out.last_hidden_state, mask, maps)


class _Decoder(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.whole, self.decoder = model, model.get_decoder()

    def start(self, memory: Memory) -> State:
        nothing = memory.mask.new_zeros((memory.mask.size(0), 0), dtype=torch.long)
        return State((memory.states, memory.mask), nothing)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        (states, mask), said = state.source, torch.cat((state.past, tokens), 1)
        out = self.decoder(
            input_ids=said,
            encoder_hidden_states=states,
            encoder_attention_mask=mask.long(),
            output_attentions=look is not None,
            use_cache=False,
        )
        count = tokens.size(1)
        maps = None
        if look is not None:
            cross, own = (
                tuple(Map(weights=one[:, :, -count:]) for one in some)
                for some in (out.cross_attentions, out.attentions)
            )
            maps = Maps(cross=cross, decoder=own)
        return Decoded(out.last_hidden_state[:, -count:], maps), State(state.source, said)

    def project(self, states: Tensor) -> Tensor:
        config = self.whole.config
        if getattr(config, "scale_decoder_outputs", False):
            states = states * config.d_model**-0.5
        logits = self.whole.get_output_embeddings()(states)
        bias = getattr(self.whole, "final_logits_bias", None)
        return logits if bias is None else logits + bias  # type: ignore[no-any-return]


def hugging_face(
    model: Any, tokenizer: Any = None, *, name: str = "", languages: tuple[str, str] = ("", "")
) -> Subject:
    """A model of the transformers package; without its tokenizer, tokens are shown as numbers."""
    model.eval()
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")  # the others do not tell where they looked
    config = model.config
    start = config.decoder_start_token_id
    start = config.bos_token_id if start is None else start

    def called(ids: Sequence[int]) -> list[str]:
        return tokenizer.convert_ids_to_tokens(list(ids)) if tokenizer else [f"\u2581{one}" for one in ids]

    def say(ids: Sequence[int]) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=True) if tokenizer else " ".join(map(str, ids))

    return Subject(
        _Encoder(model),
        _Decoder(model),
        bos=start,
        eos=config.eos_token_id,
        source=called,
        target=called,
        say=say,
        name=name or type(model).__name__,
        languages=languages,
        silences=False,
        filters=(SuppressTokens((config.pad_token_id,)),)
        if config.pad_token_id not in (None, config.eos_token_id)
        else (),
        ask=(lambda text: question_of(tokenizer, text)) if tokenizer else None,
    )


def question_of(tokenizer: Any, text: str, limit: int = 100) -> Question:
    """A text as the model's own tokenizer cuts it."""
    ids = tuple(tokenizer(text)["input_ids"])
    return Question(ids, text, ends=ids[-1:] == (tokenizer.eos_token_id,), limit=limit)
