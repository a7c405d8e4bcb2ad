"""Mail as a document, what an edge lets pass, what waits in an inbox, and who knows what of whose mail."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from shoal.agents.stack import CLOCK, Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.fleet.run import train
from shoal.letters.inbox import Inbox
from shoal.letters.ledger import COLUMNS, Ledger
from shoal.letters.letter import Letter, Room
from shoal.letters.mail import (
    ACCEPTED,
    AT_REST,
    LOST,
    OUT_OF_RANGE,
    OVER_BUDGET,
    UNDER_WAY,
    Envelope,
    Expected,
    Mail,
    pack,
    unpack,
)
from shoal.letters.uses import Use, Used, Weight
from shoal.mail.filters import ROW, Filter, Load, Ways, left, room, stopped
from shoal.mail.post import Post
from shoal.network.edges import Edge
from shoal.network.roads import Roads
from shoal.runs.record import Record
from shoal.runs.summaries import traffic
from shoal.runs.tables import posted
from shoal.settings.part import Budget
from shoal.sharing.contract import Sharing
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.mode import Draft, Mode, Present, Received
from shoal.sharing.modes import MODES
from shoal.sharing.plan import plan
from shoal.sharing.recv import Recv
from tests.fleet.test_fleet import SPLITS, fleet
from tests.fleets import MODULE, entries, exchanges, last_saved, model_of, models_of, ready, same

# A mail as a document

PAYLOADS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "of several types": lambda: {
        "images": torch.arange(128, dtype=torch.uint8).view(2, 8, 8),
        "labels": torch.tensor([3, 1], dtype=torch.int32),
        "worth": torch.tensor([0.1, -2.5]),
    },
    "empty": dict,
    "of no items": lambda: {"images": torch.zeros(0, 8, 8, dtype=torch.uint8), "labels": torch.zeros(0)},
    "of numbers that are none": lambda: {"x": torch.tensor([torch.nan, torch.inf, -0.0])},
    "of views of the same memory": lambda: dict(zip("ab", [torch.arange(6.0).view(2, 3).T] * 2, strict=True)),
}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_is_unpacked_is_what_was_packed(payload: str) -> None:
    content = PAYLOADS[payload]()
    mail = Mail(Lane(1, 2), Lane(1, 0), "recv", "a word", content, 2, "its name", "another's", 3, 16, 50)
    envelope, letter = pack(mail)
    assert mail.bytes == len(letter)
    found = unpack(Envelope(*json.loads(json.dumps(envelope))), letter)
    assert all(getattr(found, name) == getattr(mail, name) for name in Envelope._fields)
    assert (type(found.sender), type(found.receiver)) == (Lane, Lane)
    assert found.payload.keys() == content.keys()
    for name, tensor in content.items():
        assert (found.payload[name].dtype, found.payload[name].shape) == (tensor.dtype, tensor.shape)
        assert found.payload[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes()


def test_the_address_is_not_weighed() -> None:
    short, long = (Mail(Lane(0, 0), Lane(0, 1), "m", "k" * size, {"x": torch.zeros(3)}, 1) for size in (1, 99))
    assert short.bytes == long.bytes


def test_every_mail_has_an_id_of_its_own_and_the_same_in_every_run() -> None:
    world, stack = ready("mlp", [{"mode": "recv"}])
    post = Post(world, stack, world.settings.sharing[0])
    one, two, three = world.lanes
    mails = [post.mail(one, two, "question", {}, 0) for _ in range(3)]
    mails += [post.mail(one, three, "question", {}, 0), post.mail(two, one, "question", {}, 0)]
    answer = post.reply(mails[0], "answer", {}, 0)
    assert (answer.sender, answer.receiver, answer.reply) == (two, one, mails[0].id)
    assert (answer.task, answer.epoch) == (stack.task, stack.epoch)
    assert len({mail.id for mail in [*mails, answer]}) == 6
    again = Post(world, stack, world.settings.sharing[0])
    assert [again.mail(one, two, "question", {}, 0).id for _ in range(3)] == [mail.id for mail in mails[:3]]


# The ledger's words


class Praise(Mode):
    """A stranger's mode, with kinds and a reason of its own."""

    asking: ClassVar[tuple[str, ...]] = ("poem",)
    both_ways: ClassVar[bool] = True
    mode: Literal["praise"] = "praise"
    every: int = 1
    when: Literal["before", "after"] = "before"

    @property
    def letters(self) -> Mapping[str, Letter]:
        lines, flowers = Expected(torch.float32, (5,)), Expected(torch.int32, (None,))
        return {"poem": Letter({"lines": lines}, 1, ()), "thanks": Letter({"flowers": flowers}, 2, ())}

    def ask(self, agent: Present) -> Draft:
        return {"lines": torch.ones(5)}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        assert question is not None
        assert question.kind == "poem"
        return {"flowers": torch.ones(2, dtype=torch.int32)}

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        assert all(letter.kind == "thanks" for letter in letters)

    def judge(self, agent: Present, letter: Received) -> str:
        return "too modest" if (letter.kind, agent.number) == ("thanks", 1) else ""


