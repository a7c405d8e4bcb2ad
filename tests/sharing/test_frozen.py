"""Masks and heads on a frozen backbone: nothing is forgotten, and what is sent is what is used."""

from typing import Any

import numpy as np
import pytest
import torch

from shoal.agents.evaluate import others
from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.letters.mail import Mail
from shoal.mail.post import Post
from shoal.models.frozen import SCORES, Frozen, backbone, binary, combined
from shoal.sharing.filed import entries, task_free
from shoal.sharing.heads import Heads
from shoal.sharing.masks import Masks, packed, unpacked
from shoal.sharing.mode import agent_of
from tests.fleets import exchange, fleet

PAIRS: dict[str, Any] = {"count": 4, "classes": 2, "initial": 1, "train": 20, "validation": 10, "common": False}
LEARNER: dict[str, Any] = {"epochs": 15, "batch": 20, "rate": 5e-3}


def small(model: str, agents: int = 3, **changes: Any) -> World:
    net = {"width": 32, "dropout": 0.0}
    return fleet(model, **{"agents": agents, "tasks": PAIRS, "net": net, "learner": LEARNER, **changes})


def test_a_weight_counts_where_its_score_is_not_negative_and_gradients_go_straight_through() -> None:
    scores = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    mask = binary(scores)
    assert mask.tolist() == [0, 1, 1]
    (slope,) = torch.autograd.grad((mask * torch.tensor([3.0, 4.0, 5.0])).sum(), scores)
    assert slope.tolist() == [3, 4, 5]


def test_the_backbone_is_signs_of_one_size() -> None:
    weights = backbone(3, 16)
    assert torch.allclose(weights.abs(), torch.tensor((2 / 16) ** 0.5))
    assert torch.equal(weights, backbone(3, 16))
    assert 0.4 < float((weights > 0).float().mean()) < 0.6


@pytest.mark.parametrize(("model", "combine"), [("masked-mlp", False), ("masked-mlp", True), ("frozen-mlp", False)])
def test_nothing_is_forgotten(model: str, combine: bool) -> None:
    learner = {**LEARNER, **({"combine": True} if combine else {})}
    accuracy = simulate(small(model, learner=learner)).accuracy[:, :, -1]  # [L, T, T] at the end of each task
    for task in range(4):
        assert torch.equal(accuracy[:, -1, task], accuracy[:, task, task])
    assert float(accuracy[:, -1].mean()) > 0.8


def test_a_task_trains_its_own_units_alone() -> None:
    world = small("masked-mlp")
    states: list[dict[str, torch.Tensor]] = []
    simulate(world, watch=lambda stack: states.append({name: one.clone() for name, one in stack.params.items()}))
    first, last = states[LEARNER["epochs"] - 1], states[-1]  # after task 0, and at the end
    for name in (SCORES, "head.weight"):
        assert torch.equal(first[name][:, 0], last[name][:, 0])
        assert not torch.equal(first[name][:, 1], last[name][:, 1])


def test_combined_scores_are_a_softmax_of_those_so_far_and_become_the_tasks_own() -> None:
    world = small("masked-mlp", learner={**LEARNER, "combine": True, "epochs": 2})
    assert isinstance(world.model, Frozen)
    params = {name: tensor[0] for name, tensor in start(world).params.items()}
    assert torch.allclose(combined(params, 2), params[SCORES][:3].mean(0), atol=1e-6)  # they begin alike
    stack = simulate(world)
    assert (stack.of("frozen")["mixing"] == -1).all()


def test_bits_are_an_eighth_of_a_byte_and_come_back() -> None:
    scores = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0))
    bits = packed(scores)
    assert (bits.dtype, len(bits)) == (torch.uint8, 10)
    back = unpacked(bits, scores.shape)
    assert torch.equal(back >= 0, scores >= 0)
    assert torch.allclose(back.abs(), torch.tensor(0.01))


