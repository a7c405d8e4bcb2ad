"""A post that nobody can break: whatever is handed to it, or arrives, becomes a verdict, and the others go on."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.here import Here
from shoal.fleet.members import Crew
from shoal.fleet.stack import CLOCK, Stack
from shoal.fleet.world import World
from shoal.mail.mail import (
    ACCEPTED,
    FORGED,
    NO_EDGE,
    NO_TENSORS,
    ONCE,
    OUT_OF_RANGE,
    SENT_ALREADY,
    SILENT,
    TOO_LARGE,
    TOO_MANY,
    TOO_MUCH,
    UNKNOWN_KIND,
    UNREADABLE,
    WRONG_SHAPE,
    Mail,
)
from shoal.mail.post import Post
from shoal.sharing.contract import Sharing
from shoal.sharing.exchange import meet
from shoal.sharing.modes import MODES
from tests.fleets import entries, exchange, model_of, ready, same, total

CHAIN = {"graph": "edges", "edges": [{"sender": a, "receiver": b} for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]}
Change = Callable[[Mail], Any]


def first_of(world: World) -> int:
    """The epoch of the first exchange of a task."""
    (mode,) = world.settings.sharing
    if mode.when == "before":
        return 0
    return world.settings.learner.epochs if mode.every == "task" else 1


def attacked(
    patch: pytest.MonkeyPatch, mode: str, change: Change, verb: str = "answer", **changes: Any
) -> tuple[World, Stack]:
    """Three agents after an exchange at which agent 1 sends agent 0 something else: a mail, several, or none."""
    world, stack = ready(model_of(mode), [{"mode": mode, **changes.pop("own", {})}], **changes)
    stack.epoch = first_of(world)
    honest = getattr(MODES[mode], verb)

    def hostile(self: Sharing, post: Post, *questions: Sequence[Mail]) -> list[Mail]:
        mails: list[Mail] = []
        for mail in honest(self, post, *questions):
            ours = (mail.sender.agent, mail.receiver.agent) == (1, 0)
            said = change(mail) if ours else mail
            mails += said if isinstance(said, list) else [] if said is None else [said]
        return mails

    with patch.context() as inner:
        inner.setattr(MODES[mode], verb, hostile)
        exchange(world, stack)
    return world, stack


def verdicts(stack: Stack, kind: str = "") -> list[str]:
    """What became of what agent 1 has sent to agent 0, or has tried to."""
    rows = [
        row for row in entries(stack.ledger) if row["verdict"] != ACCEPTED or (row["sender"], row["receiver"]) == (1, 0)
    ]
    return [row["verdict"] for row in rows if kind in ("", row["kind"])]


def but(**changes: Any) -> Change:
    return lambda mail: replace(mail, **changes)


def holding(name: str, make: Callable[[Tensor], Any]) -> Change:
    return lambda mail: replace(mail, payload={**mail.payload, name: make(mail.payload[name])})


WEIGHT = "module.weight"
# What agent 1 hands over instead of its model for agent 0, and what becomes of it.
MALFORMED: dict[str, tuple[Change, str]] = {
    "from a lane that nobody knows": (but(sender=Lane(0, 99)), FORGED),
    "from another seed": (but(sender=Lane(7, 1)), FORGED),
    "from another agent": (but(sender=Lane(0, 2)), FORGED),
    "from no lane at all": (but(sender="agent 2"), FORGED),
    "from a lane that is no number": (but(sender=Lane(0, "1")), FORGED),  # type: ignore[arg-type]
    "to a lane that nobody knows": (but(receiver=Lane(0, 99)), NO_EDGE),
    "to no lane at all": (but(receiver=None), NO_EDGE),
    "to itself": (but(receiver=Lane(0, 1)), NO_EDGE),
    "of another mode": (but(mode="recv"), FORGED),
    "of another kind": (but(kind="question"), FORGED),
    "of a kind that is no word": (but(kind=3), FORGED),
    "of another time": (but(task=0), FORGED),
    "under another name": (but(id="0/2-0/fedavg/model/2.0"), FORGED),
    "under no name": (but(id=""), FORGED),
    "that is never due": (but(due=10**30), FORGED),
    "of no payload": (but(payload=None), NO_TENSORS),
    "of a payload without names": (but(payload={1: torch.zeros(3)}), NO_TENSORS),
    "of lists": (holding(WEIGHT, lambda one: one.tolist()), NO_TENSORS),
    "of sparse tensors": (holding(WEIGHT, lambda one: one.to_sparse()), NO_TENSORS),
    "of tensors without numbers": (holding(WEIGHT, lambda one: one.to("meta")), NO_TENSORS),
    "of complex numbers": (holding(WEIGHT, lambda one: one.to(torch.complex64)), NO_TENSORS),
    "of more numbers than there is memory": (holding(WEIGHT, lambda one: torch.zeros(1).expand(10**13)), TOO_MUCH),
    "of a thousand modules": (holding(WEIGHT, lambda one: one.repeat(1000, 1, 1)), TOO_MUCH),
    "of an empty payload": (but(payload={}), WRONG_SHAPE),
    "of huge weights": (holding(WEIGHT, lambda one: one * 1e30), TOO_LARGE),
    "of large weights": (holding(WEIGHT, lambda one: one * 20), TOO_LARGE),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_mail_is_a_verdict_and_as_if_it_had_never_come(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, verdict = MALFORMED[what]
    _, stack = attacked(monkeypatch, "fedavg", change)
    assert verdicts(stack) == [verdict]
    _, lost = attacked(monkeypatch, "fedavg", lambda mail: None)
    same(stack, lost)
    paid = [row["floats"] for row in entries(stack.ledger) if row["verdict"] in (ACCEPTED, WRONG_SHAPE, TOO_LARGE)]
    assert total(stack) == sum(paid)


def test_nobody_sends_where_there_is_no_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}], network=CHAIN)
    post = Post(world, stack, world.settings.sharing[0])
    mail = post.mail(Lane(0, 0), Lane(0, 2), "model", {}, 0)
    assert [verdict for _, verdict in post.send([mail])] == [NO_EDGE]


@pytest.mark.parametrize("items", [10**30, -(10**30), -1, 3, None, "many", 2.5])
def test_the_post_counts_items_itself(items: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, stack = attacked(monkeypatch, "fedavg", but(items=items))
    assert verdicts(stack) == [ACCEPTED]
    assert {row["items"] for row in entries(stack.ledger)} == {4}
    world, stack = ready("mlp", [{"mode": "fedavg", "receipts": True}])
    post = Post(world, stack, world.settings.sharing[0])
    receipt = post.mail(Lane(0, 1), Lane(0, 0), "receipt", {"last": torch.zeros(1, dtype=torch.int32)}, items)
    ((sent, _),) = post.send([receipt])
    assert sent.items in (0, 1)


def test_nobody_spends_the_budget_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    _, stack = attacked(monkeypatch, "fedavg", lambda mail: [mail, *[replace(mail, sender=Lane(0, 2))] * 5])
    assert verdicts(stack) == [FORGED] * 5 + [ACCEPTED] or verdicts(stack) == [ACCEPTED] + [FORGED] * 5
    _, honest = attacked(monkeypatch, "fedavg", lambda mail: mail)
    assert stack.ledger.uses == honest.ledger.uses
    same(stack, honest)


# Agents that are not trained have nothing to say of dictionaries.
UNTRAINED = [mode for mode in MODES if mode != "colla"]


@pytest.mark.parametrize("mode", UNTRAINED)
def test_one_sender_counts_once_at_an_exchange(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty copies of the same mail, or fifty that the post has named, are one."""
    _, honest = attacked(monkeypatch, mode, lambda mail: mail)
    _, copied = attacked(monkeypatch, mode, lambda mail: [mail] * 50)
    same(copied, honest)
    assert total(copied) == total(honest)
    assert verdicts(copied).count(SENT_ALREADY) == 49 * sum(
        one == ACCEPTED for one in verdicts(honest, answer_of(honest))
    )