def strange(mode: Sharing) -> tuple[World, Stack]:
    """Three agents with a mode that is in no table."""
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    settings = world.settings.model_copy(update={"sharing": (mode,)})
    return replace(world, settings=settings, fleet=settings), stack


def test_a_strangers_mode_has_words_of_its_own_in_the_ledger(tmp_path: Path) -> None:
    world, stack = strange(Praise())
    exchanges(world, stack)
    table = posted(world.settings, stack.ledger)
    assert set(table["mode"]) == {"praise"}
    assert set(table["kind"]) == {"poem", "thanks"}
    refused = table.filter(table["verdict"] == "too modest")
    assert set(refused["receiver"]) == {1}
    assert set(refused["kind"]) == {"thanks"}
    assert len(refused) == 2 * world.settings.learner.epochs
    assert table["paper"].equals(table["floats"].alias("paper"))  # the paper has no rule for it
    assert traffic(world.settings, stack.ledger)["messages"] == len(table)
    record = Record(tmp_path, world.settings)
    record.save([stack])
    (saved,) = last_saved(record) or ()
    assert saved.ledger.words == stack.ledger.words
    assert (saved.ledger.uses, saved.ledger.shares) == (stack.ledger.uses, stack.ledger.shares)
    assert posted(world.settings, saved.ledger).equals(table)


def test_a_receiver_cannot_say_that_what_came_never_left() -> None:
    world, stack = strange(Praise())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Praise, "objects", lambda self, post, mail: OVER_BUDGET)
        with pytest.raises(ValueError, match="which says that it never left; use another word"):
            exchanges(world, stack)


def test_a_question_is_of_a_kind_that_its_mode_asks_by() -> None:
    world, stack = strange(Praise())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Praise, "asking", ("question",))
        with pytest.raises(ValueError, match="name the kind of its question in its `asking`"):
            exchanges(world, stack)


def test_an_empty_ledger_has_all_columns() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    table = posted(world.settings, stack.ledger)
    assert len(table) == 0
    assert [str(table.schema[name]) for name in ("mode", "kind", "verdict", "paper")] == ["String"] * 3 + ["Int64"]
    assert len(Ledger.of(stack.ledger.rows, [], 4)) == 0


# Filters


def way(budget: Budget | None, share: Budget, every: int, now: int, use: Use, own: Use | None = None) -> Ways:
    """An edge, behind one that is never looked at."""
    roads, at = Roads([(0, Edge(0, 2, 7, 5)), (0, Edge(0, 1, budget, every))]), np.array([1])
    return Ways(roads, at, FedAvg(budget=share), now, 2, Used.of([use]), Used.of([own or Use()]))


def used(last: int, floats: int, task: int = 2, during: int = 0) -> Use:
    """An edge that has carried so many floats of four bytes."""
    return Use(last, task, Weight(floats, 4 * floats), Weight(floats + during, 4 * (floats + during)), Weight(0, 0))


