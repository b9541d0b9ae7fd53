import pytest
import torch

from heedful.performance.topk import argmax, block_size, top_sums


@pytest.mark.parametrize("size", [5, 64, 10_007, 10_000, 32_000, 8_192])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("k", [1, 4, 10])
def test_the_largest_sums_are_those_of_a_plain_top_k(size, rows, k):
    torch.manual_seed(size + rows + k)
    bases, values = torch.randn(4, rows, dtype=torch.double), torch.randn(4, rows, size)
    values[0, 0, -1] = 99.0
    bases[1, 0] = -torch.inf  # a row without hope
    found, where = top_sums(bases, values, k)
    sums = (bases.unsqueeze(-1) + values).flatten(1)
    expected = sums.topk(min(k, rows * size), -1)
    assert torch.equal(found, expected.values)
    assert torch.equal(sums.gather(1, where), expected.values)
    real = expected.values > -torch.inf
    assert torch.equal(where[real], expected.indices[real])


@pytest.mark.parametrize("shape", [(1, 100), (64, 10_000), (64, 10_007), (3, 7)])
def test_argmax_is_that_of_pytorch(shape):
    torch.manual_seed(0)
    values = torch.randn(shape)
    assert torch.equal(argmax(values), values.argmax(-1))


def test_blocks_divide():
    assert [block_size(size) for size in (10_000, 8_192, 32_000, 10_007)] == [125, 128, 128, 1]
