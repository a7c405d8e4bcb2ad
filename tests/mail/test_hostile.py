"""A post that nobody can break: whatever is handed to it, or arrives, becomes a verdict, and the others go on."""

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import CodeError, SettingsError
from shoal.fleet.exchange import meet_all
from shoal.fleet.here import Here
from shoal.fleet.members import Crew
from shoal.letters.ledger import Ledger
from shoal.letters.mail import (
    ACCEPTED,
    FORGED,
    NO_EDGE,
    NO_TENSORS,
    ONCE,
    OUT_OF_RANGE,
    SENT_ALREADY,
    TOO_LARGE,
    TOO_MANY,
    TOO_MUCH,
    UNKNOWN_KIND,
    UNSENT,
    WRONG_SHAPE,
    Mail,
)
from shoal.mail.post import Post
from shoal.runs.summaries import traffic
from shoal.runs.tables import posted
from shoal.runs.totals import condense
from shoal.sharing.contract import Sharing
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
    honest = getattr(MODES[mode], f"{verb}s_of")

    def hostile(self: Sharing, post: Post, *questions: Sequence[Mail]) -> list[Mail]:
        mails: list[Mail] = []
        for mail in honest(self, post, *questions):
            ours = (mail.sender.agent, mail.receiver.agent) == (1, 0)
            said = change(mail) if ours else mail
            mails += said if isinstance(said, list) else [] if said is None else [said]
        return mails

    with patch.context() as inner:
        inner.setattr(MODES[mode], f"{verb}s_of", hostile)
        exchange(world, stack)
    return world, stack


def verdicts(stack: Stack, kind: str = "") -> list[str]:
    """What became of what agent 1 has sent to agent 0, or has tried to."""
    rows = [
        row for row in entries(stack.ledger) if row["verdict"] != ACCEPTED or (row["sender"], row["receiver"]) == (1, 0)
    ]
    many = [1 + row["late"] if row["verdict"] in UNSENT else 1 for row in rows]  # copies have one row
    return [
        row["verdict"] for row, times in zip(rows, many, strict=True) for _ in range(times) if kind in ("", row["kind"])
    ]


def but(**changes: Any) -> Change:
    return lambda mail: replace(mail, **changes)


def holding(name: str, make: Callable[[Tensor], Any]) -> Change:
    return lambda mail: replace(mail, payload={**mail.payload, name: make(mail.payload[name])})


class Raises(torch.Tensor):
    """A tensor that does whatever its sender likes when it is used."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError("caught you")


def nested(tensor: Tensor) -> Tensor:
    """A tensor of tensors of several shapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Tensor = torch.nested.nested_tensor([tensor[0], tensor[0][:1]])
    return found


class Trap(dict[str, Tensor]):
    """A payload that does so."""

    def items(self) -> Any:
        raise RuntimeError("caught you")

    values = keys = items


