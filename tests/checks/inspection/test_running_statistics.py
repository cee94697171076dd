"""doctor: running statistics that are far from those of what a batch norm is given."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normlab import doctor

G = torch.Generator().manual_seed(0)
DATA = torch.randn(64, 3, 8, 8, generator=G)


def trained() -> nn.Sequential:
    """Three batch norms whose running statistics are those of the data."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for size, following in ((3, 8), (8, 8), (8, 6)):
        conv = nn.Conv2d(size, following, 3, padding=1)
        layers += [conv, nn.BatchNorm2d(following, momentum=1.0), nn.ReLU()]
    model = nn.Sequential(*layers)
    model(DATA)
    for norm in model[1::3]:
        norm.momentum = 0.1
    return model.eval()


def averaged_without_buffers() -> nn.Module:
    model = trained()
    average = copy.deepcopy(model)
    for norm in average[1::3]:
        norm.running_mean.fill_(40.0)  # of an early state, whose weights were others
    return average


def with_another(change: Callable[[nn.Sequential], object]) -> nn.Module:
    model = trained()
    with torch.no_grad():
        change(model)
    return model


def surgery(model: nn.Sequential) -> None:
    model[6] = nn.Conv2d(8, 6, 3, padding=1)
    model[6].weight.mul_(200.0)


WRONG = {
    "an average without buffers": (averaged_without_buffers, "1", "running deviations from"),
    "a bias": (lambda: with_another(lambda m: m[3].bias.add_(20.0)), "4", "1 norms before it fit"),
    "a matrix": (lambda: with_another(surgery), "7", "2 norms before it fit"),
    "a weight": (lambda: with_another(lambda m: m[1].weight.mul_(90.0)), "4", "1 norms before"),
    "the variance": (
        lambda: with_another(lambda m: m[4].running_var.mul_(1e-4)),
        "4",
        "standard deviation is",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_first_norm_whose_statistics_are_others_is_named(name):
    make, module, words = WRONG[name]
    (found,) = doctor(make(), DATA[:4], ignore=["cancelled_bias"]).findings
    assert (found.rule, found.severity, found.modules) == ("other_statistics", "note", (module,))
    assert words in found.message, found.message


def test_how_far_they_are_is_said():
    model = trained()
    h = model[:3](DATA[:4])
    norm = model[4]
    with torch.no_grad():
        model[3].bias.add_(32 * norm.running_var.sqrt())
        away = (model[3](h).mean((0, 2, 3)) - norm.running_mean).abs() / norm.running_var.sqrt()
    (found,) = doctor(model, DATA[:4], ignore=["cancelled_bias"]).findings
    assert 31 < float(away.median()) < 33
    assert f"mean is {float(away.median()):.0f} running deviations" in found.message


# what people pass in place of data
EXAMPLES: dict[str, Tensor] = {
    "data": DATA[:4],
    "one sample": DATA[:1],
    "noise": torch.randn(2, 3, 8, 8, generator=G),
    "uniform": torch.rand(2, 3, 8, 8, generator=G),
    "zeros": torch.zeros(1, 3, 8, 8),
    "ones": torch.ones(1, 3, 8, 8),
    "another size": torch.randn(1, 3, 16, 12, generator=G),
    "three times as large": 3 * DATA[:4],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_that_is_no_data_accuses_nobody(name):
    assert doctor(trained(), EXAMPLES[name], ignore=["cancelled_bias"]).findings == []


def test_pixels_that_were_not_standardized_are_said_to_be_a_possible_reason():
    pixels = 255 * torch.rand(2, 3, 8, 8, generator=G)
    (found,) = doctor(trained(), pixels, ignore=["cancelled_bias"]).findings
    assert found.modules == ("1",) and "example may not be scaled as in training" in found.message


@pytest.mark.parametrize("training", [True, False])
def test_fresh_statistics_and_training_are_others_rules(training):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).train(training)
    x = 100 + torch.randn(8, 4, generator=G)
    rules = [f.rule for f in doctor(model, x, ignore=["cancelled_bias"]).findings]
    assert rules == ([] if training else ["stale_statistics"])
