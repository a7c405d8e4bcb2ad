"""What a member of the fleet with a valid certificate may try: floods, repetitions, lies about budgets, broken mail."""

import random
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from shoal.agents.stack import PARAMS
from shoal.contracts.mode_case import edges, rows
from shoal.live import office, screening
from shoal.live.fleets import Home
from shoal.live.life import Life, awake
from shoal.live.office import Draft
from shoal.live.serving import Desk, numbers
from shoal.live.store import Store
from shoal.live.transport import KEPT, KNOWN, LATER, REFUSED, Line, Lines
from shoal.live.wire import Turn, opened, sealed
from tests.live.houses import FREE, built, lived, small

HASTY = {**FREE, "patience": 0.5}


def pair(*modes: str, **changes: Any) -> Any:
    """Two agents that share with each other."""
    return small(*modes, agents=2, **{"network": edges(((0, 1), (1, 0))), "clock": HASTY, **changes})


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What agent 0 has really sent to agent 1."""
    lines = Lines(copies=[])
    lived(built(pair("recv", "fedavg"), tmp_path_factory.mktemp("true")), lines)
    return [frame for sender, _, frame in lines.copies or [] if sender == 0]


@pytest.fixture
def awoken(tmp_path: Path) -> Iterator[Life]:
    """Agent 1 of two, that has not begun to learn."""
    life = awake(built(pair("recv", "fedavg"), tmp_path)[1], lambda home, terms: Lines().line(1), safe=False)
    yield life
    life.store.close()


def test_what_comes_twice_or_out_of_order_counts_once(awoken: Life, sent: list[bytes]) -> None:
    first, second = sent[:2]
    assert awoken.office.deliver(0, second) == KEPT
    assert awoken.office.deliver(0, second) == KNOWN
    assert awoken.office.deliver(0, first) == KNOWN  # what is older than what has come is never taken
    assert len(awoken.store.untaken()) == 1
    assert (0, "repeated", 2) in awoken.store.refusals()


def test_letters_of_another_run_or_settings_or_neighbour_are_written_down(awoken: Life, sent: list[bytes]) -> None:
    terms = replace(awoken.office.terms, run="beef")
    slip, body = opened(sent[0], 0, awoken.office.terms)
    other = sealed(replace(slip, run="beef"), body)
    assert opened(other, 0, terms)[0].run == "beef"
    assert awoken.office.deliver(0, other) == REFUSED + b"other run"
    assert awoken.office.deliver(0, sealed(replace(slip, settings="00000000"), body)) == REFUSED + b"other settings"
    assert awoken.office.deliver(5, sent[0]).startswith(REFUSED)
    assert {(0, "other run", 1), (0, "other settings", 1)} <= set(awoken.store.refusals())
    assert awoken.store.untaken() == []


def test_floods_are_bounded(awoken: Life, sent: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "MANY", 20)
    monkeypatch.setattr(office, "HELD", 20_000)
    answers = [awoken.office.deliver(0, b"no letter") for _ in range(30)]
    assert answers.count(LATER) == 10
    awoken.office.links[0].rests = 0.0
    slip, body = opened(sent[0], 0, awoken.office.terms)
    kept = [awoken.office.deliver(0, sealed(replace(slip, number=at), body)) for at in range(1, 200)]
    assert kept[-1] == LATER
    assert awoken.store.held(0)[0] <= 20_000
    assert len(awoken.store.refusals()) < 5  # a line for each reason, however often


def test_a_receiver_counts_budgets_and_rhythms_itself(tmp_path: Path) -> None:
    """The sender has settings of its own making, without limits, and writes after every epoch."""
    free = pair("fedavg", clock={})
    lines = Lines(copies=[])
    lived(built(free, tmp_path / "free"), lines)
    mine = [frame for sender, _, frame in lines.copies or [] if sender == 0]
    for limits, word in (({"budget": "1 kB/task"}, "beyond its budget"), ({"every": 4}, "too often")):
        limited = pair("fedavg", network=edges(((0, 1), (1, 0)), **limits))
        home = built(limited, tmp_path / word.replace(" ", "-"))[1]
        life = awake(home, lambda home, terms: Lines().line(1), safe=False)
        for frame in mine:
            slip, body = opened(frame, 0, replace(life.office.terms, settings=free.identity()))
            said = life.office.deliver(0, sealed(replace(slip, settings=life.office.terms.settings), body))
            assert said == (KEPT if slip.envelope or slip.done else b"refused:no letter")
        life.crew.visit()
        life.note_refusals()
        assert any(why == word and peer == 0 for peer, why, _ in life.store.refusals())
        carried = [row for row in rows(life.stack) if row[3] == 0]
        assert len(carried) < len(mine)
        life.store.close()


def test_clocks_of_a_sender_do_not_go_backwards(awoken: Life, sent: list[bytes]) -> None:
    letters = [opened(frame, 0, awoken.office.terms) for frame in sent]
    dated = [(slip, body) for slip, body in letters if slip.envelope and slip.envelope.kind != "answer"]
    (late, late_body), (early, early_body) = dated[-1], dated[0]
    awoken.office.deliver(0, sealed(replace(late, number=1), late_body))
    awoken.office.deliver(0, sealed(replace(early, number=2), early_body))
    awoken.crew.visit()
    awoken.note_refusals()
    assert (0, "dated backwards", 1) in awoken.store.refusals()


def test_what_a_site_forbids_never_leaves(tmp_path: Path) -> None:
    settings = pair("fedavg", policy=[{"agents": [0], "forbid": ["models"]}])
    lines = Lines(copies=[])
    found = lived(built(settings, tmp_path), lines)
    assert {row[10] for row in rows(found[0]) if row[3] == 0} == {"models forbidden"}
    bodies = [
        opened(frame, sender, replace(terms_like(frame, settings), me=1 - sender))
        for sender, _, frame in lines.copies or []
    ]
    assert [slip.sender for slip, body in bodies if body] != []
    assert all(slip.sender == 1 for slip, body in bodies if body)


def terms_like(frame: bytes, settings: Any) -> Any:
    from shoal.data import load
    from shoal.live.crew import terms_of, world_of

    return terms_of(world_of(settings, load("digits"), 0), "cafe", settings.identity())


def hostile(sent: list[bytes], terms: Any, count: int) -> Iterator[bytes]:
    """Letters as a member could make them up: bytes changed, envelopes forged, tensors that are none of the mode's."""
    rng = random.Random(0)
    letters = [opened(frame, 0, terms) for frame in sent]
    whole = [(slip, body) for slip, body in letters if slip.envelope]
    for number in range(1, count + 1):
        slip, body = rng.choice(whole)
        assert slip.envelope is not None
        envelope, slip, kind = slip.envelope, replace(slip, number=number), rng.randrange(8)
        if kind == 0:  # bytes of the head or the slip
            frame = bytearray(sealed(slip, body))
            for _ in range(rng.randint(1, 6)):
                frame[rng.randrange(200)] = rng.randrange(256)
            yield bytes(frame[: rng.choice([len(frame), rng.randrange(len(frame))])]) + b"x" * rng.randrange(1, 3)
        elif kind == 1:  # bytes of the names and shapes in the body
            changed = bytearray(body)
            changed[rng.randrange(60)] ^= 1 << rng.randrange(8)
            yield sealed(slip, bytes(changed[:-1]))
        elif kind == 2:  # numbers that are none
            tensors = {name: one.float() * float("nan") for name, one in load(body).items()}
            yield sealed(slip, save(tensors))
        elif kind == 3:  # other shapes
            tensors = {name: one.reshape(-1)[: rng.randrange(1, 9)].clone() for name, one in load(body).items()}
            yield sealed(slip, save(tensors))
        elif kind == 4:  # other names
            yield sealed(slip, save({f"{name}{rng.randrange(9)}": one for name, one in load(body).items()}))
        elif kind == 5:  # an answer that nobody has asked for
            name = f"{envelope.id}.{rng.randrange(99)}"
            asked = envelope._replace(
                kind="answer", mode="recv", id=name.replace("question", "answer"), reply="0/1-0/recv/question/9.9"
            )
            yield sealed(replace(slip, envelope=asked), body)
        elif kind == 6:  # times and numbers
            far = envelope._replace(items=2**50, task=rng.randrange(9), epoch=rng.randrange(9), due=rng.random() * 1e9)
            yield sealed(replace(slip, envelope=far, turn=Turn(2, 4, 0, 1), lamport=2**52), body)
        else:  # nothing at all, or a great deal of it
            yield rng.choice([b"", bytes(rng.randrange(5000)), sealed(replace(slip, envelope=None)), bytes(10**6)])


