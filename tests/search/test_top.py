import pytest
import torch

from heedful.search.top import BLOCK, best, top_sums


@pytest.mark.parametrize("size", [5, BLOCK, 10 * BLOCK + 17, 200 * BLOCK])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("k", [1, 4, 10])
def test_the_largest_sums_are_those_of_a_plain_top_k(size, rows, k):
    torch.manual_seed(size + rows + k)
    bases, values = torch.randn(4, rows, dtype=torch.double), torch.randn(4, rows, size)
    values[0, 0, -1] = 99.0  # in the part that fills no block
    bases[1, 0] = -torch.inf  # a row without hope
    found, where = top_sums(bases, values, k)
    sums = (bases.unsqueeze(-1) + values).flatten(1)
    expected = sums.topk(min(k, rows * size), -1)
    assert torch.equal(found, expected.values)
    assert torch.equal(sums.gather(1, where), expected.values)
    real = expected.values > -torch.inf
    assert torch.equal(where[real], expected.indices[real])


@pytest.mark.parametrize("shape", [(1, 100), (64, 10_000), (3, 7)])
def test_best_is_argmax(shape):
    torch.manual_seed(0)
    values = torch.randn(shape)
    assert torch.equal(best(values), values.argmax(-1))
