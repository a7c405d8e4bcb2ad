"""Agents that wait for nobody: what is lost, cut or killed ends nobody, and no letter counts twice."""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shoal.contracts.mode_case import rows
from shoal.live.fleets import Home
from shoal.live.gathered import merged, rows_of
from shoal.live.life import Life
from shoal.live.replaying import replay
from shoal.live.store import Store
from shoal.live.transport import Lines
from tests.live.houses import FREE, CrashError, built, lived, small


def taken_once(homes: list[Home]) -> int:
    """How many letters agents have taken, all in all: none twice, and all that were acknowledged."""
    count = 0
    for home in homes:
        store = Store(home.letters)
        taken = [at for (letters,) in store.rows("SELECT letters FROM journal") for at in json.loads(letters)]
        assert len(taken) == len(set(taken))
        there = store.rows("SELECT peer, number FROM inbox WHERE taken = 1")
        assert len(there) == len(set(there)) == len(taken)
        known = {peer: {number for other, number in there if other == peer} for peer in home.senders}
        waiting = {(peer, number) for peer, number in store.rows("SELECT peer, number FROM inbox WHERE taken = 0")}
        for other in homes:
            if other.agent not in known:
                continue
            far = Store(other.letters)
            (sent,) = far.rows("SELECT acknowledged FROM links WHERE peer = ?", home.agent)
            gone = {number for (number,) in far.rows("SELECT number FROM given_up WHERE peer = ?", home.agent)}
            far.close()
            acknowledged = set(range(1, sent[0] + 1)) - gone
            assert acknowledged <= known[other.agent] | {number for peer, number in waiting if peer == other.agent}
        store.close()
        count += len(taken)
    return count


def test_agents_by_their_own_clocks_ask_answer_and_end(tmp_path: Path) -> None:
    settings = small("recv", "fedavg", clock=FREE, tasks={"initial": 2, "common": True})
    homes = built(settings, tmp_path)
    found = lived(homes)
    assert taken_once(homes) > 20
    kinds = Counter((row[6], row[10]) for stack in found.values() for row in rows(stack) if row[4] != row[3])
    assert kinds["question", "accepted"] > 0
    assert kinds["answer", "accepted"] > 0
    for home in homes:
        assert replay(home.folder).letters.keys() == set(home.senders)


def test_crashes_and_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    settings, lines = small("recv", "modmod", clock={**FREE, "patience": 0.3}), Lines()
    homes, crashed, over = built(settings, tmp_path), Counter[int](), threading.Event()

    def crash(life: Life) -> bool:
        """Once in a task, in the middle of it."""
        now = life.home.agent * 100 + life.stack.task
        crashed[now] += life.stack.epoch == 2
        return life.stack.epoch == 2 and crashed[now] == 1

    def weather() -> None:
        for at in range(200):
            lines.cut = {[(0, 1), (1, 2), (2, 1)][at % 3]}
            lines.deaf = {[(1, 0), (0, 2)][at % 2]}
            if over.wait(0.1):
                break
        lines.cut, lines.deaf = set(), set()

    thread = threading.Thread(target=weather, daemon=True)
    thread.start()
    timer = threading.Timer(4, over.set)
    timer.start()
    found = lived(homes, lines, crash)
    over.set()
    assert sum(count > 1 for count in crashed.values()) >= 6
    assert taken_once(homes) > 20
    every, disagreements = merged({agent: rows_of(stack.ledger) for agent, stack in found.items()}, {})
    assert every
    assert disagreements == []
    for home in homes:
        replay(home.folder)