@pytest.mark.parametrize(
    ("here", "floats", "verdict", "rest"),
    [
        (way(None, "unlimited", 1, 9, Use()), 10**9, "", Room()),
        (way(None, "unlimited", 3, 9, used(7, 5)), 0, AT_REST, Room(0, 0)),
        (way(100, 50, 3, 9, used(7, 100)), 999, AT_REST, Room(0, 0)),  # the first filter that stops it says why
        (way(100, "unlimited", 3, 9, used(6, 100)), 100, "", Room(100)),
        (way(100, "unlimited", 3, 9, used(9, 60)), 40, "", Room(40)),
        (way(100, "unlimited", 3, 9, used(9, 60)), 41, OVER_BUDGET, Room(40)),
        (way(100, 70, 1, 9, used(9, 60), used(9, 50)), 20, "", Room(20)),
        (way(100, 70, 1, 9, used(9, 60), used(9, 50)), 21, OVER_BUDGET, Room(20)),
        (way(0, "unlimited", 1, 9, Use()), 0, OVER_BUDGET, Room(0)),  # not even a message without content
        (way(None, 0, 1, 9, Use()), 0, OVER_BUDGET, Room(0)),
        (way("400 B", "unlimited", 1, 9, used(9, 60)), 40, "", Room(None, 160)),
        (way("400 B", "unlimited", 1, 9, used(9, 60)), 41, OVER_BUDGET, Room(None, 160)),
        (way("400 B", "unlimited", 1, 9, used(8, 60)), 100, "", Room(None, 400)),  # another exchange
        (way("400 B/task", "unlimited", 1, 9, used(8, 60)), 40, "", Room(None, 160)),  # of the same task
        (way("400 B/task", "unlimited", 1, 9, used(8, 60)), 41, OVER_BUDGET, Room(None, 160)),
        (way("400 B/task", "unlimited", 1, 9, used(9, 20, during=40)), 40, "", Room(None, 160)),
        (way("400 B/task", "unlimited", 1, 9, used(9, 60, task=1)), 100, "", Room(None, 400)),  # the task before
        (way("100 floats/task", "80 B", 1, 9, used(8, 60)), 20, "", Room(40, 80)),
        (way(None, "100 floats/task", 1, 9, used(8, 90), used(7, 60)), 41, OVER_BUDGET, Room(40)),
    ],
)
def test_an_edge_lets_pass_what_all_its_filters_do(here: Ways, floats: int, verdict: str, rest: Room) -> None:
    assert stopped(here, Load(["model"], np.array([[floats, 4 * floats]]))).tolist() == [verdict]
    assert room(left(here)[0]) == rest


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Callable[[Filter], None]:
    """Puts a filter into the row of every edge."""

    def add(one: Filter) -> None:
        monkeypatch.setattr("shoal.mail.filters.filters", lambda: (*ROW, one))

    return add


def said(ways: Ways, word: str) -> np.ndarray:
    """The same word of all."""
    return np.array([word] * len(ways.at), dtype=object)


def to(ways: Ways) -> np.ndarray:
    """The agents that edges lead to."""
    return np.array([ways.roads.edges[at][1].receiver for at in ways.at.tolist()])


