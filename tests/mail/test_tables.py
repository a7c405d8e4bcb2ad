"""Mail as a table is the same mail: the same letters, ledger and bits as one by one."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from shoal.agents.stack import Stack
from shoal.data.tasks import Lane
from shoal.letters.inbox import Inbox
from shoal.letters.letter import Room
from shoal.letters.links import Links
from shoal.letters.mail import ACCEPTED, NOT_FINITE, TOO_LARGE, UNDER_WAY, Mail, pack
from shoal.letters.posted import Posted
from shoal.letters.table import Table
from shoal.letters.uses import Uses
from shoal.mail.dispatch import sealed
from shoal.mail.post import Post
from shoal.sharing.contract import Sharing
from shoal.sharing.modes import MODES
from tests.fleets import entries, exchanges, model_of, ready, same, singly

BESIDE = ("fedavg", "fedprox", "fedcurv", "fedfish", "recv")
GRAPHS: dict[str, dict[str, Any]] = {
    "complete": {"graph": "complete"},
    "ring": {"graph": "ring"},
    "one way": {"graph": "edges", "edges": [{"sender": a, "receiver": b} for a, b in ((0, 1), (3, 1), (1, 0), (2, 4))]},
}
AWAY = {"absent": [{"agents": [1], "epochs": [[7, 9]]}, {"agents": [3], "epochs": [[8, 11]]}]}
CONDITIONS: dict[str, dict[str, Any]] = {
    "loss": {"network": {"loss": 0.4}},
    "bursts": {"network": {"loss": {"share": 0.5, "length": 2}}},
    "delay and down": {"network": {"down": [[7, 8]], "delay": {"least": 0, "most": 2}}},
    "fixed delay": {"network": {"delay": 1}},
    "delay and loss": {"network": {"loss": 0.2, "delay": {"least": 0, "most": 2}}},
    "delay of some links": {"network": {"edges": [{"sender": 0, "receiver": 1, "delay": 2}]}},
    "delay and absence": {"network": {"delay": {"mean": 0.5}}, "presence": AWAY},
    "mail that waits": {"presence": {**AWAY, "mail": "waits"}},
}


def ended(
    mode: str, patch: pytest.MonkeyPatch, one_by_one: bool, **conditions: Any
) -> tuple[Stack, list[tuple[Mail, str]]]:
    """Five agents after some exchanges in which they speak all at once and in tables, or each for itself and in single
    letters, each of which is judged alone."""
    seen: list[tuple[Mail, str]] = []
    with patch.context() as inner:
        if one_by_one:
            singly(inner)
        world, stack = ready(model_of(mode), [{"mode": mode}], agents=5, learner={"epochs": 3}, **conditions)
        for tensor in stack.params.values():  # everybody knows something else
            tensor += 0.01 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1))
        exchanges(world, stack, tasks=2, observe=lambda mail, verdict: seen.append((mail, verdict)))
    return stack, seen


def compare(mode: str, patch: pytest.MonkeyPatch, **conditions: Any) -> Stack:
    """Tables and single letters leave the same behind; returns what."""
    (tables, seen), (letters, also_seen) = (ended(mode, patch, one, **conditions) for one in (False, True))
    same(tables, letters)
    assert np.array_equal(tables.ledger.rows, letters.ledger.rows)
    for name in ("words", "uses", "shares", "open"):
        assert getattr(tables.ledger, name) == getattr(letters.ledger, name)
    assert [pack(mail) for mail in tables.inbox] == [pack(mail) for mail in letters.inbox]
    for (one, said), (other, also) in zip(seen, also_seen, strict=True):
        assert pack(one) == pack(other)
        assert (said, one.floats, one.bytes) == (also, other.floats, other.bytes)
    return tables


# Of modes without a companion, one graph shows it.
@pytest.mark.parametrize(
    ("mode", "graph"), [(mode, graph) for mode in MODES for graph in GRAPHS if mode in BESIDE or graph == "one way"]
)
def test_tables_come_to_the_same_as_single_letters(mode: str, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(mode, monkeypatch, network=GRAPHS[graph])


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("mode", ["fedavg", "fedcurv", "recv", "modmod"])
def test_so_they_do_when_mail_is_lost_or_late(mode: str, conditions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = compare(mode, monkeypatch, **CONDITIONS[conditions])
    assert set(stack.ledger.column("verdict")) != {ACCEPTED}


@pytest.mark.parametrize("mode", [*BESIDE, "simp", "uniform"])
def test_what_all_say_lies_in_one_content(mode: str) -> None:
    world, stack = ready("mlp", [{"mode": mode}])
    shared = world.settings.sharing[0]
    post = Post(world, stack, shared)
    asked = bool(shared.asks_of(Post(world, stack, shared)))
    said = shared.asks_of(post) if asked else shared.answers_of(post, [])
    assert isinstance(said, Table)
    assert (len(said), len(said.contents), said.alike) == (6, 1, True)
    posted = post.send(said)
    assert (posted.verdicts == ACCEPTED).all()
    assert post.receive(posted.arriving) == [ACCEPTED] * 6
    found = post.collect(asked)
    assert [pack(mail) for mail in found] == [pack(mail) for mail in posted.arriving]
    assert not stack.inbox


def test_late_mail_waits_in_its_table() -> None:
    network = {"edges": [{"sender": 0, "receiver": 1, "delay": 2}]}
    world, stack = ready("mlp", [{"mode": "fedavg"}], network=network)
    post = Post(world, stack, world.settings.sharing[0])
    posted = post.send(post.mode.answers_of(post, []))
    assert post.receive(posted.arriving) == [UNDER_WAY, *[ACCEPTED] * 5]
    assert [(mail.id, mail.due) for mail in stack.inbox] == [(posted.table.id(0), post.now + 2)]
    assert len(stack.inbox.parts) == 1
    assert len(post.collect(asked=False)) == 5
    stack.epoch += 2
    later = Post(world, stack, post.mode)
    late = later.collect(asked=False)
    assert late.alike
    assert [pack(mail) for mail in late] == [pack(posted.arriving[0])]
    assert [(one.id, one.verdict, one.late) for one in later.settled] == [(posted.table.id(0), ACCEPTED, 2)]
    assert not stack.inbox


def test_an_inbox_forgets_what_is_for_some_lanes_and_keeps_the_order_of_the_rest() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}], network={"delay": 1})
    post = Post(world, stack, world.settings.sharing[0])
    posted = post.send(post.mode.answers_of(post, []))
    single = posted.arriving[0]
    stack.inbox = Inbox([single])
    assert set(post.receive(posted.arriving)) == {UNDER_WAY}
    every = [single.id, *(mail.id for mail in posted.arriving)]
    assert [mail.id for mail in stack.inbox] == every
    other = next(mail.receiver for mail in posted.arriving if mail.receiver != single.receiver)
    stack.inbox.forget({single.receiver})
    kept = [mail.id for mail in posted.arriving if mail.receiver != single.receiver]
    assert [mail.id for mail in stack.inbox] == kept
    assert len(stack.inbox) == len(kept)
    stack.inbox.forget({other})
    assert other not in {mail.receiver for mail in stack.inbox}


LIMITS: dict[str, dict[str, Any]] = {
    "bytes": {"budget": "1400 B"},
    "bytes in a task": {"budget": "3 kB/task"},
    "floats": {"budget": 400},
    "rests": {"every": 2},
    "of some links": {
        "edges": [{"sender": 0, "receiver": 1, "budget": "700 B"}, {"sender": 2, "receiver": 0, "every": 2}]
    },
    "and loss": {"budget": "2 kB", "loss": 0.3, "down": [[7, 8]]},
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("mode", ["fedavg", "fedfish", "recv", "modmod"])
def test_tables_are_cut_to_what_links_carry_as_single_letters_are(
    mode: str, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = compare(mode, monkeypatch, network=LIMITS[limits])
    assert stack.ledger.crossed.any()


def test_mail_over_links_with_limits_is_in_one_content() -> None:
    world, stack = ready("mlp", [{"mode": "recv"}], network={"budget": "2 kB"})
    post = Post(world, stack, world.settings.sharing[0])
    said = world.settings.sharing[0].asks_of(post)
    assert isinstance(said, Table)
    assert said.alike
    assert 0 < said.items.max() < world.settings.sharing[0].quote(world, Room())[0].items


def models() -> tuple[Post, Table]:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    post = Post(world, stack, world.settings.sharing[0])
    found = world.settings.sharing[0].answers_of(post, [])
    assert isinstance(found, Table)
    return post, found


def test_a_table_is_a_sequence_of_letters() -> None:
    _, mails = models()
    assert len(mails) == len(list(mails)) == 6
    assert mails[-1].id == mails[5].id
    assert [mail.id for mail in mails[1:3]] == [mails[1].id, mails[2].id]
    assert mails[0].payload is mails[1].payload  # the same to all neighbours
    assert [(mail.sender.agent, mail.receiver.agent) for mail in mails] == [
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 2),
        (2, 0),
        (2, 1),
    ]
    with pytest.raises(IndexError):
        mails[6]
    assert mails.links.find(mails.links.turned).tolist() == [2, 4, 0, 5, 1, 3]


def test_single_letters_make_the_same_table() -> None:
    post, mails = models()
    again = Table.of(mails, post.world.peers)
    assert again.alike
    assert [pack(mail) for mail in again] == [pack(mail) for mail in mails]
    assert np.array_equal(again.weights, mails.weights)
    for at in ([0, 3], [5, 1, 1], []):
        some = np.array(at, np.int64)
        assert [pack(mail) for mail in again.take(some)] == [pack(mails[one]) for one in at]
    both = Table.joined([mails.take(np.array([4])), Table.of([mails[2]])])
    assert [pack(mail) for mail in both] == [pack(mails[at]) for at in (4, 2)]
    trimmed = mails.take(np.array([3, 2])).trimmed()
    assert [pack(mail) for mail in trimmed] == [pack(mails[at]) for at in (3, 2)]
    assert len(trimmed.content["modules"]) == mails.items[2]  # one model, for both


def test_a_table_is_frozen_when_it_is_posted() -> None:
    post, mails = models()
    posted = post.send(mails)
    before = deepcopy([mail.payload["module.weight"] for mail, _ in posted])
    for tensor in mails.content.values():
        tensor.fill_(7)
    mails.items[:] = 0
    assert all(torch.equal(mail.payload["module.weight"], was) for (mail, _), was in zip(posted, before, strict=True))


@pytest.mark.parametrize(
    ("what", "modules", "verdict"),
    [
        (torch.nan, 4, NOT_FINITE),
        (1e30, 4, TOO_LARGE),
        (1.9, 1, TOO_LARGE),  # one module is 13 times as large as they are, and all together 7 times
    ],
)
def test_of_a_table_only_bad_letters_are_refused(
    what: float, modules: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = MODES["fedavg"].answers_of

    def hostile(self: Sharing, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        mails = honest(self, post, questions)
        assert isinstance(mails, Table)
        mails.content["module.weight"][4 : 4 + modules] = what  # agent 1's
        return mails

    monkeypatch.setattr(MODES["fedavg"], "answers_of", hostile)
    world, stack = ready("mlp", [{"mode": "fedavg"}], learner={"epochs": 1})
    exchanges(world, stack)
    assert [row["verdict"] for row in entries(stack.ledger)] == [ACCEPTED, ACCEPTED, verdict, verdict, *[ACCEPTED] * 2]
    assert stack.params["module.weight"].isfinite().all()


@pytest.mark.parametrize(
    "change",
    [
        {"mode": np.full(6, "recv", object)},
        {"task": np.full(6, 7)},
        {"kind": np.full(6, 3, object)},
        {"due": np.ones(6, np.int64)},
        {"links": Links((Lane(0, 0), Lane(0, 1)), *np.array([[0] * 6, [1] * 6]))},
        {"first": np.full(6, 10**6)},
        {"first": np.full(6, -2)},
        {"items": np.full(6, 9)},
        {"items": np.full(5, 4)},
        {"which": np.full(6, 1)},
        {"contents": [{}]},
        {"contents": [{"modules": [1, 2]}]},
    ],
)
def test_a_malformed_table_never_leaves_as_it_is(change: dict[str, Any]) -> None:
    post, mails = models()
    assert sealed(post, replace(mails, **change)) is None
    assert sealed(post, mails) is not None


def test_a_table_leaves_once() -> None:
    post, mails = models()
    assert set(post.send(mails).verdicts) == {ACCEPTED}
    assert {verdict for _, verdict in post.send(mails)} == {"sent already"}
    assert set(post.receive(mails)) == {ACCEPTED}
    assert set(post.receive(mails)) == {"once"}
    assert post.stack.ledger.uses[Lane(0, 0), Lane(0, 1)].total.floats == mails.floats[0]


def test_of_letters_twice_in_a_table_the_first_counts() -> None:
    post, mails = models()
    twice = Table.joined([mails, mails])
    assert [verdict for _, verdict in post.send(twice)] == [ACCEPTED] * 6 + ["sent already"] * 6
    assert post.receive(twice) == [ACCEPTED] * 6 + ["once"] * 6


def test_a_table_of_what_was_posted_is_what_single_letters_and_verdicts_are() -> None:
    post, mails = models()
    posted = post.send(mails)
    again = Posted.of(posted, post.world.peers)
    assert [(pack(mail), said) for mail, said in again] == [(pack(mail), said) for mail, said in posted]


def test_an_edge_has_one_row_whichever_thread_asks_first() -> None:
    """Threads ask what their edges still carry: one of them would find an edge twice, or none."""
    ends = [(Lane(0, a), Lane(0, b)) for a in range(30) for b in range(30)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            uses = Uses()
            with ThreadPoolExecutor(8) as pool:
                rows = list(pool.map(lambda some, book=uses: book.grown(some).tolist(), [ends[at:] for at in range(8)]))
            assert sorted(uses.rows.values()) == list(range(900))
            assert len(uses.table.last) == 900
            assert all(rows[0][at:] == rows[at] for at in range(8))
    finally:
        sys.setswitchinterval(before)