def same_tasks(model: str, mode: dict[str, Any], **changes: Any) -> World:
    """Agents whose tasks have the same classes at the same time, and digits of their own."""
    tasks = {**PAIRS, "scenario": "overlap", "overlap": 1.0}
    return small(model, tasks=tasks, sharing=[mode], **changes)


@pytest.mark.parametrize("send", ["bits", "scores"])
def test_a_neighbours_mask_takes_the_place_of_a_worse_one(send: str) -> None:
    world = same_tasks("masked-mlp", {"mode": "masks", "every": 5, "when": "before", "send": send}, agents=2)
    stack = start(world)
    stack.task, stack.epoch = 1, 5
    donor = simulate(small("masked-mlp", agents=2, tasks={**PAIRS, "scenario": "overlap", "overlap": 1.0}))
    for name in stack.params:
        stack.params[name][1] = donor.params[name][1]
    own = stack.params[SCORES][0, 1].clone()
    posted: list[Mail] = []
    exchange(world, stack, observe=lambda mail, verdict: posted.append(mail))
    sent = [mail for mail in posted if mail.kind == "mask"]
    assert [(mail.sender.agent, mail.receiver.agent) for mail in sent] == [(1, 0)]
    assert torch.equal(stack.params[SCORES][0, 1] >= 0, donor.params[SCORES][1, 1] >= 0)
    assert not torch.equal(stack.params[SCORES][0, 1], own)
    assert torch.equal(stack.params[SCORES][1], donor.params[SCORES][1])
    price = 32 * 32 * 4 // 8 if send == "bits" else 32 * 32 * 4
    assert sent[0].floats == price + 2 * 33 + 1


def test_a_mask_that_does_worse_is_undone() -> None:
    world = same_tasks("masked-mlp", {"mode": "masks", "every": 5, "when": "before"}, agents=2)
    stack = simulate(small("masked-mlp", agents=2, tasks={**PAIRS, "scenario": "overlap", "overlap": 1.0}))
    stack.task, stack.epoch = 1, 5
    before = {name: tensor.clone() for name, tensor in stack.params.items()}
    post = Post(world, stack, world.settings.sharing[0])
    shape = stack.params[SCORES].shape[2:]
    payload = {
        "mask": packed(-torch.ones(shape)),  # switches everything off
        "head.weight": torch.zeros(2, 32),
        "head.bias": torch.tensor([0.0, 1.0]),
        "score": torch.ones(1),
    }
    post.mode.absorbs_of(post, [], [Mail(world.lanes[1], world.lanes[0], "masks", "mask", payload, 1)])
    for name, tensor in before.items():
        assert torch.equal(stack.params[name], tensor)


def test_labels_are_matched_by_class_and_features_by_distance() -> None:
    world = same_tasks("masked-mlp", {"mode": "masks", "every": 5}, agents=2)
    mode, stack = world.settings.sharing[0], start(world)
    assert isinstance(mode, Masks)
    agent = agent_of(Post(world, stack, mode), world.lanes[0])
    classes = torch.tensor(world.streams[0][0].outputs, dtype=torch.int32)
    assert mode.matched(agent, 0, {"classes": classes}) == [0, 1]
    assert mode.matched(agent, 0, {"classes": classes.flip(0)}) == [1, 0]
    assert mode.matched(agent, 0, {"classes": (classes + 1) % 10}) is None
    near = mode.model_copy(update={"like": "feature", "near": 1e-6})
    means = near.told(agent, 0)
    assert means is not None
    assert near.matched(agent, 0, {"means": means["means"].flip(0)}) == [1, 0]
    assert near.matched(agent, 0, {"means": means["means"] + 1}) is None


def headed(**own: Any) -> tuple[World, Stack]:
    tasks = {**PAIRS, "replacement": False}
    world = small("frozen-mlp", tasks=tasks, sharing=[{"mode": "heads", **own}])
    return world, simulate(world)


