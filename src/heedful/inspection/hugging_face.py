"""Inspect Hugging Face's encoder-decoder models (Marian, T5, BART, M2M and similar).

    model = wrap_hugging_face(model, tokenizer, name="opus-mt")
    heedful.inspect(model, "Good morning").save("inspect.html")

The model is wrapped in heedful's contract, so heedful runs the search and records its tree. Nothing is cached between
steps, which is slower but works for every encoder-decoder.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.inspection.record import InspectedModel, InspectedSource
from heedful.nn.contract import Decoded, Look, Map, Maps, Memory, State
from heedful.search.filters import SuppressTokens


class _EncoderAdapter:
    def __init__(self, model: Any) -> None:
        self.encoder = model.get_encoder()

    def __call__(self, tokens: Tensor, mask: Tensor, look: Look | None = None) -> Memory:
        out = self.encoder(input_ids=tokens, attention_mask=mask.long(), output_attentions=look is not None)
        maps = Maps(encoder=tuple(Map(weights=weights) for weights in out.attentions)) if look else None
        return Memory(out.last_hidden_state, mask, maps)


class _DecoderAdapter(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.decoder = model, model.get_decoder()

    def start(self, memory: Memory) -> State:
        no_tokens = memory.mask.new_zeros((memory.mask.size(0), 0), dtype=torch.long)
        return State((memory.states, memory.mask), no_tokens)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        (states, mask), prefix = state.source, torch.cat((state.past, tokens), 1)
        out = self.decoder(
            input_ids=prefix,
            encoder_hidden_states=states,
            encoder_attention_mask=mask.long(),
            output_attentions=look is not None,
            use_cache=False,
        )
        count = tokens.size(1)
        maps = None
        if look is not None:
            cross, decoder = (
                tuple(Map(weights=weights[:, :, -count:]) for weights in layers)
                for layers in (out.cross_attentions, out.attentions)
            )
            maps = Maps(cross=cross, decoder=decoder)
        return Decoded(out.last_hidden_state[:, -count:], maps), State(state.source, prefix)

    def project(self, states: Tensor) -> Tensor:
        config = self.model.config
        if getattr(config, "scale_decoder_outputs", False):
            states = states * config.d_model**-0.5
        logits = self.model.get_output_embeddings()(states)
        bias = getattr(self.model, "final_logits_bias", None)
        return logits if bias is None else logits + bias  # type: ignore[no-any-return]


def wrap_hugging_face(
    model: Any, tokenizer: Any = None, *, name: str = "", languages: tuple[str, str] = ("", "")
) -> InspectedModel:
    """Wrap a transformers model; without a tokenizer, tokens are shown as numbers."""
    model.eval()
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")  # other implementations do not return attention weights
    config = model.config
    start = config.decoder_start_token_id
    start = config.bos_token_id if start is None else start

    def pieces(ids: Sequence[int]) -> list[str]:
        return tokenizer.convert_ids_to_tokens(list(ids)) if tokenizer else [f"\u2581{token}" for token in ids]

    def detokenize(ids: Sequence[int]) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=True) if tokenizer else " ".join(map(str, ids))

    return InspectedModel(
        _EncoderAdapter(model),
        _DecoderAdapter(model),
        bos=start,
        eos=config.eos_token_id,
        source_pieces=pieces,
        target_pieces=pieces,
        detokenize=detokenize,
        name=name or type(model).__name__,
        languages=languages,
        can_silence_heads=False,
        filters=(SuppressTokens((config.pad_token_id,)),)
        if config.pad_token_id not in (None, config.eos_token_id)
        else (),
        tokenize=(lambda text: tokenize_source(tokenizer, text)) if tokenizer else None,
        unk=getattr(tokenizer, "unk_token_id", None),
    )


def tokenize_source(tokenizer: Any, text: str, max_length: int = 100) -> InspectedSource:
    ids = tuple(tokenizer(text)["input_ids"])
    return InspectedSource(ids, text, has_end=ids[-1:] == (tokenizer.eos_token_id,), max_length=max_length)