def test_what_is_planned_passes_the_same_filters_as_what_is_sent(added: Callable[[Filter], None]) -> None:
    """One filter more: every third epoch nothing leaves."""
    (before,) = plan([ready("mlp", [{"mode": "fedavg"}])[0]])
    added(Filter(stops=lambda ways, load: said(ways, AT_REST if ways.now % 3 == 0 else "")))
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    exchanges(world, stack)
    verdicts = {(row["epoch"] % 3 == 0, row["verdict"]) for row in entries(stack.ledger)}
    assert verdicts == {(True, AT_REST), (False, ACCEPTED)}
    (line,) = plan([world])
    assert (before.resting, line.resting, line.posted) == (0, line.posted // 3, before.posted)
    assert line.total == before.total * 2 // 3


def test_a_filter_stops_mail_by_a_word_that_says_it_never_left(added: Callable[[Filter], None]) -> None:
    added(Filter(stops=lambda ways, load: said(ways, "forbidden")))
    with pytest.raises(ValueError, match="stops mail as `forbidden`, which is not in UNSENT"):
        exchanges(*ready("mlp", [{"mode": "fedavg"}]))


def test_lost_mail_is_paid_for_and_never_absorbed(added: Callable[[Filter], None]) -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    before = deepcopy(stack)
    added(Filter(sends=lambda ways, load: (to(ways) == 0, np.zeros(len(ways.at), np.int64))))
    exchanges(world, stack)
    rows = entries(stack.ledger)
    assert {(row["receiver"] == 0, row["verdict"]) for row in rows} == {(True, LOST), (False, ACCEPTED)}
    assert sum(use.total.floats for use in stack.ledger.uses.values()) == sum(row["floats"] for row in rows)
    assert stack.ledger.crossed.all()
    same(stack.take([0], [Lane(0, 0)]), before.take([0], [Lane(0, 0)]), but=(CLOCK,))
    assert not torch.equal(stack.params["module.weight"][1], before.params["module.weight"][1])


# Inboxes


def late(ways: Ways, load: Load) -> tuple[np.ndarray, np.ndarray]:
    """An exchange later; a question is not delayed, because who answers must still know what it was asked."""
    return np.zeros(len(ways.at), bool), np.array([int(kind != "question") for kind in load.kinds])


def later(ways: Ways, load: Load) -> tuple[np.ndarray, np.ndarray]:
    """Two exchanges later."""
    lost, epochs = late(ways, load)
    return lost, 2 * epochs


@pytest.fixture
def absorbed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of all mail that is absorbed as an answer."""
    ids: list[str] = []

    def noting(honest: Callable[..., None]) -> Callable[..., None]:
        def absorb(self: Sharing, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
            ids.extend(mail.id for mail in answers)
            honest(self, post, questions, answers)

        return absorb

    for mode in MODES.values():
        monkeypatch.setattr(mode, "absorbs_of", noting(mode.absorbs_of))
    return ids


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "modmod" and "modular-mlp" in models_of(mode)])
def test_late_mail_is_absorbed_once_and_survives_a_stop(
    mode: str, tmp_path: Path, added: Callable[[Filter], None], absorbed: list[str]
) -> None:
    """In two stacks, so that there are two inboxes. A mode acts every epoch; mail comes at the next exchange."""
    added(Filter(sends=late))
    parts = fleet(mode, SPLITS[0], learner={"epochs": 3})
    states: list[tuple[Stack, ...]] = []
    accepted: list[str] = []

    def noting(mail: Mail, verdict: str) -> None:
        assert verdict == (ACCEPTED if mail.kind == "question" else UNDER_WAY)
        if mail.kind not in MODES[mode].asking:
            accepted.append(mail.id)

    ends = train(parts, None, lambda moment: states.append(deepcopy(moment.stacks)), noting)
    waiting = [mail.id for stack in ends for mail in stack.inbox if mail.kind not in MODES[mode].asking]
    assert waiting
    assert absorbed
    assert Counter(absorbed) + Counter(waiting) == Counter(accepted)
    assert max(Counter(absorbed).values()) == 1
    flying = [state for state in states if any(stack.inbox for stack in state)]
    for state in flying[:: len(flying) // 2]:
        record = Record(tmp_path, parts[0].fleet)
        record.save(state)
        saved = last_saved(record)
        assert saved is not None
        for stack, want in zip(saved, state, strict=True):
            assert [pack(mail) for mail in stack.inbox] == [pack(mail) for mail in want.inbox]
        for stack, want in zip(train(parts, saved), ends, strict=True):
            same(stack, want)
            assert [pack(mail) for mail in stack.inbox] == [pack(mail) for mail in want.inbox]
            assert np.array_equal(stack.ledger.rows, want.ledger.rows)
            assert stack.ledger.words == want.ledger.words


@pytest.mark.parametrize("mode", ["recv", "simp", "fedcurv", "modmod"])
def test_late_mail_comes_to_stacks_as_to_one_stack(mode: str, added: Callable[[Filter], None]) -> None:
    added(Filter(sends=later if mode == "modmod" else late))
    model = model_of(mode)
    (one,) = fleet(mode, model=model)
    (want,) = train([one])
    assert want.inbox
    parts = fleet(mode, SPLITS[1], model=model)
    for part, stack in zip(parts, train(parts), strict=True):
        rows = want.take([one.row[lane] for lane in part.lanes], part.lanes)
        same(stack, rows)
        ids = [Counter(mail.id for mail in some.inbox) for some in (stack, rows)]
        assert ids[0] == ids[1]
    assert want.ledger.rows.any()


def test_late_mail_changes_what_is_learned(added: Callable[[Filter], None]) -> None:
    parts = fleet("fedavg")
    (punctual,) = train(parts)
    added(Filter(sends=late))
    (delayed,) = train(parts)
    assert not torch.equal(punctual.params["module.weight"], delayed.params["module.weight"])
    sent = slice(COLUMNS.index("verdict"))
    assert np.array_equal(punctual.ledger.rows[:, sent], delayed.ledger.rows[:, sent])  # written when it was sent
    assert set(delayed.ledger.column("verdict").tolist()) == {ACCEPTED, UNDER_WAY}


def test_nothing_waits_if_nothing_is_late() -> None:
    (stack,) = train(fleet("recv"))
    assert len(stack.ledger)
    assert not stack.inbox


def test_a_stack_takes_the_mail_of_its_own_lanes_along() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    one, two, three = world.lanes
    post = Post(world, stack, world.settings.sharing[0])
    stack.inbox = Inbox([post.mail(one, two, "model", {}, 0), post.mail(one, three, "model", {}, 0)])
    assert [mail.receiver for mail in stack.take([1], [two]).inbox] == [two]
    assert not stack.take([0], [one]).inbox
    other = Lane(0, 7)
    assert [mail.receiver for mail in stack.take([2, 2], [three, other]).inbox] == [three, other]
    for _, piece in stack.pieces(world):
        assert piece.inbox is stack.inbox


# Who knows what


def test_each_receiver_judges_its_own_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents 1 and 2 get the same payload of agent 0, and agent 2 wants none of it."""
    monkeypatch.setattr(FedAvg, "objects", lambda self, post, mail: "no, thanks" if mail.receiver.agent == 2 else "")
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    exchanges(world, stack)
    found = {(row["receiver"], row["verdict"]) for row in entries(stack.ledger)}
    assert found == {(0, ACCEPTED), (1, ACCEPTED), (2, "no, thanks")}


def test_an_answer_is_held_against_what_its_own_receiver_has_asked() -> None:
    """Agent 1's answer to agent 2 cannot be passed on to agent 0, who has asked the same."""
    world, stack = ready("mlp", [{"mode": "recv"}])
    mode = world.settings.sharing[0]
    assert isinstance(mode, Recv)
    post = Post(world, stack, mode)
    post.receive([mail for mail, verdict in post.send(mode.asks_of(post)) if verdict == ACCEPTED])
    answers = mode.answers_of(post, post.collect(asked=True))
    to = {(mail.sender.agent, mail.receiver.agent): mail for mail in answers}
    stolen = replace(to[1, 2], receiver=Lane(0, 0))
    assert len(stolen.payload["queries"])
    assert post.receive([to[1, 0], stolen]) == [ACCEPTED, OUT_OF_RANGE]
    elsewhere = Post(world, deepcopy(stack), mode)  # a post that has sent nothing
    assert elsewhere.receive([to[1, 0]]) == [OUT_OF_RANGE]


def partly(receipts: bool, **more: Any) -> tuple[World, Stack]:
    """Three agents over edges that carry two of four modules, and a receipt."""
    table = {"mode": "fedavg", "receipts": receipts}
    network = {"graph": "complete", "budget": 2 * (MODULE["mlp"] + 1) + 1}
    return ready("mlp", [table], network=network, **more)


def first_modules(seen: Sequence[Mail]) -> list[int]:
    return [int(mail.payload["modules"][0]) for mail in seen if mail.kind == "model"]


def test_a_sender_goes_on_with_what_has_left_whatever_its_receiver_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot know: nobody has told it."""
    monkeypatch.setattr(FedAvg, "objects", lambda self, post, mail: "no, thanks" if mail.receiver.agent == 2 else "")
    world, stack = partly(receipts=False)
    seen: list[Mail] = []
    exchanges(world, stack, observe=lambda mail, verdict: seen.append(mail))
    for agent in (1, 2):
        mine = [mail for mail in seen if (mail.sender.agent, mail.receiver.agent) == (0, agent)]
        assert first_modules(mine) == [0, 2, 0, 2, 0, 2]


def test_with_receipts_a_sender_goes_on_with_what_was_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = FedAvg.objects

    def choosy(self: FedAvg, post: Post, mail: Mail) -> str:
        refuses = mail.kind == "model" and mail.receiver.agent == 2
        return "no, thanks" if refuses else honest(self, post, mail)

    monkeypatch.setattr(FedAvg, "objects", choosy)
    world, stack = partly(receipts=True)
    seen: list[Mail] = []
    exchanges(world, stack, observe=lambda mail, verdict: seen.append(mail))
    to = {agent: [mail for mail in seen if (mail.sender.agent, mail.receiver.agent) == (0, agent)] for agent in (1, 2)}
    assert first_modules(to[1]) == [0, 2, 0, 2, 0, 2]
    assert first_modules(to[2]) == [0] * 6
    receipts = [mail for mail in seen if mail.kind == "receipt"]
    assert receipts
    for receipt in receipts:
        before = seen[: seen.index(receipt)]
        ends = receipt.receiver, receipt.sender
        *_, model = (mail for mail in before if mail.kind == "model" and (mail.sender, mail.receiver) == ends)
        assert int(receipt.payload["last"]) == int(model.payload["modules"][-1])
        assert (receipt.floats, receipt.bytes > 0) == (1, True)
    assert {mail.sender.agent for mail in receipts} == {0, 1}  # agent 2 has accepted nothing
    assert set(stack.ledger.column("kind").tolist()) == {"model", "receipt"}


def test_a_receipt_that_may_not_leave_leaves_later() -> None:
    """Agent 1's edge to agent 0 rests two of three epochs: until it confirms, agent 0 repeats itself."""
    links = [{"sender": 0, "receiver": 1}, {"sender": 1, "receiver": 0, "every": 3}]
    seen: list[tuple[Mail, str]] = []
    network = {"graph": "edges", "edges": links, "budget": 2 * (MODULE["mlp"] + 1) + 1}
    world, stack = ready("mlp", [{"mode": "fedavg", "receipts": True}], agents=2, network=network)
    exchanges(world, stack, observe=lambda mail, verdict: seen.append((mail, verdict)))
    assert first_modules([mail for mail, _ in seen if mail.sender.agent == 0]) == [0, 0, 0, 2, 2, 2]
    receipts = [verdict for mail, verdict in seen if (mail.kind, mail.sender.agent) == ("receipt", 1)]
    assert receipts == [AT_REST, AT_REST, ACCEPTED, AT_REST, AT_REST]


@pytest.mark.parametrize("mode", ["fedavg", "fedprox", "fedcurv", "fedfish"])
def test_a_fleet_with_receipts_ends_as_unbroken(mode: str, tmp_path: Path) -> None:
    copies = 2 if mode == "fedcurv" else 1
    network = {"graph": "complete", "budget": 3 * (copies * MODULE["mlp"] + 1)}
    parts = fleet(mode, network=network)
    settings = parts[0].settings.model_copy(
        update={"sharing": (parts[0].settings.sharing[0].model_copy(update={"receipts": True}),)}
    )
    parts = (replace(parts[0], settings=settings, fleet=settings),)
    states: list[tuple[Stack, ...]] = []
    (end,) = train(parts, None, lambda moment: states.append(deepcopy(moment.stacks)))
    assert "receipt" in end.ledger.words
    assert (end.ledger.column("verdict") == ACCEPTED).all()
    for state in states[2:5]:
        record = Record(tmp_path, settings)
        record.save(state)
        (stack,) = train(parts, last_saved(record))
        same(stack, end)
        assert np.array_equal(stack.ledger.rows, end.ledger.rows)
