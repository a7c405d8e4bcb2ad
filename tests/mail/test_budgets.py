"""Budgets in floats and bytes, per exchange and per task: what passes, what is left, and what could never pass."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal import data
from shoal.agents.worlds import worlds
from shoal.configure.reading import read
from shoal.contracts.fleets import fleet, ran, saved
from shoal.contracts.mode_case import made_of, model_of
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.letters.letter import Room, fitting, numbers
from shoal.letters.mail import ACCEPTED, OVER_BUDGET, Expected, weight
from shoal.letters.table import Table
from shoal.mail.filters import audit
from shoal.mail.post import Post
from shoal.sharing.modes import MODES
from shoal.sharing.plan import feasible, fit, plan, total
from shoal.units import limit
from tests.fleets import entries, ready, same

DIGITS = Path("digits")
LANES = [Lane(0, 0), Lane(0, 1)]
IMAGES = {"images": Expected(torch.uint8, (None, 8, 8)), "labels": Expected(torch.int32, (None,))}


def limited(modes: str, budget: int | str, **changes: Any) -> Any:
    """Two agents that are all of a small fleet."""
    made = [made_of(name) for name in modes.split(",")]
    network = {"graph": "complete", "budget": budget}
    return fleet(model_of(made), LANES, agents=2, seeds=1, sharing=tuple(made), network=network, **changes)


def spent(world: Any, posted: list[Any], unit: str, per: str) -> Counter[Any]:
    """What each edge carried in each exchange or task."""
    epochs, found = world.settings.learner.epochs, Counter[Any]()
    for mail, verdict in posted:
        if verdict != OVER_BUDGET:
            time = mail.task if per == "task" else mail.task * epochs + mail.epoch
            found[mail.sender, mail.receiver, time] += getattr(mail, unit)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("budget", ["20 kB/task", "3 kB", "900 floats/task"])
def test_every_mode_keeps_within_a_budget_and_makes_use_of_it(mode: str, budget: str) -> None:
    most = limit(budget)
    assert most is not None
    run = ran(limited(mode, budget))
    found = spent(run.world, run.posted, most.unit, most.per)
    assert 0 < max(found.values()) <= most.amount
    assert any(verdict == ACCEPTED for _, verdict in run.posted)
    for mail, verdict in run.posted:  # what was kept back did not fit
        assert verdict != OVER_BUDGET or getattr(mail, most.unit) > most.amount - max(found.values())


def test_a_budget_per_task_is_shared_by_all_modes_and_begins_anew_with_each_task() -> None:
    run = ran(limited("uniform,fedavg", "2 kB/task"))
    found = spent(run.world, run.posted, "bytes", "task")
    assert {time for *_, time in found} == {1, 2}
    assert max(found.values()) <= 2000
    last = [verdict for mail, verdict in run.posted if (mail.task, mail.epoch) == (1, 4)]
    assert set(last) == {OVER_BUDGET}  # it is used up
    assert {mail.mode for mail, verdict in run.posted if mail.task == 2 and verdict == ACCEPTED} >= {"fedavg"}


def test_a_run_ends_in_which_an_edge_has_carried_more_than_it_may() -> None:
    """Whatever has let it pass: the filters are not asked again."""
    world, stack = ready("mlp", [{"mode": "fedavg"}], network={"budget": "3 kB"})
    post = Post(world, stack, world.settings.sharing[0])
    audit(post)
    table = Table.of([post.mail(LANES[0], LANES[1], "model", {"x": torch.zeros(10**5)}, 1)])
    stack.ledger.carry("fedavg", table.links, table.weights, post.now, stack.task)
    with pytest.raises(RuntimeError, match=f"bytes where {3000 * (post.now + 1)} are allowed"):
        audit(post)


@pytest.mark.parametrize("mode", ["uniform", "fedavg"])
def test_a_run_resumed_within_a_task_knows_what_was_used_of_its_budget(mode: str) -> None:
    whole = ran(limited(mode, "1 kB/task"))
    assert OVER_BUDGET in {verdict for mail, verdict in whole.posted if mail.epoch >= 2}
    for state in [one for one in whole.states if one.epoch in (2, 3) and len(one.ledger)]:
        (stack,) = saved([whole.world], [state])
        assert (stack.ledger.uses, stack.ledger.shares) == (state.ledger.uses, state.ledger.shares)
        end = simulate(whole.world, stack)
        same(end, whole.stack)
        assert entries(end.ledger) == entries(whole.stack.ledger)


def test_the_budget_of_a_mode_per_task_is_its_own() -> None:
    modes = (made_of("uniform").model_copy(update={"budget": "1 kB/task"}), made_of("fedavg"))
    world = fleet(model_of(modes), LANES, agents=2, seeds=1, sharing=modes, network={"graph": "complete"})
    run = ran(world)
    own = spent(world, [one for one in run.posted if one[0].mode == "uniform"], "bytes", "task")
    assert 0 < max(own.values()) <= 1000
    assert {verdict for mail, verdict in run.posted if mail.mode == "fedavg"} == {ACCEPTED}


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_what_fits_is_as_much_as_there_is_room_for(count: int) -> None:
    assert numbers(IMAGES, count) == 65 * count
    assert fitting(99, IMAGES, Room(floats=65 * count + 64)) == count
    size = weight(IMAGES, count)
    assert fitting(99, IMAGES, Room(bytes=size)) == count
    assert fitting(99, IMAGES, Room(bytes=weight(IMAGES, count + 1) - 1)) == count
    assert fitting(99, IMAGES, Room(65 * count, size + 999)) == count
    assert fitting(count, IMAGES, Room()) == count
    assert fitting(99, IMAGES, Room(0, 0)) == 1  # so that a refusal is seen


def test_a_plan_knows_a_budget_per_task() -> None:
    world = limited("uniform,fedavg", "2 kB/task")
    lines = plan([world])
    assert all(0 < one.total_bytes <= 2000 * one.tasks for one in lines)
    assert total(lines) <= 2 * 2000 * 2  # links, bytes, tasks
    end = simulate(world)
    assert int(end.ledger.column("bytes")[end.ledger.crossed].sum()) <= total(lines)


# What could never pass


def built(*words: str) -> Any:
    settings = read(DIGITS, ["agents=3", "seeds=1", *words])
    return worlds(settings, data.load("digits"))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ["sharing=fedavg", "network.budget=1000"],
            [
                "`fedavg` could never",
                "4.45 kB (1,057 floats)",
                "1,000 floats per exchange",
                "network.budget to 1057 or",
            ],
        ),
        (["sharing=fedavg", "network.budget=4 kB/task"], ["4 kB per task", "network.budget to '4.452 kB/task'"]),
        (["sharing=fedavg", "sharing.budget=4 kB"], ["4 kB per exchange", "sharing.fedavg.budget to '4.452 kB'"]),
        (["sharing=recv,fedavg", "network.budget=1000"], ["mode `fedavg`"]),
        (
            ["sharing=recv", "network.budget=300 B"],
            ["its smallest question and answer are together 468 B (131 floats)"],
        ),
        (["sharing=modmod", "network.budget=5"], ["`modmod` could never"]),
    ],
)
def test_a_mode_that_could_never_send_anything_is_an_error(words: list[str], parts: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        feasible(built(*words))
    for part in (*parts, "or share by another mode"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["sharing=fedavg"],
        ["sharing=fedavg", "network.budget=1057"],
        ["sharing=fedavg", "network.budget=4452 B/task"],
        ["sharing=fedavg", "network.budget=0"],  # closed on purpose
        ["sharing=fedavg", "sharing.budget=0 B"],
        ["sharing=fedavg", "network=disconnected", "network.budget=1"],
        ["sharing=recv", "network.budget=468 B"],
    ],
)
def test_what_fits_or_is_closed_is_no_error(words: list[str]) -> None:
    feasible(built(*words))


def test_a_mode_that_fits_some_links_is_no_error_and_check_says_which() -> None:
    links = "network.edges=[{sender = 0, receiver = 1, budget = 1000}]"
    made = built("sharing=fedavg", "network=complete", links)
    feasible(made)
    tries = fit(made, made[0].fleet.sharing[0])
    assert [ends for ends, one in tries.items() if one is not None and not one.fits] == [(Lane(0, 0), Lane(0, 1))]
    assert len(tries) == 6


def test_a_smallest_mail_passes_the_budget_that_the_error_names() -> None:
    """The remedy is one."""
    for mode, budget in (("fedavg", "4.452 kB/task"), ("recv", "468 B"), ("recv", 131), ("simp", "1 kB")):
        feasible(built(f"sharing={mode}", f"network.budget={budget}"))
