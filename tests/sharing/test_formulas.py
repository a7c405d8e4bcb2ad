"""What sharing modes compute, against numbers by hand and against the slow obvious way."""

from collections.abc import Sequence
from copy import deepcopy
from fractions import Fraction
from functools import cache
from math import log
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.engine import parted
from shoal.agents.events import due
from shoal.agents.memory import remember
from shoal.agents.received import Arrived, digest, slot
from shoal.agents.stack import MODEL, Stack, start
from shoal.agents.world import World
from shoal.compiled.nearest import Searches, nearest
from shoal.configure.reading import resolve
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners.batches import Batch, Images, Pool, batch_size, gathered, pool
from shoal.learners.fisher import fisher
from shoal.learners.step import Frame
from shoal.letters.mail import ACCEPTED, NOT_FINITE, OUT_OF_RANGE, WRONG_SHAPE, Expected, Mail, fault
from shoal.mail.post import Post
from shoal.models.contract import body_units
from shoal.models.params import MODULE as NAMES
from shoal.rng import key
from shoal.sharing import present
from shoal.sharing.body import scale
from shoal.sharing.choices import quotas
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.fedcurv import FedCurv
from shoal.sharing.fedfish import FedFish, normalised
from shoal.sharing.fedprox import FedProx
from shoal.sharing.images import held, store
from shoal.sharing.mode import agent_of, is_last
from shoal.sharing.recv import score
from shoal.sharing.search import Queries, closest, nearest_by_torch
from shoal.sharing.simp import Simp
from tests.fleets import exchange, fleet

LINE = [{"sender": a, "receiver": b} for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
FEW: dict[str, Any] = {"count": 4, "classes": 4, "initial": 1, "train": 6, "validation": 4}


def ready(mode: dict[str, Any], model: str = "mlp", task: int = 2, **changes: Any) -> tuple[World, Stack, Post]:
    """Three agents in task 2, not trained, with memories of the tasks before; and their post."""
    groups: dict[str, Any] = {"tasks": FEW, "learner": {"epochs": 6, "memory": 4}}
    groups = {name: {**group, **changes.pop(name, {})} for name, group in groups.items()}
    world = fleet(model, agents=3, sharing=[{"every": 1, **mode}], **groups, **changes)
    stack = start(world)
    for past in range(task):
        remember(world, stack, past)
    stack.task = task
    return world, stack, Post(world, stack, world.settings.sharing[0])


# Recv: what is hard

P = torch.tensor([[0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3], [0.05, 0.05, 0.9]])
LABELS = torch.tensor([1, 0, 2])


@pytest.mark.parametrize(
    ("scorer", "want"),
    [
        ("cross-entropy", [-log(0.2), log(3), -log(0.9)]),
        ("confidence", [-0.7, -1 / 3, -0.9]),
        ("margin", [0.2 - 0.7, 0.0, 0.05 - 0.9]),
        # -(0.7 ln 0.7 + 0.2 ln 0.2 + 0.1 ln 0.1) = 0.249672 + 0.321888 + 0.230259
        ("entropy", [0.801819, log(3), -(0.1 * log(0.05) + 0.9 * log(0.9))]),
    ],
)
def test_a_scorer_says_how_hard_an_image_is(scorer: str, want: list[float]) -> None:
    found = score(scorer, P.log() + 5, LABELS, key(0))  # logits are log p and any constant
    torch.testing.assert_close(found, torch.tensor(want), rtol=0, atol=1e-6)


def test_the_random_scorer_ranks_by_luck_alone() -> None:
    one, again = (score("random", torch.randn(50, 3), torch.zeros(50, dtype=torch.int64), key(0)) for _ in range(2))
    assert torch.equal(one, again)
    assert len(one.unique()) == 50
    assert ((one >= 0) & (one < 1)).all()


def test_queries_are_the_hardest_of_all_tasks_or_of_the_current_one() -> None:
    for scope in ("all", "current"):
        world, stack, post = ready({"mode": "recv", "queries": 5, "scope": scope})
        mode = world.settings.sharing[0]
        mails = mode.asks_of(post)
        assert {(mail.sender.agent, mail.receiver.agent) for mail in mails} == {
            (a, b) for a in range(3) for b in range(3) if a != b
        }
        row, lane = 1, world.lanes[1]
        losses: dict[tuple[int, int], float] = {}  # by task and row in the bank
        for task in range(stack.task + 1) if scope == "all" else [stack.task]:
            for at, origin in enumerate(world.streams[row][task].validation.tolist()):
                logits = logits_of(world, stack, row, world.inputs[world.validation.rows[row, task, at : at + 1]], task)
                label = world.validation.labels[row, task, at : at + 1]
                losses[task, origin] = float(F.cross_entropy(logits, label))
        hard = SimpleNamespace(**post.notes[lane])
        hard.rows = hard.images
        found = [losses[ends] for ends in zip(hard.task.tolist(), hard.rows.tolist(), strict=True)]
        assert found == pytest.approx(sorted(losses.values(), reverse=True)[:5], abs=1e-5)
        assert hard.labels.tolist() == world.bank.labels[hard.rows].tolist()
        for task, local, label in zip(hard.task, hard.local, hard.labels, strict=True):
            assert world.streams[row][task].classes[local] == label
        mine = next(mail for mail in mails if mail.sender == lane)
        rows = hard.rows
        assert torch.equal(mine.payload["images"], torch.from_numpy(world.bank.images[rows]))
        assert mine.payload["labels"].tolist() == world.bank.labels[rows].tolist()


def logits_of(world: World, stack: Stack, row: int, x: Tensor, task: int, params: Any = None) -> Tensor:
    """The plain net of one lane."""
    params = params or {name: tensor[row] for name, tensor in stack.params.items()}
    usage = parted(world.model.usage(stack.of(MODEL), stack.task), [1] * len(stack.lanes), single=True)[row]
    return world.model.logits(params, x, task, **usage)


# Recv: what is near


FOUND = pytest.mark.parametrize("find", [nearest, nearest_by_torch])
# Own images of task 0, (1, 0), (0, 2) and (3, 3), and of task 1, (0, -1) and (1, 0), behind three queries in each.
QUERIES = [[2.0, 1.0], [0.0, 1.0], [1.0, 1.0]]
FEATURES = torch.tensor([*QUERIES, *([y, x] for x, y in QUERIES), [1.0, 0], [0, 2], [3, 3], [0, -1], [1, 0]])
NUMBER, TASK = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4]), np.array([0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1])
SEARCHES = Searches(*np.array([[0, 3], [3, 3], [6, 9], [3, 2]]))


