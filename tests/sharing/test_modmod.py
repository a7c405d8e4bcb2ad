"""modmod: what is asked, offered, chosen and made of it, against numbers by hand."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from shoal.agents.evaluate import nets
from shoal.agents.events import due
from shoal.agents.memory import remember
from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.data.tasks import Lane, Stream, Task
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners import candidates as grow
from shoal.learners.candidates import TOGETHER, alive, correct, one_of, trying
from shoal.learners.growth import adapt, assimilate
from shoal.letters.letter import Room, numbers
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, Mail
from shoal.mail.post import Post
from shoal.models.modular import Modular
from shoal.rng import key
from shoal.runs.tables import candidates as candidates_table
from shoal.runs.tables import growth, lineage, offered
from shoal.sharing.mode import agent_of
from shoal.sharing.modmod import ModMod
from shoal.sharing.promises import promise
from shoal.sharing.scores import SCORES
from shoal_paper.counting import counted
from tests.fleets import exchange, fleet


class Told(NamedTuple):
    """A module that an agent was offered."""

    seed: int
    agent: int
    task: int
    sender: int
    source: int
    score: float
    tried: float
    chosen: bool


def told(stack: Stack) -> list[Told]:
    """Every module that agents were offered."""
    return [Told(*row) for row in offered(stack, "modmod")]


TASK = 4  # about to be learned; tasks 1, 2 and 3 may have grown a module


def ready(
    classes: Mapping[tuple[int, int], tuple[int, ...]] | None = None,
    grown: dict[int, tuple[int, ...]] | None = None,
    model: str = "modular-mlp",
    agents: int = 3,
    **own: Any,
) -> tuple[World, Stack]:
    """Agents before task 4, not trained. `classes` replaces those of (agent, task); `grown` says for which tasks an
    agent has kept a module, else for all."""
    few = {"count": 6, "classes": 3, "initial": 1, "train": 6, "validation": 5, "common": True}
    learner = {"epochs": 3, "memory": 4, "batch": 8}
    world = fleet(model, agents=agents, tasks=few, learner=learner, sharing=[{"mode": "modmod", **own}])
    if classes:
        streams = list(world.streams)
        for (agent, task), chosen in classes.items():
            tasks = list(streams[agent])
            old = tasks[task]
            tasks[task] = Task(chosen, old.train, old.validation, old.test)
            streams[agent] = Stream(tuple(tasks))
        object.__setattr__(world, "streams", tuple(streams))
    stack = start(world)
    model_ = world.model
    assert isinstance(model_, Modular)
    rng = torch.Generator().manual_seed(0)
    for name in ("module.weight", "module.bias", "structure"):
        stack.params[name].copy_(torch.randn(stack.params[name].shape, generator=rng) * 0.3)
    for past in range(TASK):
        remember(world, stack, past)
        if past:
            for agent in range(agents):
                alive(stack)[agent, model_.slot(past)] = grown is None or past in grown.get(agent, ())
    stack.task = TASK
    return world, stack


def sent(stack: Stack, kind: str) -> list[tuple[int, int, int, str]]:
    """Sender, receiver, items and verdict of all mail of a kind."""
    names = ("sender", "receiver", "items", "verdict")
    columns = [stack.ledger.column(name) for name in names]
    here = stack.ledger.column("kind") == kind
    return [tuple(one[at].item() for one in columns) for at in np.flatnonzero(here)]


def slot(world: World, task: int) -> int:
    assert isinstance(world.model, Modular)
    return world.model.slot(task)


# What is asked


def test_a_task_is_described_by_its_classes() -> None:
    world, stack = ready()
    mode = world.settings.sharing[0]
    assert isinstance(mode, ModMod)
    mails = mode.asks_of(Post(world, stack, mode))
    assert len(mails) == 6
    for mail in mails:
        assert mail.payload.keys() == {"classes"}
        assert mail.payload["classes"].tolist() == list(world.streams[mail.sender.agent][TASK].classes)
        assert mail.floats == 3


@pytest.mark.parametrize(("metric", "names"), [("leep", {"images", "labels"}), ("kl", {"images"})])
def test_a_task_is_described_by_some_validation_images_of_each_class(metric: str, names: set[str]) -> None:
    world, stack = ready(metric=metric, examples=2)
    mode = world.settings.sharing[0]
    assert isinstance(mode, ModMod)
    for mail in mode.asks_of(Post(world, stack, mode)):
        assert mail.payload.keys() == names
        task = world.streams[mail.sender.agent][TASK]
        own = world.images(task.validation)
        labels = task.labels(world.bank, task.validation)
        found = []
        for image in mail.payload["images"]:
            (place,) = (own == image).flatten(1).all(1).nonzero()[:1].flatten().tolist()
            found.append(int(labels[place]))
        assert max(found.count(one) for one in range(3)) <= 2
        present = [one for one in range(3) if (labels == one).any()]
        assert sorted(found[: len(present)]) == present  # one of each class comes first
        if "labels" in names:
            assert mail.payload["labels"].tolist() == found


# What is offered


def test_only_tasks_that_kept_a_module_are_offered_and_of_equals_the_earlier() -> None:
    same = {(agent, task): (1, 2, 3) for agent in range(3) for task in range(6)}
    world, stack = ready(same, grown={0: (2, 3), 1: (), 2: (3,)})
    exchange(world, stack)
    assert sent(stack, "modules") == [
        (0, 1, 1, ACCEPTED),
        (0, 2, 1, ACCEPTED),
        (2, 0, 1, ACCEPTED),
        (2, 1, 1, ACCEPTED),
    ]
    assert [[one.agent, one.sender, one.source, one.chosen] for one in told(stack)] == [
        [0, 2, 3, 1],
        [1, 0, 2, 1],
        [1, 2, 3, 0],
        [2, 0, 2, 1],
    ]
    assert stack.of("modular")["origin"][:, TASK].tolist() == [[2, 3], [0, 2], [0, 2]]


def test_the_score_is_the_share_of_classes_in_common() -> None:
    classes = {(0, TASK): (1, 2, 3), (1, 1): (1, 2, 3), (1, 2): (3, 4, 5), (1, 3): (7, 8, 9)}
    classes |= {(2, task): (0, 4, 6) for task in range(6)}
    world, stack = ready(classes, grown={1: (1, 2, 3), 2: (1,)}, modules=3)
    exchange(world, stack)
    mine = [one for one in told(stack) if one.agent == 0]
    assert [one.score for one in mine] == pytest.approx([1.0, 0.2])  # nothing in common: not sent
    assert [one.source for one in mine] == [1, 2]


@pytest.mark.parametrize(("least", "count"), [("metric", 2), (-1.0, 3), (0.2, 1), (1.0, 0)])
def test_what_is_not_similar_enough_is_not_sent(least: Any, count: int) -> None:
    classes = {(0, TASK): (1, 2, 3), (1, 1): (1, 2, 3), (1, 2): (3, 4, 5), (1, 3): (7, 8, 9)}
    world, stack = ready(classes, grown={1: (1, 2, 3)}, modules=3, min_similarity=least)
    exchange(world, stack)
    assert sum(items for sender, receiver, items, _ in sent(stack, "modules") if (sender, receiver) == (1, 0)) == count


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("model", ["modular-mlp", "modular-cnn"])
def test_every_metric_scores_the_coming_task(metric: str, model: str) -> None:
    world, stack = ready(model=model, metric=metric, min_similarity=-1e9, modules=3)
    exchange(world, stack)
    assert len(told(stack)) == 3 * 2 * 3
    scores = [one.score for one in told(stack)]
    assert np.isfinite(scores).all()
    if metric != "iou":
        assert len(set(scores)) > 6


def test_leep_is_that_of_the_senders_head_on_the_receivers_images() -> None:
    world, stack = ready(metric="leep", min_similarity=-1e9)
    mode = world.settings.sharing[0]
    assert isinstance(mode, ModMod)
    post = Post(world, stack, mode)
    question = next(mail for mail in mode.asks_of(post) if mail.receiver.agent == 1)
    x = world.encode(question.payload["images"], Lane(0, 1))
    with torch.inference_mode():
        p = said(world, stack, 1, 2, x).softmax(1).double().numpy()
        found = promise(agent_of(post, Lane(0, 1)), question.payload, 2, "leep")
    y = question.payload["labels"].numpy()
    joint = np.zeros((3, 3))
    for label, row in zip(y, p, strict=True):
        joint[label] += row / len(y)
    given = joint / joint.sum(0)
    want = np.mean([np.log(sum(given[label, z] * row[z] for z in range(3))) for label, row in zip(y, p, strict=True)])
    assert found == pytest.approx(want, abs=1e-5)


def said(world: World, stack: Stack, row: int, task: int, x: Tensor) -> Tensor:
    """What one lane's net takes x for."""
    return nets(world, stack)[row].read(x, task)


