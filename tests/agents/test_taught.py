"""Agents that learn on, alone: what they come to, what they forget, and what is said of wrong uses."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shoal
from shoal.agents.stack import RECORD
from shoal.errors import SettingsError, UserError
from shoal.learners.table import LEARNERS
from shoal.models.table import BUILT_IN
from tests.agents.test_agents import Small, data, table
from tests.agents.test_going import METHODS, TASKS, rows, some
from tests.command import call

NET = {"width": 8, "depth": 2}
WIDE = {"width": 32, "depth": 2, "dropout": 0.0}
LEARNER = {"epochs": 4, "batch": 8, "memory": 4}


def law(numeric: bool = False, **said: Any) -> None:
    """What an agent learns alone is what it learns in a fleet that shares nothing and goes on; or a sentence."""
    every = rows(numeric)
    last = every["task"] == TASKS - 1
    mine = last & (every["agent"] == "b")
    said = {"model": "mlp", "net": NET, **said, "learner": {**LEARNER, **said.get("learner", {})}}
    try:
        before = shoal.Fleet(some(every, ~last), **said).run()
        after = before.continue_with(some(every, last)).agent("b")
        agent = before.agent("b").learn(every["x"][mine], every["y"][mine])
    except UserError as error:
        words = ("cannot go on", "does not keep")
        if not isinstance(error, SettingsError) and not any(one in str(error) for one in words):
            raise
        pytest.skip(str(error))
    assert agent.tasks == after.tasks
    assert agent.told.tasks == after.told.tasks
    assert agent.state.keys() == after.state.keys()
    for name, tensor in agent.state.items():
        ours, theirs = (one.double().nan_to_num(-7) for one in (tensor, after.state[name]))
        # Which rows of what data it remembers, and how it does on test rows of earlier tasks, only the fleet can say.
        if name != "memory/rows" and not name.startswith(RECORD):
            assert torch.equal(ours, theirs), name


@pytest.mark.parametrize(
    "said",
    [{}, {"model": "modular-mlp"}, {"model": Small}, {"tasks": {"heads": "grow"}}, {"tasks": {"heads": "one"}},
     {"numeric": True}, {"learner": {"method": "ewc"}}],
    ids=["replay", "modular", "a net of one's own", "grow", "one", "numbers", "ewc"],
)  # fmt: skip
def test_an_agent_learns_alone_what_it_learns_in_a_fleet_that_shares_nothing(said: dict[str, Any]) -> None:
    law(**said)


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(set(LEARNERS)))
def test_every_learner_learns_alone_or_says_why_not(method: str) -> None:
    law(model=METHODS.get(method, "mlp"), learner={"method": method})


@pytest.mark.slow
@pytest.mark.parametrize("model", [one for one in BUILT_IN if not one.endswith("cnn")])
def test_every_model_learns_alone_or_says_why_not(model: str) -> None:
    law(model=model)


X = np.random.default_rng(1).normal(3, 10, (160, 4))
FIRST, SECOND = X[:, 0] > 3, X[:, 1] > 3


@cache
def run(method: str = "replay", memory: int = 32, heads: str = "task") -> shoal.Result:
    """One agent that knows the first task."""
    learner = {"method": method, "epochs": 40, "batch": 16, "memory": memory, "rate": 0.01}
    one = shoal.Data.from_arrays(X, FIRST, task=[0] * len(X))
    return shoal.Fleet(one, agents=1, model="mlp", net=WIDE, learner=learner, tasks={"heads": heads}).run()


def agent_of(**said: Any) -> shoal.Agent:
    return run(**said).agents[0]


def test_it_learns_a_task_and_forgets_as_its_learner_does() -> None:
    kept, lost = agent_of(memory=128), agent_of(method="none")
    assert min(kept.score(X, FIRST), lost.score(X, FIRST)) > 0.9
    assert kept.learn(X, SECOND).score(X, SECOND) > 0.9
    assert lost.learn(X, SECOND).score(X, SECOND) > 0.9
    assert kept.score(X, FIRST, task=1) > max(0.85, lost.score(X, FIRST, task=1))
    assert [task.rows for task in kept.tasks] == [kept.tasks[0].rows] * 2
    assert set(kept.history["task"]) == {1, 2}
    kept, lost = (agent_of(memory=128, heads="one", method=one).learn(X, ~FIRST) for one in ("replay", "none"))
    assert lost.score(X, FIRST) < 0.15 < kept.score(X, FIRST) - 0.1


def test_what_is_taken_out_again_has_not_learned() -> None:
    agent = agent_of()
    before = agent.weights["module.weight"]
    agent.learn(X, SECOND)
    assert not torch.equal(agent.weights["module.weight"], before)
    assert len(run().agents[0].tasks) == 1
    assert torch.equal(run().agent(0).weights["module.weight"], before)


def test_more_rows_of_the_last_task_are_no_new_task() -> None:
    agent = agent_of().learn(X[:20], SECOND[:20])
    before, count = agent.score(X, SECOND), agent.tasks[1].rows
    agent.learn(X[20:], SECOND[20:], more=True)
    assert len(agent.tasks) == 2
    assert agent.tasks[1].rows > count
    assert agent.score(X, SECOND) > max(before, 0.9)
    first = agent_of().learn(X, FIRST, more=True)
    assert len(first.tasks) == 1
    assert first.score(X, FIRST) > 0.9


def test_a_saved_agent_learns_as_the_one_that_was_saved(tmp_path: Path) -> None:
    agent = agent_of()
    again = shoal.Agent.load(agent.save(tmp_path / "agent.safetensors", memory=True))
    for more in (False, True):
        agent.learn(X, SECOND, more)
        again.learn(X, SECOND, more)
        assert agent.state.keys() == again.state.keys()
        assert all(torch.equal(one.nan_to_num(-7), again.state[name].nan_to_num(-7))
                   for name, one in agent.state.items())  # fmt: skip
    third = shoal.Agent.load(again.save(tmp_path / "again.safetensors", memory=True))
    assert third.predict(X).tolist() == agent.predict(X).tolist()
    assert third.tasks == agent.tasks


@pytest.mark.parametrize("heads", ["task", "grow", "one"])
def test_classes_that_are_new_come_by_their_names(heads: str, tmp_path: Path) -> None:
    before = shoal.Fleet(
        data(), model="mlp", net=WIDE, tasks={"heads": heads}, learner={"epochs": 40, "memory": 1, "rate": 0.01}
    ).run()
    agent, frame = before.agent("north"), table()
    said = np.where(frame["heat"].to_numpy() > 300, "above", "hot")
    agent.learn(frame, said)
    assert {"above", "hot"} <= set(agent.classes())
    assert agent.score(frame, said) > 0.7
    again = shoal.Agent.load(agent.save(tmp_path / "agent.safetensors"))
    assert again.predict(frame).tolist() == agent.predict(frame).tolist()


def test_an_agent_of_a_fleet_that_dealt_out_its_tasks_learns_too() -> None:
    tasks = {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    fleet = shoal.Fleet("digits", agents=2, tasks=tasks, sharing="modmod", learner=LEARNER)
    agent, x = fleet.run().agent(1), np.random.default_rng(0).integers(0, 16, (40, 8, 8)).astype(np.uint8)
    agent.learn(x, np.arange(40) % 2)
    assert [len(task.classes) for task in agent.tasks] == [2, 2, 2, 2]
    assert agent.predict(x).shape == (40,)


def test_an_agent_keeps_what_others_have_sent(tmp_path: Path) -> None:
    every = rows()
    mode = {"mode": "simp", "every": 1}
    fleet = shoal.Fleet(some(every, every["task"] < TASKS), model="mlp", net=NET, learner=LEARNER, sharing=[mode])
    agent = fleet.run().agent("b")
    before = agent.of("received")
    assert before["fill"].sum() > 0
    agent.learn(every["x"], every["y"])
    assert all(torch.equal(one[:TASKS], before[name]) for name, one in agent.of("received").items())
    assert len(agent.tasks) == len(agent.of("received")["fill"]) == TASKS + 1


def test_an_agent_with_room_for_spare_modules_is_saved_and_learns(tmp_path: Path) -> None:
    every = rows()
    mode = {"mode": "modmod", "extra_random": True}
    fleet = shoal.Fleet(
        some(every, every["task"] < TASKS), model="modular-mlp", net=NET, learner=LEARNER, sharing=[mode]
    )
    agent = shoal.Agent.load(fleet.run().agent("b").save(tmp_path / "agent.safetensors", memory=True))
    assert len(agent.learn(every["x"], every["y"]).tasks) == TASKS + 1


def without_memory(tmp: Path) -> shoal.Agent:
    return shoal.Agent.load(agent_of().save(tmp / "agent.safetensors"))


def permuted() -> shoal.Agent:
    tasks = {"scenario": "permuted", "count": 2, "train": 8, "validation": 4, "initial": 1, "common": False}
    return shoal.Fleet("digits", agents=1, tasks=tasks, learner={"epochs": 1, "memory": 2}).run().agents[0]


def together() -> shoal.Agent:
    return shoal.Fleet(data(), tasks={"initial": 2}, model="mlp", net=NET, learner={"epochs": 1}).run().agents[0]


def numeric() -> shoal.Agent:
    return shoal.Fleet((X, X[:, 0] * 2.5), model="mlp", net=NET, learner={"epochs": 1}).run().agents[0]


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "other columns": (lambda _: agent_of().learn(X[:, :3], FIRST), "shape"),
    "labels too few": (lambda _: agent_of().learn(X, FIRST[:3]), "160 rows"),
    "one class": (lambda _: agent_of().learn(X, [True] * len(X)), "from two to"),
    "too many classes": (lambda _: agent_of().learn(X, np.arange(len(X)) % 3), "tasks.classes"),
    "numbers for classes": (lambda _: agent_of().learn(X, X[:, 0]), "fraction"),
    "NaN for classes": (lambda _: agent_of().learn(X, np.full(len(X), np.nan)), "y"),
    "nothing for classes": (lambda _: agent_of().learn(X, [None] * len(X)), "no value"),
    "NaN in rows": (lambda _: agent_of().learn(X * np.nan, FIRST), "not numbers"),
    "no rows": (lambda _: agent_of().learn(X[:0], FIRST[:0]), "no rows"),
    "one row": (lambda _: agent_of(heads="grow").learn(X[:1], FIRST[:1]), "none is left"),
    "words for numbers": (lambda _: numeric().learn(X, ["up"] * len(X)), "must be numbers"),
    "without its memory": (lambda tmp: without_memory(tmp).learn(X, FIRST), "memory=True"),
    "views": (lambda _: permuted().learn(np.zeros((9, 8, 8)), np.arange(9) % 2), "of the same rows"),
    "initial tasks": (lambda _: together().learn(table(), table()["state"], more=True), "together"),
    "joint": (lambda _: agent_of(method="joint").learn(X, SECOND), "does not keep"),
    "a reservoir": (lambda _: agent_of(method="er").learn(X, SECOND), "more=True"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_use_is_answered_by_one_sentence(what: str, tmp_path: Path) -> None:
    use, words = WRONG[what]
    with pytest.raises(UserError) as error:
        use(tmp_path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_reservoir_takes_more_rows_of_its_last_task() -> None:
    assert agent_of(method="er").learn(X, FIRST, more=True).score(X, FIRST) > 0.9


def test_an_agent_that_diverges_stays_as_it_was() -> None:
    agent = agent_of()
    before = agent.predict(X).tolist()
    with pytest.raises(UserError, match="stays as it was"):
        agent.learn(X * 1e30, SECOND)
    assert len(agent.tasks) == 1
    assert agent.predict(X).tolist() == before


def test_an_agent_that_diverged_says_so_when_it_is_taken_out(tmp_path: Path) -> None:
    site = np.array(["calm", "wild"])[np.arange(len(X)) % 2]
    rows_ = np.where((site == "wild")[:, None] & (np.arange(len(X)) > 80)[:, None], X * 1e30, X)
    week = np.arange(len(X)) // 80
    both = shoal.Data.from_arrays(rows_, FIRST, agent=site, task=week)
    result = shoal.Fleet(both, model="mlp", net=NET, learner=LEARNER).run(out=tmp_path / "run")
    assert "diverged in task 2" in call("export", str(tmp_path / "run"), "--agent", "wild").err
    assert result.agent("calm").ended == ""
    with pytest.warns(UserWarning, match="diverged in task 2"):
        agent = result.agent("wild")
    assert "diverged" in repr(agent)
    again = shoal.Agent.load(agent.save(tmp_path / "wild.safetensors", memory=True))
    for use in (agent.predict, agent.probabilities, again.predict, lambda x: again.learn(x, FIRST),
                lambda x: again.module(), lambda x: again.export(tmp_path / "a.safetensors")):  # fmt: skip
        with pytest.raises(UserError, match="diverged"):
            use(X)