@FOUND
def test_the_nearest_are_by_cosine_each_task_with_its_own_features(find: Any) -> None:
    wanted = np.array([[True, False], [False, True], [False, False]])
    # (2,1): with (1,0) 2/sqrt 5 = 0.8944, with (0,2) 1/sqrt 5 = 0.4472, with (3,3) 3/sqrt 10 = 0.9487.
    # (0,1) in task 1 is (1,0): with (0,-1) 0, with (1,0) 1. The third may be searched for nowhere.
    assert find(SEARCHES, FEATURES, NUMBER, TASK, wanted, 2).tolist() == [[2, 0], [4, 3], [-1, -1]]


@FOUND
def test_where_there_are_fewer_images_than_asked_for_the_rest_is_empty(find: Any) -> None:
    wanted = np.array([[True, False], [True, True], [False, False]])
    found = find(SEARCHES, FEATURES, NUMBER, TASK, wanted, 7)
    assert (found >= 0).sum(1).tolist() == [3, 5, 0]


@FOUND
def test_of_images_that_differ_in_rounding_alone_the_first_is_the_nearer(find: Any) -> None:
    features = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 1e-4], [1.0, 1.0], [1.0, 0.9]])  # 1 - 1e-9, 1 and 0.9986
    number, task = np.array([0, 0, 1, 2]), np.zeros(4, np.int64)
    one = Searches(*(np.array([at]) for at in (0, 1, 1, 3)))
    assert find(one, features, number, task, np.array([[True]]), 3, 2**16).tolist() == [[0, 1, 2]]


def test_senders_search_tasks_that_have_the_querys_class() -> None:
    world, _, post = ready({"mode": "recv", "queries": 6, "nearest": 40})
    met = [task.classes for task in world.streams[0][: post.stack.task + 1]]
    strange = next(one for one in range(10) if not any(one in classes for classes in met))
    labels = torch.tensor([met[0][0], met[-1][0], strange], dtype=torch.int32)
    question = {"images": world.images(world.streams[1][0].validation[:3]), "labels": labels}
    own = held(world, post.stack, 0)
    for oldest in (0, 1):
        near = closest(post, question, Queries(*np.array([[0], [0], [3]])), oldest, 40)
        for query, label in enumerate(labels.tolist()):
            may = [label in met[task] and task >= oldest for task in own.task]
            assert sorted(near.rows[near.query == query]) == sorted(own.rows[may][:40]), (oldest, label)


def test_an_answer_is_the_nearest_own_images_of_every_query() -> None:
    world, stack, post = ready({"mode": "recv", "queries": 6, "nearest": 3})
    mode = world.settings.sharing[0]
    questions = mode.asks_of(post)
    answers = mode.answers_of(post, questions)
    assert len(answers) == len(questions) == 6
    for question in questions:
        edge = question.receiver, question.sender
        answer = next(one for one in answers if (one.sender, one.receiver) == edge)
        row = world.row[answer.sender]
        own = held(world, stack, row)
        params = {name: tensor[row] for name, tensor in stack.params.items()}

        def features(
            x: Tensor, params: dict[str, Tensor] = params
        ) -> Tensor:  # in all tasks the same: a monolithic net
            return world.model.features(params, x, 0)

        mine, theirs = features(own.x), features(world.encode(question.payload["images"], world.lanes[row]))
        returned = features(world.encode(answer.payload["images"], world.lanes[row]))
        for query, label in enumerate(question.payload["labels"].tolist()):
            may = np.array([label in world.streams[row][task].classes for task in own.task])
            want = F.cosine_similarity(theirs[query], mine[may], 1).sort(descending=True).values[:3]
            here = answer.payload["queries"] == query
            found = F.cosine_similarity(theirs[query], returned[here], 1)
            torch.testing.assert_close(found, want, rtol=0, atol=1e-5)
            allowed = {image.tobytes() for image in world.bank.images[own.rows[may]]}
            assert all(image.numpy().tobytes() in allowed for image in answer.payload["images"][here])
        ranks = [answer.payload["queries"][:at].eq(one).sum() for at, one in enumerate(answer.payload["queries"])]
        assert ranks == sorted(ranks)  # the nearest of all queries come first
        every = {image.tobytes(): label for image, label in zip(world.bank.images, world.bank.labels, strict=True)}
        assert answer.payload["labels"].tolist() == [every[one.numpy().tobytes()] for one in answer.payload["images"]]


def test_if_not_all_fits_every_query_still_gets_its_nearest() -> None:
    network = {"graph": "complete", "budget": 1560}
    world, _, post = ready({"mode": "recv", "queries": 6, "nearest": 3, "prefilter": "none"}, network=network)
    mode = world.settings.sharing[0]
    # A quarter of the budget is for the question: 1560/4 = 390, which are 6 queries of 64 (their class is not sent).
    post.receive([mail for mail, _ in post.send(mode.asks_of(post))])
    questions = post.collect(asked=True)
    assert {len(mail.payload["images"]) for mail in questions} == {6}
    for answer in mode.answers_of(post, questions):
        # 1560 - 6 * 64 = 1176 floats are left, which are 17 images of 66.
        assert answer.payload["queries"].tolist() == [*range(6), *range(6), *range(5)]


# Recv: what is kept


@pytest.mark.parametrize(
    ("receive", "labels", "want"),
    [
        # Of task 0 with classes (a, b, ...), for a query with local label 1: images of classes a, b and one of no use.
        ("class", "true", [0, 1]),
        ("class", "query", [1, 1]),
        ("none", "query", [1, 1, 1]),
    ],
)
def test_received_images_are_filtered_and_labelled(receive: str, labels: str, want: list[int]) -> None:
    world, stack, post = ready({"mode": "recv", "receive": receive, "labels": labels})
    mode, lane, task = world.settings.sharing[0], world.lanes[0], 0
    classes = world.streams[0][task].classes
    strange = next(one for one in range(10) if one not in classes)
    rows = np.array([np.flatnonzero(world.bank.labels == one)[0] for one in (classes[0], classes[1], strange)])
    payload = {"images": world.images(rows), "queries": torch.zeros(3, dtype=torch.int32)}
    if "labels" in mode.expects(world, "answer", world.lanes[1]):
        payload["labels"] = torch.tensor([classes[0], classes[1], strange], dtype=torch.int32)
    else:
        assert (receive, labels) == ("none", "query")
    post.notes[lane] = {"task": np.array([task]), "local": np.array([1])}
    question = post.mail(lane, world.lanes[1], "question", {}, 1)
    post.send([question])
    mode.absorbs_of(post, [], [post.reply(question, "answer", payload, 3)])
    assert stack.of("received")["fill"][0].tolist() == [len(want), 0, 0, 0]
    assert stack.of("received")["y"][0, task, : len(want)].tolist() == want
    assert torch.equal(
        stack.of("received")["x"][0, task, : len(want)], world.encode(world.images(rows), lane)[: len(want)]
    )
    assert stack.of("received")["fill"][1:].sum() == 0