def test_no_neighbour_silences_an_agent_by_the_clock_of_letters(awoken: Life, sent: list[bytes]) -> None:
    """Letters with a clock beyond all numbers would be refused by everybody."""
    slip, body = next(one for one in (opened(frame, 0, awoken.office.terms) for frame in sent) if one[0].envelope)
    assert awoken.office.deliver(0, sealed(replace(slip, lamport=2**53), body)) == KEPT
    awoken.crew.visit()
    awoken.office.post(Turn(0, 0, 0, 0), {0: [Draft(None, done=True)]})
    letter = awoken.store.next(0)
    assert letter
    assert opened(letter.frame, 1, replace(awoken.office.terms, me=0))[0].lamport > 2**52


def test_words_of_a_neighbour_are_not_repeated(awoken: Life) -> None:
    """They go into notes, on a terminal and to a monitor."""
    for evil in (b'x"} 1\nshoal_fake 2', b"\x1b[2J[red]", b"no letter"):
        awoken.office.post(Turn(0, 0, 0, 0), {0: [Draft(None, done=True)]})
        letter = awoken.store.next(0)
        assert letter
        awoken.office.acknowledged(letter, REFUSED + evil)
    assert {why for _, why, _ in awoken.store.refusals()} == {
        "refused by it: another reason",
        "refused by it: no letter",
    }
    assert "shoal_fake" not in numbers(Desk(awoken).status())