def test_modules_that_do_not_fit_the_budget_stay() -> None:
    world, _ = ready(modules=3, min_similarity=-1.0)
    mode = world.settings.sharing[0]
    assert isinstance(mode, ModMod)
    each = numbers(mode.letters["modules"].look(world), 1)
    for room, count in ((3 + each, 1), (3 + 2 * each, 2), (2 + 3 * each, 2), (3 + 9 * each, 3)):
        limited, copy = ready(modules=3, min_similarity=-1.0, budget=room)
        exchange(limited, copy)
        assert {items for _, _, items, _ in sent(copy, "modules")} == {count}
        assert {verdict for *_, verdict in sent(copy, "modules")} == {ACCEPTED}
    poor, copy = ready(min_similarity=-1.0, budget=3)
    exchange(poor, copy)
    assert ACCEPTED not in {verdict for *_, verdict in sent(copy, "modules")}
    assert (copy.of("modular")["origin"] == -1).all()


def test_a_question_of_images_leaves_room_for_a_module() -> None:
    """Question and answer share an edge at one moment: fewer images are sent, so that a module fits."""
    world, _ = ready(metric="leep", min_similarity=-1e9)
    mode = world.settings.sharing[0]
    assert isinstance(mode, ModMod)
    budget = numbers(mode.letters["modules"].look(world), 1) + 5 * 65
    world, stack = ready(metric="leep", min_similarity=-1e9, budget=budget)
    exchange(world, stack)
    assert {items for _, _, items, _ in sent(stack, "question")} == {5}
    assert {(items, verdict) for _, _, items, verdict in sent(stack, "modules")} == {(1, ACCEPTED)}
    question, modules = world.settings.sharing[0].quote(world, Room(floats=budget))
    assert question.floats + modules.floats <= budget