def test_true_labels_must_be_sent() -> None:
    with pytest.raises(SettingsError, match="labels"):
        ready({"mode": "recv", "receive": "none", "labels": "true"})


# Simp


class Known:
    """A net that says the same of every image of a task: logits by task."""

    def __init__(self, said: dict[int, list[float]]) -> None:
        self.said = said

    def logits(self, rows: Tensor, task: int) -> Tensor:
        return torch.tensor(self.said[task]).log().expand(len(rows), -1)

    def logits_of(self, rows: dict[int, Tensor]) -> dict[int, Tensor]:
        return {task: self.logits(some, task) for task, some in rows.items()}


def worths(mode: Simp, post: Post, net: Any) -> dict[int, float]:
    """What classes are worth to the first agent, if every net is such a one."""
    post.once(("nets",), post.stack, lambda: [net] * 3)
    draft = mode.ask(agent_of(post, post.world.lanes[0]))
    return dict(zip(draft["classes"].tolist(), draft["worth"].tolist(), strict=True))


def test_a_class_is_worth_its_cross_entropy_or_the_error_of_its_last_task() -> None:
    world, _, post = ready({"mode": "simp"}, task=1, tasks={"classes": 2, "count": 2})
    first, second = world.streams[0]
    net = Known({0: [0.5, 0.5], 1: [0.8, 0.2]})
    losses: dict[int, list[float]] = {}
    for task, said in ((first, [0.5, 0.5]), (second, [0.8, 0.2])):
        for row in task.validation:
            one = int(world.bank.labels[row])
            losses.setdefault(one, []).append(-log(said[task.classes.index(one)]))
    want = {one: sum(parts) / len(parts) for one, parts in losses.items()}
    assert worths(Simp(), post, net) == pytest.approx(want)
    current = {one: -log(p) for one, p in zip(second.classes, (0.8, 0.2), strict=True)}
    assert worths(Simp(scope="current"), post, net) == pytest.approx(current)
    # Of two equal or unequal chances the first is taken: wrong are the images of the second class.
    wrong = [np.mean(world.bank.labels[task.validation] == task.classes[1]) for task in (first, second)]
    errors = {**dict.fromkeys(first.classes, wrong[0]), **dict.fromkeys(second.classes, wrong[1])}
    assert worths(Simp(worth="task"), post, net) == pytest.approx(errors)


@pytest.mark.parametrize(
    ("every", "when", "last"), [(20, "before", [80]), (16, "after", [96]), (50, "after", [100]), (16, "before", [80])]
)
def test_scope_last_asks_for_all_tasks_in_the_last_exchange_of_a_task_only(
    every: int, when: str, last: list[int]
) -> None:
    made = resolve({"sharing": [{"mode": "simp", "scope": "last", "every": every, "when": when}]})
    (mode,) = made.sharing
    assert isinstance(mode, Simp)
    times = [epoch for epoch in range(101) if mode in due(made, 4, epoch, ended=epoch == 100)]
    assert [epoch for epoch in times if is_last(made, mode, 4, epoch)] == last


@pytest.mark.parametrize(
    ("worth", "total", "floor", "remainder"),
    [
        ([3, 1], 20, [15, 5], [15, 5]),
        ([1, 1, 1], 20, [6, 6, 6], [7, 7, 6]),  # 6.67 each; two are left, the first ones get them
        ([0.5, 0.3, 0.2], 7, [3, 2, 1], [4, 2, 1]),  # 3.5, 2.1, 1.4
        ([1, 2, 4], 5, [0, 1, 2], [1, 1, 3]),  # 0.71, 1.43, 2.86
        ([0, 0], 9, [4, 4], [5, 4]),
        ([-1, 2], 6, [0, 6], [0, 6]),
        ([5], 3, [3], [3]),
        ([], 3, [], []),
        ([29, 71], 100, [29, 71], [29, 71]),  # 100 * (29 / 100) is a little less than 29 in floating point
    ],
)
def test_images_are_shared_out_by_worth(worth: list[float], total: int, floor: list[int], remainder: list[int]) -> None:
    assert quotas(np.array(worth, float), total, "floor") == floor
    assert quotas(np.array(worth, float), total, "remainder") == remainder


@given(st.lists(st.integers(0, 50), min_size=1, max_size=10), st.integers(0, 200))
def test_quotas_keep_the_rules_of_largest_remainder(worth: list[int], total: int) -> None:
    whole = sum(worth)
    shares = [Fraction(total * one, whole) if whole else Fraction(total, len(worth)) for one in worth]
    floor, exact = (quotas(np.array(worth, float), total, rule) for rule in ("floor", "remainder"))
    assert sum(exact) == total
    for share, low, high in zip(shares, floor, exact, strict=True):
        assert low == share.numerator // share.denominator
        assert high in (low, low + 1)
    for a in range(len(worth)):
        for b in range(len(worth)):
            if worth[a] > worth[b]:  # who is worth more gets no less
                assert floor[a] >= floor[b]
                assert exact[a] >= exact[b]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=10), st.integers(0, 200))
def test_quotas_of_any_worths_are_whole_and_complete(worth: list[float], total: int) -> None:
    exact = quotas(np.array(worth), total, "remainder")
    floor = quotas(np.array(worth), total, "floor")
    assert sum(exact) == total
    assert sum(floor) <= total
    assert all(high - low in (0, 1) and low >= 0 for low, high in zip(floor, exact, strict=True))


def test_simp_answers_with_random_images_of_the_classes_it_has_by_worth() -> None:
    world, stack, post = ready({"mode": "simp", "images": 6})
    mode, sender, asker = world.settings.sharing[0], world.lanes[0], world.lanes[1]
    own = held(world, stack, 0)
    have = [one for one in range(10) if (own.labels == one).sum() >= 6][:2]
    lack = next(one for one in range(10) if not (own.labels == one).any())
    classes = torch.tensor([have[0], lack, have[1]], dtype=torch.int32)
    # Worth 2 : 9 : 1, of which the middle one is not here: 6 images are 4 and 2.
    payload = {"classes": classes, "worth": torch.tensor([2.0, 9.0, 1.0])}
    (answer,) = mode.answers_of(post, [Mail(asker, sender, "simp", "question", payload, 3)])
    assert answer.payload["labels"].tolist() == [have[0]] * 4 + [have[1]] * 2
    mine = {image.tobytes() for image in world.bank.images[own.rows]}
    assert all(image.numpy().tobytes() in mine for image in answer.payload["images"])


