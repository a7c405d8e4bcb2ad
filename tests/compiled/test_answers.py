"""What the kernel answers is what torch answers, up to rounding, image by image."""

from typing import Any

import pytest
import torch

from shoal.agents.evaluate import Trained, accuracy, nets
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.compiled.library import kernel as built
from shoal.models.params import MODULE
from tests.compiled.test_steps import MODELS, ODD, TASK, midway, with_kernel
from tests.fleets import fleet

pytestmark = pytest.mark.skipif(built().library is None, reason=built().about)

LANE = 1  # it lacks a module


def both(model: str, **changes: Any) -> list[tuple[World, Stack]]:
    """The same nets, read by torch and by the kernel."""
    world = fleet(model, agents=3, **changes)
    found = [with_kernel(world, name) for name in ("torch", "compiled")]
    return [(one, midway(one)) for one in found]


def net(made: tuple[World, Stack]) -> Trained:
    return nets(*made)[LANE]


@pytest.mark.parametrize("task", [0, TASK])
@pytest.mark.parametrize("width", [{}, ODD], ids=["whole vectors", "odd"])
@pytest.mark.parametrize("model", MODELS)
def test_logits_and_features_are_torchs(model: str, width: dict[str, int], task: int) -> None:
    slow, quick = (net(made) for made in both(model, net=width))
    rows = slow.world.test.rows[LANE, task, : slow.world.test.sizes[LANE, task]]
    x = slow.world.inputs[rows]
    torch.testing.assert_close(quick.logits(rows, task), slow.logits(rows, task), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(quick.read(x, task), slow.read(x, task), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(quick.features(x, task), slow.features(x, task), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_accuracies_are_torchs(model: str) -> None:
    slow, quick = (accuracy(*made, "test", range(TASK + 1)) for made in both(model))
    assert slow.isfinite().all()
    torch.testing.assert_close(quick, slow, rtol=0, atol=0.01)  # an image on the border may fall to either side


@pytest.mark.parametrize("model", MODELS)
def test_an_image_is_answered_without_regard_to_others(model: str) -> None:
    quick = net(both(model)[1])
    rows = torch.randint(len(quick.world.inputs), (150,), generator=torch.Generator().manual_seed(0))
    together = quick.logits(rows, TASK)
    alone = torch.cat([quick.logits(row, TASK) for row in rows.split(1)])
    assert together.equal(alone)
    assert together.flip(0).equal(quick.logits(rows.flip(0), TASK))
    assert len(quick.logits(rows[:0], TASK)) == 0


@pytest.mark.parametrize("model", MODELS)
def test_what_is_no_number_stays_none(model: str) -> None:
    world, stack = both(model)[1]
    stack.params[MODULE[1]][LANE, 0, 0] = torch.nan
    broken, other = nets(world, stack)[LANE], nets(world, stack)[0]
    rows = torch.arange(5)
    assert broken.logits(rows, TASK).isnan().all()
    assert other.logits(rows, TASK).isfinite().all()
