"""Shard a model with FSDP2: each Transformer layer is a unit, everything else belongs to the root.

The root's forward computes the loss, so the embedding tables and the output matrix (often tied) belong to the root.
Recurrent parts do too, because they are small. A search calls the decoder, not the root, so it needs gathered weights:
call `model.unshard()` first, or load a full state dict into an unsharded copy.
"""

import warnings
from typing import Any

from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from heedful.model.seq2seq import Seq2Seq
from heedful.nn.decoders.transformer import DecoderLayer
from heedful.nn.encoders.transformer import EncoderLayer


def shard(model: Seq2Seq, **options: Any) -> Seq2Seq:
    """Shard in place over the default process group; `options` go to `fully_shard` (mesh, mixed precision, ..)."""
    # The warning is about in-place changes of a layer's output; heedful makes none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor", category=UserWarning)
    for layer in sharded_layers(model):
        fully_shard(layer, **options)
        if isinstance(layer, DecoderLayer):
            register_fsdp_forward_method(layer, "prepare")  # called once per sentence, before the layer's forward
    fully_shard(model, **options)
    return model


def sharded_layers(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if isinstance(part, EncoderLayer | DecoderLayer)]