def answer_of(stack: Stack) -> str:
    return str(stack.ledger.column("kind")[-1])


def test_what_a_sender_names_anew_is_still_the_same_sender() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    mode = world.settings.sharing[0]
    post = Post(world, stack, mode)
    ends = Lane(0, 1), Lane(0, 0)
    (model,) = [mail for mail in mode.answer(post, []) if (mail.sender, mail.receiver) == ends]
    more = [post.mail(*ends, "model", model.payload, 4) for _ in range(3)]
    assert [verdict for _, verdict in post.send([model, *more])] == [ACCEPTED] + [SENT_ALREADY] * 3
    assert post.receive([model, *more]) == [ACCEPTED] + [ONCE] * 3  # however they have come


def test_a_receiver_knows_the_kinds_of_a_mode_and_their_time() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    mode = world.settings.sharing[0]
    post = Post(world, stack, mode)
    model = mode.answer(post, [])[0]
    booked = post.mail(model.sender, model.receiver, "question", model.payload, 4)
    assert post.receive([booked]) == [UNKNOWN_KIND]
    world, stack = ready("mlp", [{"mode": "recv"}])
    post = Post(world, stack, world.settings.sharing[0])
    question = world.settings.sharing[0].ask(post)[0]
    post.verb = "answer"
    assert post.receive([question]) == [UNKNOWN_KIND]


