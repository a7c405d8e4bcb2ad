"""Acceptance: images and modules that do not help on the receiver's own validation data are not used."""

from typing import Any

import numpy as np
import pytest
import torch

from shoal.agents import received
from shoal.contracts.fleets import difference, ran, saved
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED
from shoal.sharing.accept import NO_HELP
from tests.fleets import FEW, fleet

TASKS = {**FEW, "count": 4, "train": 20, "validation": 20}


def taken(does: str, mode: dict[str, Any]) -> tuple[float, float]:
    """Which share of the images of honest agents and of a liar is accepted."""
    run = ran(fleet("mlp", agents=4, tasks=TASKS, sharing=[mode], faulty={"agents": [3], "does": does}))
    said = [(mail.sender.agent == 3, verdict) for mail, verdict in run.posted if mail.kind != "question"]
    assert {verdict for _, verdict in said} <= {ACCEPTED, NO_HELP}
    honest, liars = (np.mean([verdict == ACCEPTED for lies, verdict in said if lies == one]) for one in (False, True))
    return float(honest), float(liars)


@pytest.mark.parametrize("mode", ["uniform", "recv"])
def test_images_with_false_labels_are_taken_less_often(mode: str) -> None:
    own = {"images": 20} if mode == "uniform" else {"queries": 10}
    honest, liar = taken("label-flip", {"mode": mode, "every": 2, **own, "accept": "helps"})
    assert honest > 0.5
    assert liar < honest


def test_what_does_not_help_is_as_if_it_had_never_come_and_the_run_resumes() -> None:
    given: dict[str, Any] = {
        "agents": 3,
        "tasks": TASKS,
        "sharing": [{"mode": "uniform", "every": 2, "accept": "helps"}],
    }
    run = ran(fleet("mlp", **given))
    plain = ran(fleet("mlp", **{**given, "sharing": [{"mode": "uniform", "every": 2}]}))
    assert NO_HELP in run.stack.ledger.column("verdict").tolist()
    assert difference(run.stack, plain.stack)
    (stack,) = saved([run.world], [run.states[len(run.states) // 2]])
    assert not difference(simulate(run.world, stack), run.stack)


def test_a_module_that_is_behind_a_fresh_one_is_not_used() -> None:
    sharing = {"mode": "modmod", "min_similarity": -1.0, "accept": "helps", "tryout": 3}
    learner = {"epochs": 4, "accept": -1.0}  # every agent keeps its modules, so that there is something to offer
    run = ran(fleet("modular-mlp", agents=4, seeds=2, tasks=TASKS, learner=learner, sharing=[sharing]))
    offers = run.stack.of("modmod")["offers"]
    told = offers[~offers[..., 0].isnan()]  # sender, source, score, accuracy, chosen
    assert set(told[:, 4].tolist()) == {0.0, 1.0}
    assert not told[told[:, 3].isnan()][:, 4].any()  # nothing is used that was not tried
    behind = 0
    for row, tasks in enumerate(offers):
        for task, several in enumerate(tasks):
            origin = run.stack.of("modular")["origin"][row, task].tolist()
            chosen = several[several[:, 4] == 1]
            assert origin == ([int(chosen[0, 0]), int(chosen[0, 1])] if len(chosen) else [-1, -1])
            behind += len(several[several[:, 4] == 0]) > 0 and not len(chosen)
    assert behind  # some agent found all that was offered behind a fresh module


@pytest.mark.parametrize("network", [{}, {"budget": 100_000}], ids=["bundled", "one by one"])
def test_own_validation_images_that_come_back_can_be_left_out(network: dict[str, Any]) -> None:
    """Every agent splits for itself, so that some validate on what others train on."""

    def returned(kept: str) -> tuple[int, int]:
        own = {"mode": "recv", "every": 2, "queries": 20, "memory": 200, "own_validation": kept}
        tasks = {**TASKS, "draw": "agent"}
        run = ran(fleet("mlp", agents=4, tasks=tasks, network=network, sharing=[own]))
        state, split, found = run.stack.of(received.OWNER), run.world.validation, 0
        for row in range(len(run.world.lanes)):
            sizes = split.sizes[row].tolist()
            checked = torch.cat([run.world.inputs[split.rows[row, task, :size]] for task, size in enumerate(sizes)])
            there = torch.cat([state["x"][row, task, :fill] for task, fill in enumerate(state["fill"][row].tolist())])
            found += int((there[:, None] == checked).all(2).any(1).sum())
        return found, int(state["fill"].sum())

    (leaked, every), (none, fewer) = returned("keep"), returned("drop")
    assert leaked > 0
    assert none == 0
    assert every - leaked <= fewer < every  # other nets ask for other images, so that not only these differ