# Buffers of received images


@given(
    st.integers(1, 40),
    st.integers(0, 100),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(["reservoir", "replace"]),
)
def test_a_place_is_never_past_the_room(room: int, more: int, luck: float, rule: str) -> None:
    fill = min(room, more)
    place = slot(fill, more + 1, room, luck, rule)
    if fill < room:
        assert place == fill
    elif rule == "replace":
        assert place is not None
        assert 0 <= place < room
    else:
        assert place is None or 0 <= place < room


def test_a_full_reservoir_takes_the_nth_image_with_chance_room_by_n() -> None:
    # The third image for two places: 3 * 0.33 = 0.99, 3 * 0.66 = 1.98, 3 * 0.67 = 2.01, which is no place.
    assert [slot(2, 3, 2, luck, "reservoir") for luck in (0.33, 0.66, 0.67, 0.99)] == [0, 1, None, None]
    assert [slot(2, 3, 2, luck, "replace") for luck in (0.33, 0.66, 0.67, 0.99)] == [0, 1, 1, 1]


def kept_of(count: int, room: int, rule: str, rng: np.random.Generator) -> list[int]:
    """Which of `count` items a buffer holds in the end."""
    places: list[int] = []
    for item in range(count):
        place = slot(len(places), item + 1, room, float(rng.random()), rule)
        if place == len(places):
            places.append(item)
        elif place is not None:
            places[place] = item
    return places


def test_a_reservoir_keeps_each_item_with_equal_chance_and_replace_the_late_ones() -> None:
    trials, count, room = 12000, 30, 6
    found = {}
    for rule in ("reservoir", "replace"):
        rng = key(0, rule)
        kept = np.concatenate([kept_of(count, room, rule, rng) for _ in range(trials)])
        found[rule] = np.bincount(kept, minlength=count) / trials
        assert found[rule].sum() == pytest.approx(room)
    # 6/30 each; five standard errors of sqrt(0.2 * 0.8 / 12000) = 0.00365.
    assert np.abs(found["reservoir"] - 0.2).max() < 0.0183
    # The last is always kept, the first six survive 24 others with chance (5/6)^24 = 0.0126.
    assert found["replace"][-1] == 1
    assert np.abs(found["replace"][:6] - (5 / 6) ** 24).max() < 0.0126
    assert found["replace"][6:].tolist() == pytest.approx([(5 / 6) ** (29 - i) for i in range(6, 30)], abs=0.046)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=12), max_size=5),
    st.sampled_from(["reservoir", "replace"]),
    st.booleans(),
)
def test_buffers_hold_what_came_and_no_more_than_their_room(
    rounds: list[list[tuple[int, int]]], rule: str, once: bool
) -> None:
    world, stack, post = stored()
    stack = deepcopy(stack)
    post = Post(world, stack, post.mode)
    came: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for stack.epoch, items in enumerate(rounds):
        rows, tasks = np.array(items, np.int64).reshape(-1, 2).T
        arrived = Arrived(world.images(rows), np.arange(len(rows)), rows % 4, tasks)
        store(post, world.lanes[0], arrived, rule, once)
        for row, task in items:
            came[task].append(row)
    assert stack.of("received")["fill"].sum() <= 5 * 4
    assert stack.of("received")["fill"][1:].sum() == 0
    images = world.encode(world.images(np.arange(31)), world.lanes[0])
    for task, all_ in came.items():
        fill = int(stack.of("received")["fill"][0, task])
        assert fill == min(5, len(set(all_)) if once else len(all_))
        assert stack.of("received")["seen"][0, task] >= fill
        places = []
        for place in range(fill):
            (row,) = (images == stack.of("received")["x"][0, task, place]).all(1).nonzero().flatten().tolist()
            assert row in all_
            assert stack.of("received")["y"][0, task, place] == row % 4
            places.append(row)
            if once:
                assert stack.of("received")["marks"][0, task, place] == digest(world.images(np.array([row]))[0])
        if once:
            assert len(set(places)) == fill  # no image twice


@cache
def stored() -> tuple[World, Stack, Post]:
    return ready({"mode": "uniform", "memory": 5})


def test_an_image_goes_to_every_task_so_far_that_has_its_class() -> None:
    world, stack, post = ready({"mode": "uniform"})
    mode, lane, stream = world.settings.sharing[0], world.lanes[0], world.streams[0]
    rows = np.array([np.flatnonzero(world.bank.labels == one)[0] for one in range(10)])
    payload = {"images": world.images(rows), "labels": torch.arange(10, dtype=torch.int32)}
    mode.absorbs_of(post, [], [Mail(world.lanes[1], lane, "uniform", "images", payload, 10)])
    encoded = world.encode(world.images(rows), lane)
    assert stack.of("received")["fill"][0].tolist() == [4, 4, 4, 0]  # task 3 has not come
    for task in range(3):
        classes = sorted(stream[task].classes)
        assert torch.equal(stack.of("received")["x"][0, task, :4], encoded[classes])
        assert stack.of("received")["y"][0, task, :4].tolist() == [stream[task].classes.index(one) for one in classes]


# What is received is learned with the head of its own task


@pytest.mark.parametrize("mode", ["recv", "simp", "uniform"])
def test_received_images_train_through_the_head_of_the_task_they_are_for(mode: str) -> None:
    world, stack, _ = ready({"mode": mode, "when": "before"})
    exchange(world, stack)
    fills = stack.of("received")["fill"]
    assert fills.sum() > 0
    held_ = pool(world, stack, 2, past=True)
    own = 4 * 6 + 2 * 4  # the training set of four classes, and two memories of four
    assert held_.own == own
    for row in range(3):
        assert held_.sizes[row] == own + int(fills[row].sum())
        at = own
        for task in range(3):
            for place in range(int(fills[row, task])):
                assert held_.task[row, at] == task
                assert torch.equal(held_.x[row, at], stack.of("received")["x"][row, task, place])
                assert held_.y[row, at] == stack.of("received")["y"][row, task, place]
                at += 1
    # A modular net that assimilates takes those of the current task alone, an initial one nothing.
    current = pool(world, stack, 2, past=False)
    assert current.sizes == [24 + int(fill) for fill in fills[:, 2]]
    assert (current.task[:, :24] == 2).all()
    assert pool(world, stack, 2, past=True, received=False).sizes == [own] * 3