def test_an_answer_has_no_more_images_than_its_receiver_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(times: int) -> Change:
        return lambda mail: replace(
            mail, payload={name: one[:1].expand(times, *one.shape[1:]) for name, one in mail.payload.items()}
        )

    for times, verdict in ((10_000, TOO_MUCH), (4, TOO_MANY), (3, ACCEPTED)):
        _, stack = attacked(monkeypatch, "recv", flood(times), own={"queries": 6, "nearest": 3})
        assert verdicts(stack, "answer") == [verdict]


def test_pixels_lie_below_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    for pixel, verdict in ((16, ACCEPTED), (17, OUT_OF_RANGE), (255, OUT_OF_RANGE)):
        _, stack = attacked(monkeypatch, "uniform", holding("images", partial(torch.full_like, fill_value=pixel)))
        assert verdicts(stack) == [verdict]


@pytest.mark.parametrize(("value", "verdict"), [(-1.0, OUT_OF_RANGE), (1e30, OUT_OF_RANGE), (0.0, ACCEPTED)])
def test_what_matters_is_never_negative_nor_beyond_measure(
    value: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = holding(f"fisher.{WEIGHT}", lambda one: torch.full_like(one, value))
    assert verdicts(attacked(monkeypatch, "fedcurv", change)[1]) == [verdict]


@pytest.mark.parametrize(("score", "verdict"), [(1e30, OUT_OF_RANGE), (1.1, OUT_OF_RANGE), (1.0, ACCEPTED)])
def test_a_score_is_one_that_its_metric_can_have(score: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change = holding("scores", lambda one: torch.full_like(one, score))
    _, stack = attacked(monkeypatch, "modmod", change, own={"min_similarity": -1.0})
    assert verdicts(stack, "modules") == [verdict]


def test_a_module_of_huge_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    change = holding(WEIGHT, lambda one: torch.full_like(one, 1e30))
    _, stack = attacked(monkeypatch, "modmod", change, own={"min_similarity": -1.0})
    assert verdicts(stack, "modules") == [TOO_LARGE]


@pytest.mark.parametrize("mode", UNTRAINED)
def test_mail_is_frozen_when_it_is_posted(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender keeps its tensors, with gradients, and writes to them when its mail has left."""
    world, stack = ready(model_of(mode), [{"mode": mode}])
    stack.epoch = first_of(world)
    honest = deepcopy(stack)
    kept: list[dict[str, Tensor]] = []
    exchange(world, honest)

    def answer(self: Sharing, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        mails = []
        for mail in answers(self, post, questions):
            floats = {name: one.clone().requires_grad_(one.is_floating_point()) for name, one in mail.payload.items()}
            kept.append(floats)
            mails.append(replace(mail, payload=floats))
        return mails

    def absorb(self: Sharing, post: Post, questions: Sequence[Mail], arrived: Sequence[Mail]) -> None:
        for payload in kept:
            for tensor in payload.values():
                tensor.data.fill_(7)
            payload.clear()
        absorbs(self, post, questions, arrived)

    answers, absorbs = MODES[mode].answer, MODES[mode].absorb
    monkeypatch.setattr(MODES[mode], "answer", answer)
    monkeypatch.setattr(MODES[mode], "absorb", absorb)
    exchange(world, stack)
    assert kept
    same(stack, honest)
    assert (stack.ledger.rows == honest.ledger.rows).all()


def test_what_a_receiver_has_is_never_what_its_sender_has() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    seen: list[Mail] = []
    exchange(world, stack, observe=lambda mail, verdict: seen.append(mail))
    own = {tensor.untyped_storage().data_ptr() for tensor in stack.params.values()}
    assert seen
    assert all(one.untyped_storage().data_ptr() not in own for mail in seen for one in mail.payload.values())


# Who speaks


class Liar:
    """A member that says that its mail is from others."""

    def __init__(self, here: Here, change: Change) -> None:
        self.here, self.lanes, self.change = here, here.lanes, change

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.here, verb)

    def answer(self) -> list[Any]:
        posted = self.here.answer()
        return [(self.change(mail) if mail.sender.agent == 1 else mail, verdict) for mail, verdict in posted]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [(but(sender=Lane(0, 99)), FORGED), (but(receiver=Lane(0, 99)), NO_EDGE), (but(receiver=Lane(0, 1)), NO_EDGE)],
)
def test_a_member_speaks_for_its_own_lanes_and_over_edges(change: Change, verdict: str) -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    here = Here([world], [stack])
    crew = Crew((world,), [Liar(here, change)], here.ledger, joint=False)
    meet(crew, world.settings, stack.task, stack.epoch)
    assert {row["verdict"] for row in entries(stack.ledger)} == {ACCEPTED, verdict}


# Code that fails


@pytest.mark.parametrize(("mode", "verb"), [("recv", "ask"), ("recv", "answer"), ("fedavg", "answer")])
def test_agents_whose_code_fails_are_silent_and_the_ledger_says_why(
    mode: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Sharing, post: Post, *questions: Sequence[Mail]) -> list[Mail]:
        raise KeyError("a page is missing")

    world, stack = ready("mlp", [{"mode": mode, "when": "before"}])
    before = deepcopy(stack)
    monkeypatch.setattr(MODES[mode], verb, fails)
    exchange(world, stack)
    rows = [row for row in entries(stack.ledger) if row["verdict"] == SILENT]
    assert {row["sender"] for row in rows} == {0, 1, 2}
    assert {(row["kind"], row["mode"], row["floats"]) for row in rows} == {("KeyError: 'a page is missing'", mode, 0)}
    same(stack, before, but=(CLOCK, mode))


@pytest.mark.parametrize("mode", ["recv", "fedavg", "fedcurv"])
def test_what_code_that_fails_has_half_absorbed_is_undone(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the run: nobody knew what it had written."""
    honest = MODES[mode].absorb

    def fails(self: Sharing, post: Post, *mails: Sequence[Mail]) -> None:
        honest(self, post, *mails)
        post.stack.of(self.owner)["new"] = torch.ones(len(post.stack.lanes))
        post.stack.params[WEIGHT] = torch.zeros_like(post.stack.params[WEIGHT])
        raise KeyError("a page is missing")

    world, stack = ready("mlp", [{"mode": mode, "when": "before"}])
    before = deepcopy(stack)
    monkeypatch.setattr(MODES[mode], "absorb", fails)
    exchange(world, stack)
    same(stack, before, but=(CLOCK,))
    rows = entries(stack.ledger)
    assert {row["verdict"] for row in rows} == {ACCEPTED, SILENT}
    assert [row["sender"] for row in rows if row["verdict"] == SILENT] == [0, 1, 2]
    assert rows[-1]["kind"] == "KeyError: 'a page is missing'"
    monkeypatch.setattr(MODES[mode], "absorb", honest)
    stack.epoch += 1
    exchange(world, stack)
    with pytest.raises(AssertionError, match="differs"):  # it goes on as if nothing had come
        same(stack, before, but=(CLOCK,))


def test_code_that_hands_over_no_mail_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODES["fedavg"], "answer", lambda self, post, questions: ["a letter"])
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    exchange(world, stack)
    assert set(stack.ledger.column("verdict").tolist()) == {SILENT}


def test_a_mode_that_writes_before_it_absorbs_is_told_so_even_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(self: Sharing, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        post.stack.params[WEIGHT].zero_()
        raise KeyError

    monkeypatch.setattr(MODES["fedavg"], "answer", writes)
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    with pytest.raises(SettingsError, match=r"before it absorbs, wrote `module\.weight`"):
        exchange(world, stack)


def test_mail_that_its_receivers_code_cannot_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def objects(self: Sharing, post: Post, mail: Mail) -> str:
        raise IndexError("too short")

    monkeypatch.setattr(MODES["fedavg"], "objects", objects)
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    exchange(world, stack)
    assert set(stack.ledger.column("verdict").tolist()) == {UNREADABLE}
