import itertools

import pytest
import torch
from torch import nn

from heedful.data.batch import collate
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.decoders import TransformerDecoder
from heedful.nn.encoders import TransformerEncoder
from heedful.nn.layers import Embed, TransformerLayerOptions, initialize, output_layer


@pytest.mark.parametrize(
    "tied", [set(some) for n in (0, 2, 3) for some in itertools.combinations("STO", n)], ids=sorted
)
def test_source_target_and_output_tables_may_be_one_in_any_way(tied):
    """S, T, O: those that are tied are one parameter, whose gradient is the sum of what each use asks for."""
    torch.manual_seed(0)
    one = nn.Embedding(9, 8)
    source, target = (one if side in tied else nn.Embedding(9, 8) for side in "ST")
    output = output_layer(8, 9, tied_to=one if "O" in tied else None)
    options = {"layers": 1, "options": TransformerLayerOptions(heads=2, feedforward_size=8)}
    model = Seq2Seq(
        TransformerEncoder(Embed(source), **options), TransformerDecoder(Embed(target), output, 8, **options)
    )
    initialize(model)
    tables = [source.weight, target.weight, output.weight]
    assert len({id(table) for table in tables}) == 3 - max(0, len(tied) - 1)
    batch = collate([([3, 4], [5, 6])], bos=1, eos=2, pad=0)
    model(batch).smoothed.backward()
    assert all(table.grad is not None and table.grad.any() for table in tables)
    assert bool(source.weight.grad[3].any())
    assert bool(target.weight.grad[5].any())
    if "S" not in tied:
        assert not source.weight.grad[5].any()  # the target's words leave a source table of its own alone
