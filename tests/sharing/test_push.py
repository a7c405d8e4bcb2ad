"""Push: what senders choose, what receivers vote, and that a neighbour gets more of what it lacks."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from shoal.agents.evaluate import nets
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.letters.mail import Mail
from shoal.mail.post import Post
from shoal.sharing.by_class import histogram, marks
from shoal.sharing.choices import greedy, herd, in_turn, levelled, spread
from shoal.sharing.mode import agent_of, received
from shoal.sharing.push import Push, seen_by, surprise
from tests.fleets import exchange
from tests.sharing.test_formulas import ready


def test_herding_keeps_the_mean_and_needs_no_image_twice() -> None:
    x = F.normalize(torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.0, 1.0], [1.0, 0.0]]))
    order = herd(x, 4)
    assert sorted(order) == [0, 1, 2, 3]
    mean = F.normalize(x.mean(0), dim=0)
    assert order[0] == int((mean - x).norm(dim=1).argmin())
    assert herd(x, 2) == order[:2]


def test_spread_takes_what_is_far_from_all_that_was_sent() -> None:
    x = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    free = torch.tensor([True, True, True, True])
    assert spread(x, x[:1], free, 2) == [3, 1]
    assert spread(x, x[:0], free, 1) == [1]  # the nearest to the mean of 5.5, the first of two
    assert spread(x, x[:0], torch.zeros(4, dtype=torch.bool), 3) == []


def test_coverage_raises_the_lowest() -> None:
    assert levelled([3, 3, 3], [9, 9, 9], 6) == [2, 2, 2]
    assert levelled([0, 5, 2], [9, 9, 9], 4) == [3, 0, 1]
    assert levelled([0, 0], [1, 0], 5) == [1, 0]
    assert in_turn([[1, 2, 3], [7]], 3) == [1, 7, 2]


def test_without_chance_the_best_go_and_with_all_chance_any() -> None:
    scores, free = np.array([0.1, 0.9, 0.5, 0.7]), np.array([0, 1, 3])
    assert greedy(scores, free, 2, 0.0, np.random.default_rng(0)).tolist() == [1, 3]
    drawn = [sorted(greedy(scores, free, 2, 1.0, np.random.default_rng(seed)).tolist()) for seed in range(30)]
    assert {tuple(one) for one in drawn} == {(0, 1), (0, 3), (1, 3)}


def votes_of(world: World, stack: Stack, post: Post, rows: np.ndarray) -> torch.Tensor:
    labels = torch.from_numpy(world.bank.labels[rows].astype(np.int32))
    mail = Mail(world.lanes[1], world.lanes[0], "push", "images", {"images": world.images(rows), "labels": labels}, 1)
    return surprise(agent_of(post, world.lanes[0]), received(post, mail))


def test_a_vote_is_zero_for_classes_that_a_receiver_has_no_task_for() -> None:
    world, stack, post = ready({"mode": "push"})
    met = {one for task in world.streams[0][:3] for one in task.classes}
    rows = np.array([np.flatnonzero(world.bank.labels == one)[0] for one in range(10)])
    votes = votes_of(world, stack, post, rows)
    assert [bool(vote) for vote in votes] == [one in met for one in range(10)]
    assert float(votes.max()) <= 1


def test_a_vote_says_how_far_the_loss_lies_above_the_usual() -> None:
    world, stack, post = ready({"mode": "push"}, tasks={"replacement": False, "count": 2, "initial": 1}, task=0)
    net, split, task = nets(world, stack)[0], world.validation, world.streams[0][0]
    size = int(split.sizes[0, 0])
    usual = F.cross_entropy(net.logits(split.rows[0, 0, :size], 0), split.labels[0, 0, :size], reduction="none")
    found = votes_of(world, stack, post, task.validation)
    want = ((usual - usual.mean()) / usual.std(correction=0)).sigmoid()
    assert torch.allclose(found, want, atol=1e-4)


def test_images_go_once_to_a_neighbour_and_votes_come_back() -> None:
    world, stack, _ = ready({"mode": "push", "images": 5, "when": "before"})
    posted: list[Mail] = []
    for epoch in range(4):
        stack.epoch = epoch
        exchange(world, stack, observe=lambda mail, verdict: posted.append(mail))
    edge = [one for one in posted if (one.sender.agent, one.receiver.agent) == (0, 1)]
    images = [one.payload["images"] for one in edge if one.kind == "images"]
    every = torch.cat(images).flatten(1)
    assert len(images) == 4
    assert len(every.unique(dim=0)) == len(every)
    votes = [one for one in edge if one.kind == "votes"]
    assert len(votes) == 3  # of the deliveries before the last
    assert all(len(one.payload["vote"]) == 5 for one in votes)
    state = stack.of("push")
    assert bool(state["moment"].any())
    assert torch.allclose(state["chance"][0, 0], torch.tensor(0.9**3))
    assert int(state["gone"][0, 0].sum()) == len(every)


def test_what_was_held_already_is_worth_nothing() -> None:
    world, stack, post = ready({"mode": "push", "images": 4})
    mode, task = world.settings.sharing[0], world.streams[0][0]
    rows = task.validation[:4]
    labels = torch.from_numpy(world.bank.labels[rows].astype(np.int32))
    mail = Mail(world.lanes[1], world.lanes[0], "push", "images", {"images": world.images(rows), "labels": labels}, 4)
    mode.absorbs_of(post, [], [mail])
    assert len(marks(agent_of(post, world.lanes[0]))) == 4
    assert bool(stack.of("push")["votes"][0, 0].all())
    mode.absorbs_of(post, [], [mail])
    assert not bool(stack.of("push")["votes"][0, 0].any())


def test_a_neighbour_that_votes_for_a_class_gets_more_of_it() -> None:
    """Votes that only like one class: its share of what is sent rises above its share of what there is."""
    world, stack, post = ready({"mode": "push", "images": 6, "least": 0.0}, tasks={"train": 12})
    mode, agent = world.settings.sharing[0], agent_of(post, world.lanes[0])
    assert isinstance(mode, Push)
    seen = seen_by(agent)
    liked = int(seen.own.labels[-1])
    state = stack.of("push")
    state["chance"].zero_()
    z = seen.z
    state["gram"][0, 0] = z.T @ z
    state["moment"][0, 0] = z.T @ torch.from_numpy((seen.own.labels == liked).astype(np.float32))
    assert (mode.answer(agent, None, 1)["labels"] == liked).mean() > 0.9


@pytest.mark.parametrize("choose", ["herding", "spread", "coverage"])
def test_senders_that_are_told_no_votes_choose_too(choose: str) -> None:
    world, stack, _ = ready({"mode": "push", "images": 8, "choose": choose, "when": "before"})
    posted: list[Mail] = []
    for epoch in range(2):
        stack.epoch = epoch
        exchange(world, stack, observe=lambda mail, verdict: posted.append(mail))
    images = [one for one in posted if one.kind == "images"]
    assert len(images) == 12
    assert {one.kind for one in posted} == ({"images", "histogram"} if choose == "coverage" else {"images"})
    if choose == "coverage":  # of as many of each class as can be
        post = Post(world, stack, world.settings.sharing[0])
        have = histogram(agent_of(post, world.lanes[0]))
        assert have.sum() > 6 * 4 + 2 * 4  # its own, and what has come


BAD: list[tuple[dict[str, Any], str]] = [
    ({"sharing": "push", "tasks": {"classes": 1}}, "mode `push` shares images of classes"),
    ({"sharing": [{"mode": "push", "images": 0}]}, "`sharing.push.images` cannot be 0"),
    ({"sharing": [{"mode": "push", "choose": "best"}]}, "`sharing.push.choose` cannot be 'best'; allowed: 'votes'"),
]


@pytest.mark.parametrize(("raw", "sentence"), BAD)
def test_what_push_cannot_do_is_a_sentence(raw: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        resolve(raw)