def test_a_labelled_image_has_its_true_label_in_the_task_it_trains() -> None:
    world, stack, _ = ready({"mode": "simp", "when": "before"})
    exchange(world, stack)
    every = {image.tobytes(): int(label) for image, label in zip(world.bank.images, world.bank.labels, strict=True)}
    known = {
        world.encode(torch.from_numpy(image)[None], world.lanes[0]).numpy().tobytes(): image
        for image in world.bank.images[:900]
    }
    checked = 0
    for row in range(3):
        for task in range(3):
            for place in range(int(stack.of("received")["fill"][row, task])):
                image = known.get(stack.of("received")["x"][row, task, place].numpy().tobytes())
                if image is not None:
                    checked += 1
                    label = every[image.tobytes()]
                    assert world.streams[row][task].classes[int(stack.of("received")["y"][row, task, place])] == label
    assert checked > 10


@settings(deadline=None)
@given(st.data())
def test_a_pool_has_what_is_real_in_front_in_its_old_order(data: st.DataObject) -> None:
    lanes, tasks, own, room = (data.draw(st.integers(1, most)) for most in (4, 3, 5, 4))
    fills = st.lists(st.integers(0, room), min_size=tasks, max_size=tasks)
    fill = torch.tensor(data.draw(st.lists(fills, min_size=lanes, max_size=lanes)))
    size = own + tasks * room
    number = torch.arange(lanes * size).view(lanes, size)
    came = (torch.arange(room) < fill[..., None]).flatten(1)
    real_ones = torch.cat([torch.ones(lanes, own, dtype=torch.bool), came], 1)
    found = gathered(Pool((Images(number[..., None].float(), number, number),), [own] * lanes, own), real_ones)
    for lane in range(lanes):
        real = list(range(own))
        for task in range(tasks):
            first = own + task * room
            real += range(first, first + int(fill[lane, task]))
        want = [lane * size + one for one in real]
        assert found.sizes[lane] == len(want)
        assert found.y[lane, : len(want)].tolist() == want
        assert found.task[lane, : len(want)].tolist() == want
        assert found.x[lane, : len(want), 0].tolist() == want
    assert found.own == own
    assert found.y.shape[1] == max(found.sizes)


def test_a_batch_is_as_large_as_without_what_was_received() -> None:
    world, stack, _ = ready({"mode": "uniform", "when": "before"}, learner={"batch": 64})
    before = batch_size(world, pool(world, stack, 2, past=True))
    exchange(world, stack)
    assert stack.of("received")["fill"].sum() > 0
    assert batch_size(world, pool(world, stack, 2, past=True)) == before == 32


# Averaging


def level(stack: Stack, values: Sequence[float]) -> None:
    """Every lane's shared modules at one value."""
    for name in NAMES:
        stack.params[name][:] = torch.tensor(values).view(-1, *[1] * (stack.params[name].ndim - 1))


@pytest.mark.parametrize("mode", ["fedavg", "fedprox", "fedcurv"])
def test_everybody_takes_the_mean_over_itself_and_its_neighbours(mode: str) -> None:
    world, stack, _ = ready({"mode": mode}, network={"graph": "edges", "edges": LINE})
    level(stack, [1.0, 2.0, 6.0])
    before = deepcopy(stack)
    stack.moved[:] = False
    exchange(world, stack)
    # 0 - 1 - 2: (1 + 2)/2, (1 + 2 + 6)/3, (2 + 6)/2
    for name in NAMES:
        for row, want in enumerate((1.5, 3.0, 4.0)):
            assert (stack.params[name][row] == want).all()
    assert stack.moved.all()
    for name in ("head.weight", "head.bias"):
        assert torch.equal(stack.params[name], before.params[name])
    for group in ("mean", "var", "steps"):
        for name, tensor in stack.of(group).items():
            assert torch.equal(tensor, before.of(group)[name])


def test_added_modules_and_structures_stay_ones_own() -> None:
    world, stack, _ = ready({"mode": "fedavg"}, model="modular-mlp")
    level(stack, [1.0, 2.0, 6.0])
    structure = stack.params["structure"].clone()
    exchange(world, stack)
    for name in NAMES:
        assert (stack.params[name][:, :4] == 3.0).all()
        assert [float(one.unique()) for one in stack.params[name][:, 4:]] == [1.0, 2.0, 6.0]
    assert torch.equal(stack.params["structure"], structure)


def test_averaging_without_training_ends_in_consensus() -> None:
    world, stack, _ = ready({"mode": "fedavg"}, network={"graph": "edges", "edges": LINE}, learner={"epochs": 60})
    level(stack, [1.0, 2.0, 6.0])
    for stack.epoch in range(60):
        exchange(world, stack)
    # An agent counts as many times as its closed neighbourhood has members: (2 * 1 + 3 * 2 + 2 * 6)/7.
    for name in NAMES:
        torch.testing.assert_close(stack.params[name], torch.full_like(stack.params[name], 20 / 7))


@pytest.mark.parametrize("budget", ["unlimited", 600])
@pytest.mark.parametrize("mode", ["fedavg", "fedprox", "fedcurv", "fedfish"])
@pytest.mark.parametrize("agents", [3, 6, 7])
def test_the_mean_of_equal_weights_is_these_weights_to_the_last_bit(agents: int, mode: str, budget: Any) -> None:
    network = {"graph": "complete", "budget": budget}
    made = fleet("mlp", agents=agents, tasks=FEW, sharing=[{"mode": mode, "every": 1}], network=network)
    stack = start(made)
    stack.task = 1
    remember(made, stack, 0)
    for name in NAMES:
        stack.params[name][:] = stack.params[name][:1].clone()
    before = {name: stack.params[name].clone() for name in NAMES}
    stack.moved[:] = False
    exchange(made, stack)
    assert (stack.ledger.column("verdict") == ACCEPTED).all()
    assert len(stack.ledger) == agents * (agents - 1)
    for name in NAMES:
        assert torch.equal(stack.params[name], before[name])
    assert not stack.moved.any()


