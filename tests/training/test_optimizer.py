"""What the optimizer remembers survives a checkpoint to the bit, and the means are the formulas."""

import pytest
import torch
from torch import nn

from heedful import config
from heedful.errors import HeedfulError
from heedful.training.optimizer import (
    OPTIMIZERS,
    gradient_norm,
    load_optimizer_state,
    make_optimizer,
    optimizer_state,
    scale_gradients_,
    set_learning_rate,
)
from heedful.training.weights import EmaWeights, average_weights, copy_tensors_, named_weights


class Tied(nn.Module):
    """A matrix under two names, a bias, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.second = nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight


def model():
    torch.manual_seed(3)
    return Tied()


def step(made, optimizer, number):
    """One step with gradients that the number decides."""
    draw = torch.Generator().manual_seed(number)
    for weight in made.parameters():
        weight.grad = torch.randn(weight.shape, generator=draw)
    set_learning_rate(optimizer, 1e-2 / number)
    optimizer.step()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_next_step_after_a_checkpoint_is_the_same_to_the_bit(kind):
    chosen = config.TrainSettings(optimizer=kind, weight_decay=0.1)
    one, other = model(), model()
    first = make_optimizer(chosen, one)
    for number in (1, 2, 3):
        step(one, first, number)
    tensors, steps = optimizer_state(first, one)
    assert steps == 3
    assert tensors.keys() == {f"{name}.{key}" for name in named_weights(one) for key in ("exp_avg", "exp_avg_sq")}

    second = make_optimizer(chosen, other)
    step(other, second, 9)  # something else, to be forgotten
    copy_tensors_(named_weights(other), named_weights(one), "test")
    load_optimizer_state(second, other, {name: tensor.clone() for name, tensor in tensors.items()}, steps, "test")
    step(one, first, 4)
    step(other, second, 4)
    for name, weight in named_weights(one).items():
        assert weight.equal(named_weights(other)[name]), name


def test_an_optimizer_that_took_no_step_has_nothing_to_remember():
    made = model()
    optimizer = make_optimizer(config.TrainSettings(), made)
    assert optimizer_state(optimizer, made) == ({}, 0)
    step(made, optimizer, 1)
    load_optimizer_state(optimizer, made, {}, 0, "test")
    assert optimizer_state(optimizer, made) == ({}, 0)


def test_matrices_decay_and_vectors_do_not():
    made = model()
    before = {name: weight.clone() for name, weight in named_weights(made).items()}
    optimizer = make_optimizer(config.TrainSettings(optimizer="adamw", weight_decay=0.5), made)
    for weight in made.parameters():
        weight.grad = torch.zeros_like(weight)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    for name, weight in named_weights(made).items():
        assert torch.allclose(weight, before[name] * (0.95 if weight.ndim == 2 else 1.0)), name


def test_a_tied_weight_has_one_name():
    assert list(named_weights(model())) == ["first.weight", "first.bias", "norm.weight", "norm.bias"]


def test_weights_of_another_model_are_refused_by_name():
    made = named_weights(model())
    with pytest.raises(HeedfulError, match=r"run/step-1: these weights belong to another model; .* norm\.bias"):
        copy_tensors_(made, {name: weight for name, weight in made.items() if name != "norm.bias"}, "run/step-1")
    with pytest.raises(HeedfulError, match=r"first.bias is \(7,\), but the model needs \(6,\)"):
        copy_tensors_(made, made | {"first.bias": torch.zeros(7)}, "run/step-1")


def test_the_running_mean_is_the_formula():
    made = model()
    mean = EmaWeights(made, 0.5)
    expected = {name: weight.double() for name, weight in named_weights(made).items()}
    for number in range(1, 12):
        with torch.no_grad():
            for weight in made.parameters():
                weight += 0.1 * number
        mean.update(named_weights(made).values(), number)
        decay = min(0.5, (1 + number) / (10 + number))
        expected = {
            name: decay * old + (1 - decay) * named_weights(made)[name].double() for name, old in expected.items()
        }
    for name, weight in expected.items():
        assert torch.allclose(mean.tensors[name].double(), weight, rtol=1e-5), name


def test_the_average_of_checkpoints_is_their_mean():
    every = [{"w": torch.tensor([1.0, 1e8])}, {"w": torch.tensor([2.0, 1.0])}, {"w": torch.tensor([4.5, -1e8])}]
    assert average_weights(iter(every))["w"].tolist() == pytest.approx(
        [2.5, 1 / 3], rel=1e-6
    )  # in single precision: 0.0


def test_the_norm_is_of_all_gradients_together():
    gradients = [torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])]
    assert gradient_norm(gradients) == 5.0
    scale_gradients_(gradients, 0.5)
    assert gradient_norm(gradients) == 2.5