def test_what_neighbours_have_learned_is_known_without_an_image() -> None:
    world, stack = headed()
    state = stack.of("heads")
    assert int(state["there"].sum()) == 3 * 2 * 4  # every task of both neighbours
    for one in entries({name: one[0] for name, one in state.items()}):
        assert len(set(one.classes)) == 2
    alone = simulate(small("frozen-mlp", tasks={**PAIRS, "replacement": False}))
    shared, own = (
        {(one.lane, one.other, one.task): one.accuracy for one in others([(made, end)])}
        for made, end in ((world, stack), (small("frozen-mlp", tasks={**PAIRS, "replacement": False}), alone))
    )
    assert shared.keys() == own.keys()
    assert np.mean(list(shared.values())) > np.mean(list(own.values())) + 0.1
    assert torch.equal(stack.params["head.weight"][:, 0], alone.params["head.weight"][:, 0])


def test_the_task_of_an_image_is_found_by_anchors() -> None:
    world, stack = headed()
    (mode,) = world.settings.sharing
    assert isinstance(mode, Heads)
    found = [task_free(world, stack, row, mode) for row in range(3)]
    assert np.mean([one.mapped for one in found]) > 1 / 8  # of its own 4 tasks and 8 of others
    assert np.mean([one.right for one in found]) > 0.2  # of 10 classes


def test_a_task_of_known_classes_begins_with_what_others_have_found() -> None:
    tasks = {**PAIRS, "scenario": "overlap", "overlap": 1.0}
    world = small("frozen-mlp", tasks=tasks, sharing=[{"mode": "heads"}])
    mode, stack = world.settings.sharing[0], start(world)
    assert isinstance(mode, Heads)
    state, wanted = stack.of("heads"), world.streams[0][1].outputs
    trained = simulate(small("frozen-mlp", tasks=tasks))
    state["there"][0, 0, 1] = True
    state["classes"][0, 0, 1] = torch.tensor(wanted[::-1])
    for name in ("head.weight", "head.bias"):
        state[name][0, 0, 1] = trained.params[name][0, 1].flip(0)
    state["bias"][0, 0, 1] = trained.params["bias"][0, 1]
    mode.absorbs_of(Post(world, stack, mode), [], [])
    for name in ("head.weight", "head.bias", "bias"):
        assert torch.equal(stack.params[name][0, 1], trained.params[name][0, 1])


BAD: list[tuple[dict[str, Any], str]] = [
    ({"sharing": "masks", "model": "mlp"}, r"mode `masks` shares masks of a frozen backbone, and `mlp` has none"),
    ({"sharing": "masks", "model": "frozen-mlp"}, r"mode `masks` shares masks .*, and `frozen-mlp` has none"),
    ({"sharing": "heads", "model": "masked-mlp"}, r"mode `heads` shares heads and biases on a frozen backbone"),
    ({"sharing": "fedavg", "model": "masked-mlp"}, r"mode `fedavg` averages weights, and those of `masked-mlp` are"),
    ({"model": "masked-mlp", "learner": "ewc"}, r"the learner `ewc` trains the weights of a net, and those of"),
    ({"model": "mlp", "learner": "frozen"}, r"the learner `frozen` trains what a task adds .*, and `mlp` has none"),
    ({"model": "frozen-mlp", "learner": {"combine": True}}, r"learner\.combine mixes the scores of masks"),
    ({"model": "masked-mlp", "tasks": {"heads": "grow"}}, r"the learner `frozen` is for agents with a head for each"),
    (
        {"model": "masked-mlp", "sharing": [{"mode": "masks", "like": "feature"}], "tasks": {"classes": 8}},
        r"tries every matching of classes, 6 at most, got tasks\.classes = 8",
    ),
    ({"sharing": "fedagem", "model": "mlp", "learner": {"memory": 0}}, r"mode `fedagem` .*learner\.memory = 0 keeps"),
]


@pytest.mark.parametrize(("raw", "sentence"), BAD)
def test_what_a_backbone_cannot_do_is_a_sentence(raw: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        resolve(raw)