def test_a_metric_that_compares_images_needs_a_memory() -> None:
    with pytest.raises(SettingsError, match=r"learner\.memory = 0 keeps none; raise learner\.memory"):
        resolve({"learner": {"memory": 0}, "sharing": [{"mode": "modmod", "metric": "kl"}]})


def test_heads_and_structures_stay_where_there_is_no_common_start() -> None:
    few = {"count": 6, "classes": 3, "initial": 1, "train": 6, "validation": 5, "common": False}
    learner = {"epochs": 2, "memory": 4, "accept": -1.0}
    tables = [{"mode": "modmod", "min_similarity": -1.0}]
    stack = simulate(fleet("modular-mlp", tasks=few, learner=learner, sharing=tables))
    answers = stack.ledger.column("kind") == "modules"
    assert set(stack.ledger.column("floats")[answers].tolist()) == {16 * 16 + 16 + 2}


def test_a_module_costs_what_it_is() -> None:
    """Weights and bias, the sender's task and the score; the head with its classes; rows for the basis and itself."""
    world, stack = ready(min_similarity=-1.0)
    exchange(world, stack)
    module, head, structure = 16 * 16 + 16, 3 * 16 + 3 + 3, 5 * 4
    answers = stack.ledger.column("kind") == "modules"
    assert set(stack.ledger.column("floats")[answers].tolist()) == {module + 2 + head + structure}
    assert set(counted(world.settings, stack.ledger)[answers].tolist()) == {module}
    assert set(counted(world.settings, stack.ledger)[~answers].tolist()) == {0}
    world, stack = ready(min_similarity=-1.0, transfer_head=False, transfer_structure=False)
    exchange(world, stack)
    answers = stack.ledger.column("kind") == "modules"
    assert set(stack.ledger.column("floats")[answers].tolist()) == {module + 2}