class Word(str):
    """A word that does so."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("caught you")


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
    "of nested tensors": (holding(WEIGHT, lambda one: nested(one)), NO_TENSORS),
    "of a tensor that raises": (holding(WEIGHT, lambda one: one.as_subclass(Raises)), NO_TENSORS),
    "of a payload that raises": (lambda mail: replace(mail, payload=Trap(mail.payload)), NO_TENSORS),
    "of a kind that raises": (but(kind=Word("model")), FORGED),
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


def test_copies_of_one_letter_are_one_row_with_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """They had a row each, and one sender could fill the book."""
    many = 20_000
    honest = attacked(monkeypatch, "fedavg", lambda mail: mail)[1].ledger
    world, stack = attacked(monkeypatch, "fedavg", lambda mail: [mail] * many)
    ledger, settings = stack.ledger, world.settings
    assert len(ledger) == len(honest) + 1
    table = posted(settings, ledger)
    (copies,) = table.filter(pl.col("verdict") == SENT_ALREADY).to_dicts()
    (first,) = table.filter(
        (pl.col("sender") == 1) & (pl.col("receiver") == 0) & (pl.col("verdict") == ACCEPTED)
    ).to_dicts()
    assert (copies["messages"], copies["bytes"]) == (many - 1, (many - 1) * first["bytes"])
    assert ledger.sent == honest.sent
    assert traffic(settings, ledger)["refused"] == many - 1
    for name in ("messages", "bytes_total", "bytes_per_link_task"):
        assert traffic(settings, ledger)[name] == traffic(settings, honest)[name]
    again = Ledger.of(ledger.rows, ledger.words, settings.learner.epochs)
    assert posted(settings, again).equals(table)
    totals = settings.model_copy(update={"machine": settings.machine.model_copy(update={"ledger": "totals"})})
    condense(totals, again, settings.tasks.count)
    assert traffic(totals, again)["refused"] == many - 1
    assert traffic(totals, again)["bytes_total"] == traffic(settings, honest)["bytes_total"]


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


# Agents that are not trained have nothing to say of dictionaries, or of sums of what they have seen.
UNTRAINED = [mode for mode in MODES if mode not in ("colla", "statistics")]


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
    (model,) = [mail for mail in mode.answers_of(post, []) if (mail.sender, mail.receiver) == ends]
    more = [post.mail(*ends, "model", model.payload, 4) for _ in range(3)]
    assert [verdict for _, verdict in post.send([model, *more])] == [ACCEPTED] + [SENT_ALREADY] * 3
    assert post.receive([model, *more]) == [ACCEPTED] + [ONCE] * 3  # however they have come


def test_a_receiver_knows_the_kinds_of_a_mode_and_their_time() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    mode = world.settings.sharing[0]
    post = Post(world, stack, mode)
    model = mode.answers_of(post, [])[0]
    booked = post.mail(model.sender, model.receiver, "question", model.payload, 4)
    assert post.receive([booked]) == [UNKNOWN_KIND]
    world, stack = ready("mlp", [{"mode": "recv"}])
    post = Post(world, stack, world.settings.sharing[0])
    question = world.settings.sharing[0].asks_of(post)[0]
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

    answers, absorbs = MODES[mode].answers_of, MODES[mode].absorbs_of
    monkeypatch.setattr(MODES[mode], "answers_of", answer)
    monkeypatch.setattr(MODES[mode], "absorbs_of", absorb)
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
    meet_all(crew)
    assert {row["verdict"] for row in entries(stack.ledger)} == {ACCEPTED, verdict}


# Code that fails


@pytest.mark.parametrize(
    ("mode", "verb"), [("recv", "ask"), ("recv", "answer"), ("fedavg", "answer"), ("recv", "absorb")]
)
def test_code_that_fails_ends_the_run_and_says_for_whom_and_when(
    mode: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was silent: the ledger alone said so, and a run of nothing but failures came to a full result."""

    def fails(self: Sharing, post: Post, *questions: Sequence[Mail]) -> list[Mail]:
        raise KeyError("a page is missing")

    world, stack = ready("mlp", [{"mode": mode, "when": "before"}])
    monkeypatch.setattr(MODES[mode], f"{verb}s_of", fails)
    with pytest.raises(
        CodeError, match=rf"`{verb}` of the mode `{mode}` fails for one of 3 agents of seed 0 in task \d"
    ):
        exchange(world, stack)


def test_code_that_hands_over_no_mail_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODES["fedavg"], "answers_of", lambda self, post, questions: ["a letter"])
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    with pytest.raises(TypeError, match="no mail"):
        exchange(world, stack)


def test_a_mode_that_writes_before_it_absorbs_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(self: Sharing, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        post.stack.params[WEIGHT].zero_()
        return []

    monkeypatch.setattr(MODES["fedavg"], "answers_of", writes)
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    with pytest.raises(SettingsError, match=r"before it absorbs, wrote `module\.weight`"):
        exchange(world, stack)


def test_code_that_fails_on_mail_is_no_verdict_on_the_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in `objects` became mail that is `unreadable`."""

    def objects(self: Sharing, post: Post, mail: Mail) -> str:
        raise IndexError("too short")

    monkeypatch.setattr(MODES["fedavg"], "objects", objects)
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    with pytest.raises(
        CodeError, match=r"`objects` of the mode `fedavg` fails for agent \d of seed 0.*: IndexError: too short"
    ):
        exchange(world, stack)
