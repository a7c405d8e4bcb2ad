"""Anchors: agents say what the rows of a task are like, and modules go only where rows are alike."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import shoal
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError, UserError
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, Mail
from shoal.mail.post import Post
from shoal.sharing.anchors import SLICES, anchor_of, directions, distance, own_anchor
from shoal.sharing.modmod import ModMod
from shoal.sharing.scores import SCORES, Pair

TASKS: dict[str, Any] = {"count": 6, "classes": 2, "train": 12, "validation": 6, "initial": 1}
LEARNER: dict[str, Any] = {"epochs": 3, "memory": 4, "accept": -1.0}


def ran(
    sharing: Any = "anchors", sent: list[Mail] | None = None, data: Any = "digits", **more: Any
) -> tuple[World, Stack]:
    mode = {"mode": "modmod", "metric": sharing} if isinstance(sharing, str) else sharing
    said: dict[str, Any] = {"agents": 4, "tasks": TASKS, "learner": LEARNER, "model": "modular-mlp", **more}
    (world,) = shoal.prepare(shoal.Fleet(data, sharing=[mode], **said).settings)
    return world, shoal.simulate(world, observe=lambda mail, _: sent.append(mail) if sent is not None else None)


def test_the_distance_is_that_of_normal_distributions_along_each_direction() -> None:
    one = torch.tensor([[0.0, 1.0], [1.0, 2.0]])  # means, spreads
    other = torch.tensor([[3.0, 1.0], [1.0, 4.0]])
    # (9 + 0) and (0 + 4), the mean of which is 6.5; they vary by (1 + 1) / 2 and (4 + 16) / 2, on the mean 5.5.
    assert distance(one, other) == pytest.approx(6.5 / 5.5)
    assert distance(one, one) == 0
    assert SCORES["anchors"].score(Pair(anchor=one, own_anchor=other)) == pytest.approx(-6.5 / 5.5)


def test_directions_have_length_one_and_are_those_of_the_seed() -> None:
    assert np.allclose(np.linalg.norm(directions(64, 0), axis=0), 1)
    assert np.array_equal(directions(64, 0), directions(64, 0))
    assert not np.array_equal(directions(64, 0), directions(64, 1))


def test_an_anchor_is_the_mean_and_spread_of_a_tasks_rows_by_whatever_label() -> None:
    world, _ = ran()
    rows = world.bank.images[world.streams[2][3].train].reshape(-1, 64) / world.bank.peak
    along = rows.astype(np.float64) @ directions(64, 0)
    found = anchor_of(world, 2, 3)
    assert found["mean"].shape == (1, SLICES)
    assert np.allclose(found["mean"][0], along.mean(0), atol=1e-5)
    assert np.allclose(found["spread"][0], along.std(0), atol=1e-5)


def test_a_question_is_an_anchor_and_costs_hundreds_of_numbers_whatever_the_rows() -> None:
    bytes_of = {}
    for metric in ("anchors", "leep"):
        sent: list[Mail] = []
        _, stack = ran({"mode": "modmod", "metric": metric, "examples": 15}, sent, tasks={**TASKS, "validation": 15})
        assert {str(one) for one in stack.ledger.column("verdict")} == {ACCEPTED}
        questions = [mail for mail in sent if mail.kind == "question"]
        bytes_of[metric] = max(mail.bytes for mail in questions)
        if metric == "anchors":
            assert sum(one.numel() for one in questions[0].payload.values()) == 2 * SLICES
    assert bytes_of["anchors"] < bytes_of["leep"]


def test_weights_go_only_where_anchors_are_near() -> None:
    """Of the tasks that a sender has grown modules for, the nearest is offered, and none that is too far."""
    sent: list[Mail] = []
    world, _ = ran({"mode": "modmod", "metric": "anchors", "min_similarity": -0.4}, sent)
    offered = {(mail.sender.agent, mail.receiver.agent, mail.task): mail for mail in sent if mail.kind == "modules"}
    asked = [mail for mail in sent if mail.kind == "question" and mail.task > TASKS["initial"]]
    silent = 0
    for question in asked:
        (a, b), task = (question.receiver.agent, question.sender.agent), question.task
        theirs = own_anchor(world, b, task)
        scores = {u: -distance(theirs, own_anchor(world, a, u)) for u in range(TASKS["initial"], task)}
        best = max(scores, key=lambda u: scores[u])
        if scores[best] > -0.4:
            assert offered[a, b, task].payload["sources"].tolist() == [best]
            assert float(offered[a, b, task].payload["scores"]) == pytest.approx(scores[best], abs=1e-4)
        else:
            silent += 1
            assert (a, b, task) not in offered
    assert 0 < silent < len(asked)


def test_two_anchors_in_one_question_are_refused() -> None:
    sent: list[Mail] = []
    world, stack = ran("anchors", sent)
    question = next(mail for mail in sent if mail.kind == "question")
    twice = {name: one.repeat(2, 1) for name, one in question.payload.items()}
    mode = world.settings.sharing[0]
    assert isinstance(mode, ModMod)
    post = Post(world, stack, mode)
    assert mode.objects(post, question) == ACCEPTED
    assert mode.objects(post, replace(question, payload=twice)) == OUT_OF_RANGE


def test_agents_that_predict_numbers_have_anchors_too() -> None:
    rng = np.random.default_rng(0)
    site, x = np.repeat(np.arange(4), 80), rng.normal(size=(320, 5))
    data = shoal.Data.from_arrays(x, x @ np.arange(5) + 0.5, agent=site, task=np.tile(np.repeat(np.arange(4), 20), 4))
    tasks = {"count": 4, "initial": 1, "common": False}
    sent: list[Mail] = []
    ran({"mode": "modmod", "metric": "anchors", "min_similarity": -1e9}, sent, data, tasks=tasks)
    assert any(mail.kind == "modules" for mail in sent)
    with pytest.raises(SettingsError, match='use metric = "anchors", or "iou"'):
        ran("leep", data=data, tasks={**tasks, "classes": 1})
    with pytest.raises(UserError, match="anchors of no rows says nothing"):
        SCORES["anchors"].score(Pair())