# What becomes of it


def test_a_received_module_comes_with_its_head_and_structure() -> None:
    classes = {(0, TASK): (5, 1, 2), (1, 3): (1, 9, 5), (2, TASK): (0, 3, 4)}
    world, stack = ready(classes, grown={1: (3,), 0: (1,)}, min_similarity=-1.0)
    before = deepcopy(stack)
    exchange(world, stack)
    assert stack.of("modular")["origin"][0, TASK].tolist() == [1, 3]
    here, there = slot(world, TASK), slot(world, 3)
    for name in ("module.weight", "module.bias"):
        assert stack.params[name][0, here].equal(before.params[name][1, there])
    for name in ("head.weight", "head.bias"):
        theirs, mine = before.params[name][1, 3], stack.params[name][0, TASK]
        assert mine[0].equal(theirs[2])  # class 5
        assert mine[1].equal(theirs[0])  # class 1
        assert not mine[2].any()  # class 2 is new
    theirs, mine = before.params["structure"][1, 3], stack.params["structure"][0, TASK]
    assert mine[:4].equal(theirs[:4])
    assert not mine[4:here].any()
    assert mine[here].equal(theirs[there])
    assert alive(stack)[0, here]
    changed = {
        name
        for name, tensor in stack.tensors.items()
        if not tensor.nan_to_num().equal(before.tensors[name].nan_to_num())
    }
    assert changed == {
        "params/module.weight", "params/module.bias", "params/head.weight", "params/head.bias", "params/structure",
        "model/alive", "modular/origin", "modmod/offers",
    }  # fmt: skip


def test_without_head_and_structure_a_module_comes_alone() -> None:
    world, stack = ready(min_similarity=-1.0, transfer_head=False, transfer_structure=False)
    before = deepcopy(stack)
    exchange(world, stack)
    assert (stack.of("modular")["origin"][:, TASK, 0] >= 0).all()
    for name in ("head.weight", "head.bias", "structure"):
        assert stack.params[name].equal(before.params[name])


def test_with_the_same_basis_the_same_classes_are_told_apart_as_by_the_sender() -> None:
    """Self-check 6: the net a receiver begins with is the sender's, up to the order of the classes."""
    classes = {(0, TASK): (7, 3, 1), (1, 3): (1, 7, 3)}
    world, stack = ready(classes, grown={1: (3,)})
    for name in ("module.weight", "module.bias"):
        stack.params[name][:, :4] = stack.params[name][:1, :4]
    exchange(world, stack)
    assert stack.of("modular")["origin"][0, TASK].tolist() == [1, 3]
    x = world.inputs[:50]
    with torch.inference_mode():
        theirs = said(world, stack, 1, 3, x)
        mine = said(world, stack, 0, TASK, x)
    torch.testing.assert_close(mine, theirs[:, [1, 2, 0]])
    assert theirs.std() > 0.01


def test_nobody_has_a_module_before_the_second_task_after_the_start() -> None:
    made = resolve({"sharing": "modmod"})
    acts = [(task, epoch) for task in range(10) for epoch in range(100) if due(made, task, epoch)]
    assert acts == [(task, 0) for task in range(5, 10)]


def test_in_a_hybrid_modmod_acts_before_a_task_between_data_and_models() -> None:
    tables = [{"mode": "simp", "every": 5, "when": "before"}, "modmod", "fedavg"]
    made = resolve({"sharing": tables})
    assert [one.mode for one in due(made, 5, 0)] == ["simp", "modmod", "fedavg"]
    assert [one.mode for one in due(made, 4, 0)] == ["simp", "fedavg"]
    assert not any(one.mode == "modmod" for epoch in range(1, 101) for one in due(made, 5, epoch))


