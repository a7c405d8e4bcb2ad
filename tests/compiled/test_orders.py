"""The kernel's orders are numpy's, and its threads change nothing."""

from functools import partial

import numpy as np
import pytest
import torch

from shoal.agents import engine
from shoal.compiled.library import kernel
from shoal.compiled.orders import as_numpy, shuffled
from shoal.fleet.lessons import learn_epoch
from shoal.learners.batches import Images, Pool, deal, generators, picked, pool, source
from shoal.models.dropout import Source
from shoal.rng import digest
from tests.compiled.test_steps import TASK, midway
from tests.fleets import fleet

pytestmark = pytest.mark.skipif(kernel().library is None, reason=kernel().about)


def test_the_kernel_shuffles_as_numpy_does() -> None:
    assert as_numpy()
    sizes = np.array([0, 1, 2, 31, 32, 33, 352, 1025])
    bits = Source([digest(lane, "orders") for lane in range(len(sizes))])
    order, real = shuffled(bits, sizes, 1030, again=False)
    for row, (rng, size) in enumerate(zip(bits.rngs(0), sizes, strict=True)):
        assert order[row, :size].tolist() == rng.permutation(size).tolist()
        assert real[row].tolist() == [1] * size + [0] * (1030 - size)
        assert not order[row, size:].any()


@pytest.mark.parametrize("exactly", [None, 0, 7])
def test_batches_are_the_same_whoever_deals_them(exactly: int | None) -> None:
    world = fleet("mlp", agents=3)
    stack = midway(world)
    place = torch.arange(20).expand(3, -1)
    held = Pool((Images(place[..., None].float(), place, place),), [20, 3, 0], 20)
    ours = deal(held, source(stack, "batches", "test"), 8, exactly=exactly)
    theirs = deal(held, generators(stack, "batches", "test"), 8, exactly=exactly)
    assert torch.equal(ours.index, theirs.index)
    assert torch.equal(ours.weight, theirs.weight)


def test_a_pool_copies_nothing_and_shows_what_is_written_later() -> None:
    world = fleet("mlp", agents=2)
    stack = midway(world)
    held = pool(world, stack, TASK, past=True)
    own, memory = held.parts
    assert own.x.data_ptr() == world.inputs.data_ptr()
    assert memory.x.data_ptr() == stack.of("memory")["x"].data_ptr()
    stack.of("memory")["x"][:] = 3
    assert (held.parts[1].x == 3).all()
    rows = world.train.rows[:, TASK]
    first = picked(held, torch.zeros(2, 1, dtype=torch.int64))
    assert torch.equal(first.x[:, 0], world.inputs[rows[:, 0]])


def told(asked: list[int], wanted: int) -> int:
    """How many threads there are; they are noted."""
    asked.append(engine.hands(wanted))
    return asked[-1]


@pytest.mark.parametrize("model", ["mlp", "modular-mlp"])
def test_lanes_learn_the_same_by_any_number_of_threads_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    made = []
    for count in (1, 2, 5):
        world = fleet(model, agents=3, machine={"threads": count})
        stack, asked = midway(world), list[int]()
        monkeypatch.setattr("shoal.learners.orders.hands", partial(told, asked))
        learn_epoch([(world, stack)], 0)
        assert asked == [count]
        made.append(stack.params)
    for name, tensor in made[0].items():
        assert all(torch.equal(tensor, other[name]) for other in made[1:]), name


def test_a_thread_of_a_crew_works_alone() -> None:
    assert engine.hands(4) == 4
    assert engine.crew([4, 4], engine.hands) == [1, 1]