def test_of_modules_that_have_not_come_one_keeps_ones_own() -> None:
    budget = 2 * (16 * 16 + 16 + 1)
    world, stack, post = ready({"mode": "fedavg"}, network={"graph": "complete", "budget": budget})
    level(stack, [1.0, 2.0, 6.0])
    turn = post.now * 2 % 4
    exchange(world, stack)
    for name in NAMES:
        assert (stack.params[name][:, turn : turn + 2] == 3.0).all()
        rest = [unit for unit in range(4) if unit not in (turn, turn + 1)]
        assert [float(one.unique()) for one in stack.params[name][:, rest]] == [1.0, 2.0, 6.0]


# Penalties


def batch_of(tasks: Sequence[int], weight: Sequence[float]) -> Batch:
    count = len(tasks)
    return Batch(
        torch.zeros(count, 2), torch.zeros(count, dtype=torch.int64), torch.tensor(weight), torch.tensor(tasks)
    )


ONE = batch_of([0, 0], [1.0, 1.0])


def prox(weight: Tensor, bias: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Three modules, of which two are shared and anchored at zero."""
    free = {"module.weight": weight.requires_grad_(), "module.bias": bias.requires_grad_()}
    kept = {"anchor.module.weight": torch.zeros(2, 2, 2), "anchor.module.bias": torch.zeros(2, 2)}
    return free, kept | {"on": torch.tensor(1.0)}


def framed(free: dict[str, Tensor], state: dict[str, Tensor], batch: Batch) -> Frame:
    """One agent in the middle of a step, of a net whose modules are shared."""
    model = cast(Any, SimpleNamespace(body=dict.fromkeys(NAMES, 2)))
    return Frame(model, cast(Any, free), free, {}, batch, state)


@pytest.mark.parametrize("scaling", ["once", "task"])
@pytest.mark.parametrize("squared", [True, False])
def test_the_pull_of_fedprox_is_the_gradient_of_its_penalty(squared: bool, scaling: Any) -> None:
    weight = torch.stack([torch.ones(2, 2), torch.zeros(2, 2), torch.full((2, 2), 9.0)])  # module 1 is at its anchor
    free, kept = prox(weight, torch.tensor([[3.0, 4.0], [0.0, 0.0], [9.0, 9.0]]))
    free = {name: tensor.requires_grad_() for name, tensor in free.items()}
    mode, frame = FedProx(mu=0.5, squared=squared, scaling=scaling), framed(free, kept, ONE)
    found = torch.autograd.grad(mode.penalty(frame), list(free.values()))
    for (name, pull), gradient in zip(mode.pull(frame).items(), found, strict=True):
        assert torch.equal(pull, gradient[:2]), name
        assert not gradient[2:].any()


@pytest.mark.parametrize(("squared", "total"), [(True, 29.0), (False, 7.0)])
def test_the_penalty_of_fedprox_is_half_mu_times_the_distance(squared: bool, total: float) -> None:
    # Module 0: weights 1 1 1 1, biases 3 4; module 1 at its anchor; module 2 is not shared.
    # Squared: 4 + 25 = 29. Plain: 2 + 5 = 7.
    weight = torch.stack([torch.ones(2, 2), torch.zeros(2, 2), torch.full((2, 2), 9.0)])
    free, kept = prox(weight, torch.tensor([[3.0, 4.0], [0.0, 0.0], [9.0, 9.0]]))
    mode = FedProx(mu=0.5, squared=squared)
    found = mode.penalty(framed(free, kept, ONE))
    assert found.item() == pytest.approx(0.25 * total)
    weights, biases = torch.autograd.grad(found, list(free.values()))
    # mu (w - a), or mu/2 (w - a)/|w - a|; nothing, and nothing infinite, where there is no distance.
    torch.testing.assert_close(weights[0], torch.full((2, 2), 0.5 if squared else 0.25 / 2))
    torch.testing.assert_close(biases[0], torch.tensor([3.0, 4.0]) * (0.5 if squared else 0.25 / 5))
    assert not weights[1:].any()
    assert not biases[1:].any()
    assert mode.penalty(framed(free, kept | {"on": torch.tensor(0.0)}, ONE)) == 0


@pytest.mark.parametrize("squared", [True, False])
def test_at_no_distance_the_pull_is_zero_under_vmap_too(squared: bool) -> None:
    free, kept = prox(torch.zeros(3, 2, 2), torch.zeros(3, 2))
    mode = FedProx(squared=squared)

    def pull(weight: Tensor) -> Tensor:
        return mode.penalty(framed({**free, "module.weight": weight}, kept, ONE))

    found = torch.func.vmap(torch.func.grad(pull))(torch.zeros(4, 3, 2, 2))
    assert torch.equal(found, torch.zeros(4, 3, 2, 2))


def test_the_papers_scaling_counts_tasks_and_divides_by_images() -> None:
    # Two tasks, 0 and 2, in three images; the fourth place is padding.
    batch = batch_of([0, 0, 2, 5], [1.0, 1.0, 1.0, 0.0])
    assert scale("once", batch) == 1
    assert float(scale("task", batch)) == pytest.approx(2 / 3)
    assert float(scale("task", batch_of([0, 0, 2, 2], [1.0, 1.0, 1.0, 0.0]))) == pytest.approx(2 / 3)
    assert float(scale("task", batch_of([3] * 4, [1.0] * 4))) == pytest.approx(1 / 4)
    assert float(scale("task", batch_of([0, 1, 2, 3], [1.0] * 4))) == pytest.approx(1.0)
    assert float(scale("task", batch_of([1, 2], [0.0, 0.0]))) == 0
    many = Batch(*(torch.stack([one, other]) for one, other in zip(batch, batch_of([1] * 4, [1.0] * 4), strict=True)))
    mapped = torch.func.vmap(lambda one: scale("task", one))(many)
    torch.testing.assert_close(mapped, torch.tensor([2 / 3, 1 / 4]))
    free, kept = prox(torch.ones(3, 2, 2), torch.zeros(3, 2))
    once, scaled = (FedProx(scaling=rule).penalty(framed(free, kept, batch)) for rule in ("once", "task"))
    assert scaled.item() == pytest.approx(once.item() * 2 / 3)


def test_the_anchor_of_fedprox_is_the_mean() -> None:
    world, stack, _ = ready({"mode": "fedprox"}, network={"graph": "edges", "edges": LINE[:2]})
    level(stack, [1.0, 2.0, 6.0])
    exchange(world, stack)
    assert stack.of("fedprox")["on"].tolist() == [1, 1, 0]
    for name in NAMES:
        anchor = stack.of("fedprox")[f"anchor.{name}"]
        assert (anchor[:2] == 1.5).all()
        assert torch.equal(anchor[:2], stack.params[name][:2])


def test_the_pull_of_fedcurv_is_the_sum_over_neighbours() -> None:
    world, stack, post = ready({"mode": "fedcurv", "mu": 0.7})
    mode, rng = world.settings.sharing[0], key(0)
    assert isinstance(mode, FedCurv)
    letters = []
    for sender in world.lanes[1:]:
        payload: dict[str, Tensor] = {"modules": torch.arange(4, dtype=torch.int32)}
        for name in NAMES:
            shape = stack.params[name][0].shape
            payload[name] = torch.from_numpy(rng.normal(size=shape)).float()
            payload[f"fisher.{name}"] = torch.from_numpy(rng.random(shape)).float()
        letters.append(Mail(sender, world.lanes[0], mode.mode, "model", payload, 4))
    own = {name: stack.params[name][0].clone() for name in NAMES}
    mode.absorbs_of(post, [], letters)
    for name in NAMES:
        mean = (own[name] + letters[0].payload[name] + letters[1].payload[name]) / 3
        torch.testing.assert_close(stack.params[name][0], mean)
    assert stack.of("fedcurv")["on"].tolist() == [1, 0, 0]
    free = {name: torch.from_numpy(rng.normal(size=own[name].shape)).float().requires_grad_() for name in NAMES}
    kept = {name: tensor[0] for name, tensor in stack.of("fedcurv").items()}
    found = torch.autograd.grad(mode.penalty(framed(free, kept, ONE)), list(free.values()))
    for name, gradient in zip(NAMES, found, strict=True):
        naive = sum(
            2 * 0.7 * mail.payload[f"fisher.{name}"] * (free[name].detach() - mail.payload[name]) for mail in letters
        )
        torch.testing.assert_close(gradient, naive, rtol=1e-5, atol=1e-5)
    others = {name: tensor[1] for name, tensor in stack.of("fedcurv").items()}
    assert mode.penalty(framed(free, others, ONE)) == 0


# The Fisher diagonal


@cache
def trained(model: str, engine: str) -> tuple[World, Stack]:
    """A fleet in the middle of its last task, with received images, added modules and a candidate."""
    states: list[Stack] = []
    sharing = [{"mode": "uniform", "every": 1, "images": 8, "memory": 3}]
    groups: dict[str, Any] = {
        "tasks": {"count": 4, "initial": 2, "classes": 3, "train": 6, "validation": 4},
        "learner": {"epochs": 3, "memory": 4, "accept": 0.0, "batch": 8},
        "machine": {"engine": engine},
    }
    world = fleet(model, agents=2, sharing=sharing, **groups)
    simulate(world, watch=lambda stack: states.append(deepcopy(stack)))
    return world, next(state for state in states if (state.task, state.epoch) == (3, 2))


@pytest.mark.parametrize("rule", ["sample", "batch"])
@pytest.mark.parametrize("model", ["mlp", "modular-mlp", "cnn", "modular-cnn"])
@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_the_fisher_diagonal_is_that_of_a_plain_loop(model: str, engine: str, rule: str) -> None:
    """`sample`: the mean over images of squared gradients. `batch`: over batches, of the sum of tasks' mean losses."""
    world, stack = trained(model, engine)
    found = fisher(world, stack, rule, samples=9)
    held_ = pool(world, stack, stack.task, past=True)
    count = body_units(world.model)
    assert (found["module.weight"] > 0).any(-1).any(-1).all() or model.endswith("cnn")
    for row, lane in enumerate(world.lanes):
        order = torch.from_numpy(key(*lane, "fisher", stack.task, stack.epoch).permutation(held_.sizes[row]))
        groups = order[:9].split(1) if rule == "sample" else order.split(batch_size(world, held_))
        free = {name: stack.params[name][row, :count].clone().requires_grad_() for name in NAMES}
        params = {name: tensor[row] for name, tensor in stack.params.items()}
        params |= {name: torch.cat([free[name], params[name][count:]]) for name in NAMES}
        total = {name: torch.zeros_like(free[name]) for name in NAMES}
        for at in groups:
            tasks, loss = held_.task[row, at], torch.zeros(())
            for task in tasks.unique().tolist():
                mine = at[tasks == task]
                logits = logits_of(world, stack, row, held_.x[row, mine], task, params)
                loss = loss + F.cross_entropy(logits, held_.y[row, mine])
            pull = torch.autograd.grad(loss, list(free.values()), retain_graph=True)
            for name, gradient in zip(NAMES, pull, strict=True):
                total[name] += gradient.square() / len(groups)
        for name in NAMES:
            size = float(total[name].max())
            assert size > 0
            torch.testing.assert_close(found[name][row], total[name], rtol=1e-3, atol=1e-5 * size)


def test_a_frozen_fisher_diagonal_is_zero() -> None:
    world, stack = trained("modular-mlp", "vmap")
    assert not any(tensor.any() for tensor in fisher(world, stack, "frozen", 9).values())


def test_frozen_modular_fedcurv_does_not_depend_on_mu() -> None:
    """As in the paper's code, where the modules were frozen when the diagonal was computed (self-check 3)."""
    groups: dict[str, Any] = {"tasks": {**FEW, "count": 3}, "learner": {"epochs": 2, "memory": 4}}
    ends = {}
    for rule in ("frozen", "sample"):
        for mu in (0.001, 1.0):
            table = {"mode": "fedcurv", "every": 1, "mu": mu, "fisher": rule, "samples": 8}
            ends[rule, mu] = simulate(fleet("modular-mlp", sharing=[table], **groups)).params["module.weight"]
    assert torch.equal(ends["frozen", 0.001], ends["frozen", 1.0])
    assert not torch.equal(ends["sample", 0.001], ends["sample", 1.0])


# FedFish

MATTERS = {
    "module.weight": torch.tensor([[[0.0, 3.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]),
    "module.bias": torch.tensor([[2.0, 1.0], [5.0, 5.0]]),
}


def of_one(matters: dict[str, torch.Tensor], rule: str, temperature: float) -> dict[str, torch.Tensor]:
    """What one lane keeps, beside another to which other things matter."""
    pair = {name: torch.stack([tensor, tensor.flip(-1) + 1]) for name, tensor in matters.items()}
    return {name: tensor[0] for name, tensor in normalised(pair, rule, temperature).items()}


def test_rank_is_the_place_in_its_tensor_and_equals_are_equal() -> None:
    found = of_one(MATTERS, "rank", 1.0)
    # 0 1 1 3: places 0, 1, 1, 3 of 3; where nothing differs, nothing is kept.
    want = torch.tensor([[[0, 1], [1 / 3, 1 / 3]], [[0, 0], [0, 0]]])
    torch.testing.assert_close(found["module.weight"], want)
    torch.testing.assert_close(found["module.bias"], torch.tensor([[1.0, 0.0], [0.0, 0.0]]))


def test_max_is_the_share_of_the_largest_in_its_tensor() -> None:
    found = of_one(MATTERS, "max", 1.0)
    want = torch.tensor([[[0, 1], [1 / 3, 1 / 3]], [[0, 0], [0, 0]]])
    torch.testing.assert_close(found["module.weight"], want)
    torch.testing.assert_close(found["module.bias"], torch.tensor([[1.0, 0.5], [1.0, 1.0]]))


@given(st.integers(0, 2**32 - 1), st.sampled_from(["rank", "max", "softmax"]), st.sampled_from([0.01, 1.0, 100.0]))
def test_what_is_kept_is_a_share_that_grows_with_what_matters(seed: int, rule: str, temperature: float) -> None:
    rng = key(seed)
    matters = {
        "module.weight": torch.from_numpy(rng.choice([0.0, *rng.random(20)], (2, 4, 4))).float(),
        "module.bias": torch.from_numpy(rng.random((2, 4))).float(),
    }
    found = of_one(matters, rule, temperature)
    for name, share in found.items():
        assert share.shape == matters[name].shape
        assert ((share >= 0) & (share <= 1)).all()
        for module, kept in zip(matters[name].flatten(1), share.flatten(1), strict=True):
            order = module.argsort()
            assert (kept[order].diff() >= 0).all()
            assert (kept[order].diff()[module[order].diff() == 0] == 0).all()
    if rule == "softmax":
        assert sum(float(share.sum()) for share in found.values()) == pytest.approx(1, abs=1e-5)
        flat = torch.cat([tensor.flatten() for tensor in matters.values()])
        naive = (flat.double() / temperature).exp()
        want = (naive / naive.sum()).float() if naive.isfinite().all() else None
        both = torch.cat([share.flatten() for share in found.values()])
        if want is not None:
            torch.testing.assert_close(both, want, rtol=1e-3, atol=1e-7)


def test_fedfish_lies_between_ones_own_weights_and_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    world, stack, _ = ready({"mode": "fedfish", "norm": "max"})
    assert isinstance(world.settings.sharing[0], FedFish)
    level(stack, [1.0, 2.0, 6.0])
    matters = {name: torch.zeros_like(stack.params[name]) for name in NAMES}
    # In every tensor the first weight matters most, the second half as much, the rest not at all.
    for name in NAMES:
        matters[name].flatten(2)[..., 0] = 8.0
        matters[name].flatten(2)[..., 1] = 4.0
    monkeypatch.setattr(present, "fisher", lambda *arguments: matters)
    exchange(world, stack)
    for name in NAMES:
        flat = stack.params[name].flatten(2)
        for row, own in enumerate((1.0, 2.0, 6.0)):
            assert (flat[row, :, 0] == own).all()
            assert (flat[row, :, 1] == own / 2 + 3 / 2).all()
            assert (flat[row, :, 2:] == 3.0).all()


def test_frozen_fedfish_is_fedavg() -> None:
    ends = []
    for table in (
        {"mode": "fedavg"},
        *({"mode": "fedfish", "fisher": "frozen", "norm": norm} for norm in ("rank", "max")),
    ):
        world, stack, _ = ready(table, model="modular-mlp")
        exchange(world, stack)
        ends.append(stack.params["module.weight"])
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


# What a receiver expects

EXPECTED = {
    "images": Expected(torch.uint8, (None, 2, 2)),
    "labels": Expected(torch.int32, (None,), 10),
    "worth": Expected(torch.float32, (None,)),
}


def letter(**changes: Tensor) -> dict[str, Tensor]:
    plain = {
        "images": torch.zeros(3, 2, 2, dtype=torch.uint8),
        "labels": torch.tensor([0, 9, 4], dtype=torch.int32),
        "worth": torch.tensor([0.0, -1.0, 1e30]),
    }
    return plain | changes


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, ACCEPTED),
        ({"labels": torch.tensor([0, 10, 4], dtype=torch.int32)}, OUT_OF_RANGE),
        ({"labels": torch.tensor([0, -1, 4], dtype=torch.int32)}, OUT_OF_RANGE),
        ({"labels": torch.tensor([0, 9, 4])}, WRONG_SHAPE),  # of 64 bits
        ({"labels": torch.tensor([0, 9], dtype=torch.int32)}, WRONG_SHAPE),
        ({"labels": torch.zeros(3, 1, dtype=torch.int32)}, WRONG_SHAPE),
        ({"images": torch.zeros(3, 2, 3, dtype=torch.uint8)}, WRONG_SHAPE),
        ({"images": torch.zeros(3, 2, 2)}, WRONG_SHAPE),
        ({"worth": torch.tensor([0.0, torch.nan, 1.0])}, NOT_FINITE),
        ({"worth": torch.tensor([0.0, -torch.inf, 1.0])}, NOT_FINITE),
        ({"gift": torch.zeros(3)}, WRONG_SHAPE),
        # An empty message is one.
        ({name: tensor[:0] for name, tensor in letter().items()}, ACCEPTED),
    ],
)
def test_a_receiver_judges_what_arrives(changes: dict[str, Tensor], verdict: str) -> None:
    assert fault(letter(**changes), EXPECTED) == verdict


def test_a_message_without_a_part_is_refused() -> None:
    for name in EXPECTED:
        assert fault({one: tensor for one, tensor in letter().items() if one != name}, EXPECTED) == WRONG_SHAPE


@pytest.mark.parametrize(("modules", "verdict"), [([], OUT_OF_RANGE), ([1, 1], OUT_OF_RANGE), ([2, 0], ACCEPTED)])
def test_a_message_with_no_module_or_one_twice_is_refused(modules: list[int], verdict: str) -> None:
    made = fleet("mlp", sharing=[{"mode": "fedavg", "every": 2}])
    mode = made.settings.sharing[0]
    assert isinstance(mode, FedAvg)
    weights = {name: start(made).params[name][0, modules] for name in NAMES}
    payload = {**weights, "modules": torch.tensor(modules, dtype=torch.int32)}
    mail = Mail(Lane(0, 0), Lane(0, 1), "fedavg", "model", payload, 4)
    assert mode.objects(Post(made, start(made), mode), mail) == verdict