def test_only_an_acknowledgement_takes_a_letter_out_of_the_outbox(tmp_path: Path) -> None:
    said = iter([b"thanks", b"", b"KEPT", b"kept."])

    class Odd(Line):
        def send(self, peer: int, frame: bytes) -> bytes | None:
            return next(said, KEPT)

    life = awake(built(pair("recv"), tmp_path)[1], lambda home, terms: Odd(Lines(), 1), safe=False)
    life.office.post(Turn(0, 0, 0, 0), {0: [Draft(None, done=True)]})
    life.office.open()
    until = time.monotonic() + 20
    while life.store.owed() and time.monotonic() < until:
        time.sleep(0.02)
    life.office.close()
    assert next(said, None) is None
    assert life.store.owed() == set()
    life.store.close()


def test_what_is_sent_twice_under_another_number_counts_once_and_keeps_no_room(
    awoken: Life, sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [opened(frame, 0, awoken.office.terms) for frame in sent]
    slip, body = next((slip, body) for slip, body in letters if slip.envelope and slip.envelope.mode == "fedavg")
    monkeypatch.setattr(office, "MANY", 50)
    answers = []
    for number in range(1, 100):
        answers.append(awoken.office.deliver(0, sealed(replace(slip, number=number), body)))
        awoken.crew.visit()
    assert answers.count(KEPT) == 51  # then it rests
    assert len(awoken.stack.inbox) == 1
    assert awoken.store.rows("SELECT COUNT(*) FROM inbox WHERE body != x''") == [(1,)]
    first = awoken.office.links[0].rests
    awoken.office.links[0].rests = 0.0
    for number in range(200, 300):
        awoken.office.deliver(0, sealed(replace(slip, number=number), body))
        awoken.crew.visit()
    assert awoken.office.links[0].rests > first + 3  # for longer


def test_a_flood_of_letters_that_hold_nothing_is_not_kept(awoken: Life, sent: list[bytes]) -> None:
    slip = replace(opened(sent[0], 0, awoken.office.terms)[0], envelope=None, of=0)
    said = [awoken.office.deliver(0, sealed(replace(slip, number=number))) for number in range(1, 40)]
    assert set(said) == {REFUSED + b"no letter"}
    assert awoken.office.deliver(0, sealed(replace(slip, number=50, done=True))) == KEPT
    assert awoken.office.deliver(0, sealed(replace(slip, number=51, done=True))) == REFUSED + b"no letter"


def test_letters_ahead_of_their_time_do_not_fill_the_memory(
    awoken: Life, sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screening, "HELD", 1500)
    letters = [opened(frame, 0, awoken.office.terms) for frame in sent]
    models = [(slip, body) for slip, body in letters if slip.envelope and slip.envelope.mode == "fedavg"]
    assert sum(len(body) for _, body in models) > 4000
    for number, (slip, body) in enumerate(models, 1):
        assert awoken.office.deliver(0, sealed(replace(slip, number=number), body)) == KEPT
    awoken.crew.visit()
    awoken.note_refusals()
    assert sum(mail.bytes for mail in awoken.stack.inbox) < 1500 + max(len(body) for _, body in models)
    assert (0, "too much waits") in {(peer, why) for peer, why, _ in awoken.store.refusals()}


def test_ten_thousand_hostile_letters_change_nothing(tmp_path: Path, sent: list[bytes]) -> None:
    """An agent whose only neighbour is hostile learns what it learns alone."""
    settings = pair("recv", "fedavg")
    alone, attacked = built(settings, tmp_path / "alone")[1], built(settings, tmp_path / "attacked")[1]
    want, found = lonely(alone, []), lonely(attacked, sent)
    for name, tensor in want.states[PARAMS].items():
        assert torch.equal(tensor, found.states[PARAMS][name]), name
    assert not [row for row in rows(found) if row[3] == 0 and row[10] == "accepted"]
    store = Store(attacked.letters)
    assert len({why for _, why, _ in store.refusals()}) > 4
    store.close()


def lonely(home: Home, sent: list[bytes]) -> Any:
    """An agent at the end of its stream, of whose neighbour comes what `hostile` makes of some letters."""
    lines, over = Lines(), threading.Event()
    life = awake(home, lambda home, terms: lines.line(1), over.is_set, safe=False)
    life.office.open()
    fed: list[bytes] = []

    def feed() -> None:
        fed.extend(life.office.deliver(0, frame) for frame in hostile(sent, life.office.terms, 10_000))
        life.store.keep(
            0, 10**6, '{"turn":[0,0,0,0],"envelope":null,"lamport":0,"reply":"","done":true,"of":0}', b"", True
        )

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if not sent:
        life.store.keep(0, 1, '{"turn":[0,0,0,0],"envelope":null,"lamport":0,"reply":"","done":true,"of":0}', b"", True)
    thread = threading.Thread(target=feed if sent else lambda: None, daemon=True)
    thread.start()
    try:
        life.learn()
        thread.join(100)
        until = time.monotonic() + 60
        while life.store.untaken() and time.monotonic() < until:
            life.crew.visit(afterwards=True)
    finally:
        over.set()
        life.office.close()
        life.store.close()
    assert not sent or len(fed) == 10_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # kilobytes
    return life.stack