@pytest.mark.slow
def test_eight_agents_with_twenty_crashes_and_twenty_cuts_all_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crashes come before, after and between what is written in a journal; cuts lose letters or acknowledgements."""
    tasks = {"count": 5, "initial": 1}
    settings = small("recv", "modmod", agents=8, network="complete", clock={**FREE, "patience": 0.3}, tasks=tasks)
    homes, lines, over = built(settings, tmp_path), Lines(), threading.Event()
    rng, left, cuts, write = random.Random(0), [20], [0], Store.write

    def risky(store: Store, *what: Any) -> None:
        """Write a line of a journal; some agents crash before or after it."""
        dice = rng.random()
        if dice < 0.05 and left[0]:
            left[0] -= 1
            raise CrashError
        write(store, *what)
        if dice > 0.95 and left[0]:
            left[0] -= 1
            raise CrashError

    def weather() -> None:
        while cuts[0] < 20 and not over.wait(0.3):
            cuts[0] += 1
            some = [(rng.randrange(8), rng.randrange(8)) for _ in range(12)]
            lines.cut, lines.deaf = set(some[:6]), set(some[6:])
        lines.cut, lines.deaf = set(), set()

    monkeypatch.setattr(Store, "write", risky)
    threading.Thread(target=weather, daemon=True).start()
    found = lived(homes, lines, seconds=200)
    over.set()
    assert (len(found), left[0]) == (8, 0)
    assert cuts[0] > 5
    assert taken_once(homes) > 200
    _, disagreements = merged({agent: rows_of(stack.ledger) for agent, stack in found.items()}, {})
    assert disagreements == []
    monkeypatch.undo()
    for home in homes:
        replay(home.folder)


def test_nobody_waits_longer_than_patience_for_one_who_is_not_there(tmp_path: Path) -> None:
    settings, lines = small("recv", clock={**FREE, "patience": 0.2}), Lines()
    lines.cut = {(a, b) for a in range(3) for b in range(3)}
    homes = built(settings, tmp_path)
    threading.Timer(3, lines.cut.clear).start()
    assert len(lived(homes, lines, lost=1000)) == 3  # nobody leaves before who needs it knows: nobody is lost


@pytest.mark.parametrize("lines", [Lines(), Lines(deaf={(0, 2), (1, 0)})], ids=["never there", "acknowledges nothing"])
def test_who_gives_no_sign_is_not_waited_for_without_end(tmp_path: Path, lines: Lines) -> None:
    """Who leaves last cannot know that its last letter has come; who hears of one that is gone cannot ask it."""
    homes = built(small("recv", clock={**FREE, "patience": 0.2}), tmp_path)
    there = homes if lines.deaf else homes[:2]
    found = lived(there, lines, lost=1)
    assert len(found) == len(there)
    assert taken_once(there) > 0
    for home in there:
        replay(home.folder)


def test_an_agent_is_waited_for_as_long_as_it_gives_signs(tmp_path: Path) -> None:
    """One that rests long between its epochs has nothing to say meanwhile, but that it is there."""
    settings = small("recv", clock={**FREE, "patience": 3})

    def slowly(life: Life) -> bool:
        time.sleep(3 * (life.home.agent == 1 and (life.stack.task, life.stack.epoch) == (2, 3)))
        return False

    found = lived(built(settings, tmp_path), crash=slowly, lost=2)
    last = Counter((row[3], row[10]) for row in rows(found[1]) if row[1] == 2 and row[4] == 1 and row[6] == "answer")
    assert last.keys() == {(0, "accepted"), (2, "accepted")}


def test_who_has_ended_answers_who_comes_back(tmp_path: Path) -> None:
    """Nobody waits for one that begins late, and all others are still there when it does."""
    homes, late = built(small("recv", clock={**FREE, "patience": 3}), tmp_path), threading.Event()
    lines, ended = Lines(), Counter[int]()

    def transport(home: Home, terms: Any) -> Any:
        assert home.agent != 1 or late.wait(60)
        return lines.line(home.agent)

    def watch(life: Life) -> bool:
        ended[life.home.agent] += life.finished
        if ended[0] and ended[2]:
            late.set()
        return False

    found = lived(homes, lines, watch, transport=transport, lost=1, stay=lambda: not ended[1])
    answers = Counter((row[3], row[10]) for row in rows(found[1]) if row[4] == 1 and row[6] == "answer")
    assert answers[0, "accepted"] > 3
    assert answers[2, "accepted"] > 3
    assert taken_once(homes) > 10
    _, disagreements = merged({agent: rows_of(stack.ledger) for agent, stack in found.items()}, {})
    assert disagreements == []
    again = lived(homes, Lines(), lost=1)  # and what it was is saved
    assert [len(rows(again[agent])) for agent in again] == [len(rows(found[agent])) for agent in again]


def test_answers_that_come_late_and_with_questions_are_used_later(tmp_path: Path) -> None:
    settings = small("recv", clock={**FREE, "patience": 0.02}, network="complete")
    found = lived(built(settings, tmp_path), Lines(delay=0.05))
    answers = Counter(row[10] for stack in found.values() for row in rows(stack) if row[6] == "answer")
    assert answers["accepted"] > 10
    assert "out of range" not in answers