def test_a_frozen_module_stays_as_it_was_received_until_the_end_of_the_task() -> None:
    moved = []
    for frozen in (False, True):
        world, stack = ready(min_similarity=-1.0, frozen=frozen)
        exchange(world, stack)
        grow.begin(world, stack)
        received = stack.params["module.weight"][:, slot(world, TASK)].clone()
        basis = stack.params["module.weight"][:, 0].clone()
        assimilate(world, stack, 0)
        adapt(world, stack, 1)
        moved.append(not stack.params["module.weight"][:, slot(world, TASK)].equal(received))
        assert not stack.params["module.weight"][:, 0].equal(basis)
        grow.end(world, stack)
        assert not stack.of("modular")["frozen"].any()
    assert moved == [True, False]


# Choosing


def offers_of(world: World, stack: Stack, **scores: float) -> None:
    """Exchange with scores as said: `s1_3` is what agent 1 says about its task 3."""
    answers = ModMod.answers_of

    def lying(self: ModMod, post: Post, questions: Any) -> list[Mail]:
        mails = []
        for mail in answers(self, post, questions):
            said = mail.payload["scores"].clone()
            for at, source in enumerate(mail.payload["sources"].tolist()):
                said[at] = scores.get(f"s{mail.sender.agent}_{source}", said[at])
            mails.append(replace(mail, payload={**mail.payload, "scores": said}))
        return mails

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModMod, "answers_of", lying)
        exchange(world, stack)


def test_trust_takes_the_highest_score_then_the_earlier_task_then_the_lower_agent() -> None:
    for scores, want in (
        ({"s1_1": 0.3, "s1_2": 0.9, "s2_1": 0.8, "s2_3": 0.1}, [1, 2]),
        ({"s1_2": 0.9, "s2_1": 0.9}, [2, 1]),
        ({"s1_2": 0.9, "s2_2": 0.9}, [1, 2]),
    ):
        world, stack = ready(modules=3, min_similarity=-1.0)
        offers_of(world, stack, **scores)
        assert stack.of("modular")["origin"][0, TASK].tolist() == want


def test_a_tryout_takes_what_is_best_on_validation_data_whatever_its_score() -> None:
    """Agent 1 praises a module that silences every depth; agent 2 says little of one that does not."""
    world, stack = ready(min_similarity=-1.0, choose="tryout", tryout=2, transfer_structure=True)
    model = world.model
    assert isinstance(model, Modular)
    for past in (1, 2, 3):
        stack.params["module.weight"][1, model.slot(past)] = 0
        stack.params["module.bias"][1, model.slot(past)] = -1
        stack.params["structure"][1, past, :4] = -9
        stack.params["structure"][1, past, model.slot(past)] = 9
    before = deepcopy(stack)
    offers_of(world, stack, s1_1=1.0, s1_2=1.0, s1_3=1.0, s2_1=0.1, s2_2=0.1, s2_3=0.1)
    first, second = (one for one in told(stack) if one.agent == 0)
    assert (first.score, second.score) == pytest.approx((1.0, 0.1))
    assert (first.chosen, second.chosen) == (False, True)
    assert second.tried > first.tried
    assert stack.of("modular")["origin"][0, TASK, 0] == 2
    # The tryout was on copies: the candidate begins as it was received, and nothing else has learned.
    source = int(stack.of("modular")["origin"][0, TASK, 1])
    assert stack.params["module.weight"][0, slot(world, TASK)].equal(
        before.params["module.weight"][2, model.slot(source)]
    )
    for name in ("mean", "var", "steps"):
        for part in stack.of(name):
            assert stack.of(name)[part].equal(before.of(name)[part])
    assert stack.params["module.weight"][:, : slot(world, TASK)].equal(
        before.params["module.weight"][:, : slot(world, TASK)]
    )


def test_a_tryout_of_many_goes_in_groups() -> None:
    world, stack = ready(agents=4, modules=3, min_similarity=-1.0, choose="tryout", tryout=1)
    exchange(world, stack)
    assert len(told(stack)) == 4 * 9 > TOGETHER
    for agent in range(4):
        tried = [one.tried for one in told(stack) if one.agent == agent]
        chosen = [one.chosen for one in told(stack) if one.agent == agent]
        assert chosen.index(True) == tried.index(max(tried))
        assert chosen.count(True) == 1


