"""Rules that make one model of several, against numbers by hand."""

import numpy as np
import pytest
import torch

from shoal.compiled.library import kernel
from shoal.contracts.fleets import difference
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.sharing.combine import RULES, Heard, averaged
from shoal.sharing.contract import Sharing
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.fedcurv import FedCurv
from shoal.sharing.fedfish import FedFish
from shoal.sharing.fedprox import FedProx
from tests.fleets import FEW
from tests.fleets import fleet as small

MODELS = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0], [3.0, 3.0], [100.0, -100.0]])


def of(
    name: str, models: np.ndarray = MODELS, own: int = 0, tolerates: int = 1, radius: float | None = None
) -> list[float]:
    found: list[float] = RULES.find(name).combine(Heard(models, own, tolerates, radius)).tolist()
    return found


def test_by_hand() -> None:
    assert of("mean") == [21.2, -18.8]
    assert of("median") == [2, 1]
    assert of("median", MODELS[:4]) == [1.5, 1.5]  # the mean of the two in the middle
    assert of("trimmed") == [2, 1]  # of 1, 2, 3 and of 0, 1, 2
    assert of("trimmed", tolerates=9) == of("median")  # as many as leave one
    assert of("trimmed", tolerates=0) == of("mean")


def test_krum_takes_the_model_with_the_nearest_neighbours() -> None:
    # Of five with one liar, the n - f - 2 = 2 nearest count: (0, 0) 5 + 5, (1, 2) 2 + 5, (2, 1) 2 + 5, (3, 3) 5 + 5.
    assert of("krum") == [1.5, 1.5]  # two tie
    assert of("krum", MODELS[[0, 1, 3, 4]]) == [1, 2]  # four bear none (n > 2 f + 2), and two others count: 5 + 5
    assert of("krum", MODELS[[0, 1, 4]]) == [0.5, 1]  # of three, the two nearest have each other
    near = np.array([[0.0], [1.0], [1.5], [2.0], [50.0]])
    assert of("krum", near) == [1.5]  # 0.25 + 0.25; 1.0 has 0.25 + 1
    assert of("multi-krum", near) == [pytest.approx(4.5 / 4)]  # all but the farthest
    assert of("multi-krum", near[:2]) == of("krum", near[:2]) == [0.5]


def test_the_geometric_median_of_a_line_is_its_middle() -> None:
    assert of("geometric", np.array([[0.0], [0.0], [0.0], [0.0], [1e9]])) == [
        pytest.approx(0.025)
    ]  # distances below 0.1 count as 0.1
    corner = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
    assert of("geometric", corner) == pytest.approx([2, 2])


def test_clipping_goes_no_farther_than_a_radius_to_anybody() -> None:
    models = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.5]])
    assert of("clipped", models, radius=1.0) == pytest.approx([0.2, (0.8 + 0.5) / 3])
    assert of("clipped", models, radius=100.0) == pytest.approx(of("mean", models))
    assert of("clipped", models) == pytest.approx([0.1, (0.4 + 0.5) / 3])  # the second farthest is 0.5 away
    assert of("clipped", models, own=1, radius=1e-9) == pytest.approx([3, 4])


@pytest.mark.parametrize("mode", [FedAvg, FedProx, FedCurv, FedFish])
def test_every_model_mode_combines_by_its_rule(mode: type[Sharing]) -> None:
    first, second = (
        simulate(small("mlp", agents=4, tasks=FEW, sharing=[mode.model_validate({**mode.example, "combine": name})]))
        for name in ("mean", "median")
    )
    assert difference(first, second, lambda name: not name.startswith("params/"))


def test_a_rule_that_is_none_is_said_in_a_sentence() -> None:
    with pytest.raises(SettingsError, match=r"there is no rule `medain`; did you mean `median`\? allowed: mean"):
        small("mlp", sharing=[{"mode": "fedavg", "combine": "medain"}])
    with pytest.raises(SettingsError, match=r"`sharing\.fedavg\.tolerates` cannot be -1"):
        small("mlp", sharing=[{"mode": "fedavg", "tolerates": -1}])
    with pytest.raises(SettingsError, match=r"`sharing\.fedavg\.radius` cannot be 0"):
        small("mlp", sharing=[{"mode": "fedavg", "radius": 0.0}])


@pytest.mark.skipif(kernel().library is None, reason="there is no C compiler here")
def test_the_kernel_averages_as_torch_does() -> None:
    drawn = np.random.default_rng(0)
    table = torch.from_numpy(drawn.normal(size=(9, 5, 300)).astype(np.float32))
    sizes = drawn.integers(1, 8, 12)
    sets = np.stack([drawn.permutation(9)[:7] for _ in sizes])
    parts = table[:4], table.repeat(1, 2, 1)[4:, :5]  # rows of the second do not lie next to each other
    found = averaged(parts, sets, sizes, compiled=True)
    assert torch.equal(found, averaged(parts, sets, sizes))
    assert torch.equal(found[0], (table[sets[0, : sizes[0]]].double().sum(0) / sizes[0]).float())