def test_candidates_take_turns() -> None:
    tried = torch.tensor([[0, 1, 1, 0, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    turns = [one_of(tried, turn).int().tolist() for turn in range(4)]
    assert [one[0] for one in turns] == [[0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 1, 0, 0, 0]]
    assert all(one[1] == [0, 0, 1, 0, 0] for one in turns)
    assert all(not any(one[2]) for one in turns)


def test_a_fresh_module_beside_a_received_one_may_win() -> None:
    """Both learn in turn; one of them is kept, in the task's slot, and the spare slot is empty again."""
    world, stack = ready(min_similarity=-1.0, extra_random=True, grown={1: (1, 2, 3), 2: (1, 2, 3)})
    model = world.model
    assert isinstance(model, Modular)
    assert model.spare == 1
    exchange(world, stack)
    grow.begin(world, stack)
    here = model.slot(TASK)
    assert trying(world, stack)[:, here : here + 2].all()
    fresh = model.block.start(key(0, 0, "candidate", TASK), 1)[0][0]
    assert stack.params["module.weight"][0, here + 1].equal(fresh)
    received = stack.params["module.weight"][:, here].clone()
    assimilate(world, stack, 0)  # 18 images in batches of 8: three turns
    assert not stack.params["module.weight"][0, here + 1].equal(fresh)
    assert not stack.params["module.weight"][0, here].equal(received[0])
    assert stack.of("steps")["module.weight"][0, [here, here + 1]].tolist() == [2, 1]
    winner = grow.best(world, stack)
    tried = trying(world, stack)
    alone = [correct(world, stack, "validation", tried & ~one_of(tried, at)) for at in (0, 1)]
    assert winner[:, here].tolist() == [bool(a >= b) for a, b in zip(*alone, strict=True)]
    winner = torch.zeros_like(winner)
    winner[0, here + 1] = winner[1, here] = winner[2, here] = True
    kept = stack.params["module.weight"][0, here + 1].clone()
    grow.clear(world, stack, winner)
    assert stack.params["module.weight"][0, here].equal(kept)
    assert stack.of("modular")["origin"][0, TASK].tolist() == [-1, -1]
    assert (stack.of("modular")["origin"][1:, TASK, 0] >= 0).all()
    assert not alive(stack)[:, here + 1].any()
    for owner in ("params", "mean", "var", "steps"):
        assert not stack.of(owner)["module.weight"][:, here + 1].any()


def test_runs_with_every_choice_end() -> None:
    few = {"count": 4, "classes": 3, "initial": 1, "train": 6, "validation": 5}
    for own in (
        {"choose": "tryout", "modules": 2, "tryout": 2},
        {"extra_random": True},
        {"frozen": True},
        {"metric": "leep"},
    ):
        tables = [{"mode": "modmod", "min_similarity": -1e9, **own}]
        stack = simulate(fleet("modular-mlp", tasks=few, learner={"epochs": 3, "accept": -1.0}, sharing=tables))
        assert not stack.accuracy[:, -1, -1].isnan().any()
        assert (stack.of("modular")["origin"][:, 2:, 0] >= 0).any()


# Bad input


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_monolithic_net_has_no_modules_to_share(model: str) -> None:
    with pytest.raises(SettingsError, match=f'needs a modular model, got `{model}`; use model = "modular-{model}"'):
        resolve({"model": model, "sharing": "modmod"})


@pytest.mark.parametrize("metric", ["leep", "logme", "otce"])
def test_a_task_with_images_of_one_class_is_refused_and_the_run_goes_on(metric: str) -> None:
    """LEEP of one class is 0, the best there is: whoever asked so would get a module for nothing."""
    few = {"count": 4, "classes": 3, "initial": 1, "train": 6, "validation": 1}
    tables = [{"mode": "modmod", "metric": metric, "min_similarity": -1e9}]
    world = fleet("modular-mlp", tasks=few, learner={"epochs": 2, "accept": -1.0}, sharing=tables, agents=4, seeds=4)
    one = [
        lane for row, lane in enumerate(world.lanes) for task in (2, 3)
        if len(set(world.validation.labels[row, task].tolist())) == 1
    ]  # fmt: skip
    stack = simulate(world)
    verdicts = [verdict for *_, verdict in sent(stack, "question")]
    assert verdicts.count(OUT_OF_RANGE) == 3 * len(one) > 0
    assert verdicts.count(ACCEPTED) > 0
    assert not stack.accuracy[:, -1, -1].isnan().any()


# Records


def test_a_lineage_leads_back_to_the_fresh_module() -> None:
    came = {(0, 1, 5): (0, 2, 4), (0, 2, 4): (0, 0, 3), (0, 3, 5): (0, 0, 3)}
    assert lineage(came, (0, 1, 5)) == [(0, 1, 5), (0, 2, 4), (0, 0, 3)]
    assert lineage(came, (0, 0, 3)) == [(0, 0, 3)]


def test_records_say_what_was_offered_chosen_and_kept_and_where_it_came_from() -> None:
    few = {"count": 5, "classes": 3, "initial": 1, "train": 6, "validation": 5}
    tables = [{"mode": "modmod", "min_similarity": -1.0}]
    world = fleet("modular-mlp", tasks=few, learner={"epochs": 2, "accept": -1.0}, sharing=tables)
    stack = simulate(world)
    grew, offered = growth(world.settings, [stack]), candidates_table(world.settings, [stack])
    assert len(grew) == 3 * 4
    assert len(offered) == 3 * 3 * 2
    assert offered["kept"].to_list() == offered["chosen"].to_list()
    for row in grew.iter_rows(named=True):
        mine = offered.filter((offered["agent"] == row["agent"]) & (offered["task"] == row["task"]) & offered["chosen"])
        if row["task"] == 1:
            assert (row["origin_agent"], row["origin_task"], row["hops"]) == (None, None, 0)
            assert (row["root_agent"], row["root_task"]) == (row["agent"], 1)
            assert not len(mine)
            continue
        assert mine.select("sender", "source").row(0) == (row["origin_agent"], row["origin_task"])
        (source,) = grew.filter(agent=row["origin_agent"], task=row["origin_task"]).iter_rows(named=True)
        assert row["hops"] == source["hops"] + 1
        assert (row["root_agent"], row["root_task"]) == (source["root_agent"], source["root_task"])


@pytest.mark.parametrize("budget", ["unlimited", "1 MB"])  # as a bundle, and mail by mail
def test_modules_as_bytes_cost_a_quarter_and_come_within_a_step(budget: str) -> None:
    found = {}
    for compress in ("none", "int8"):
        world, stack = ready(min_similarity=-1.0, compress=compress, budget=budget)
        exchange(world, stack)
        found[compress] = world, stack
        assert {verdict for *_, verdict in sent(stack, "modules")} == {ACCEPTED}
    (world, plain), (_, coded) = found.values()
    here = slot(world, TASK)
    exact, rounded = (one.params["module.weight"][:, here] for one in (plain, coded))
    step = exact.abs().flatten(1).amax(1) / 127
    assert not torch.equal(exact, rounded)
    assert ((exact - rounded).abs().flatten(1).amax(1) <= step * 1.001).all()
    assert torch.equal(plain.params["module.bias"], coded.params["module.bias"])
    modules = [one.ledger.column("bytes")[one.ledger.column("kind") == "modules"] for one in (plain, coded)]
    weights = exact[0].numel()
    assert (modules[0] - modules[1] > 3 * weights - 200).all()  # four bytes become one; names and scales are longer
    assert modules[0].min() - modules[1].min() < 3 * weights


def test_modules_of_one_agent_are_rounded_alike_for_all() -> None:
    world, stack = ready(min_similarity=-1.0, compress="int8")
    mode = world.settings.sharing[0]
    assert isinstance(mode, ModMod)
    agent = agent_of(Post(world, stack, mode), world.lanes[1])
    once, again, alone = (mode.offer(agent, tasks, {2: 0.5, 3: 0.25}) for tasks in ([2, 3], [2, 3], [3]))
    assert once
    assert again
    assert alone
    assert torch.equal(once["module.weight.values"], again["module.weight.values"])
    assert torch.equal(once["module.weight.values"][1:], alone["module.weight.values"])
