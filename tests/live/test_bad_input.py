"""A full disk, a clock that jumps, a neighbour of another version: a sentence, and nothing is lost."""

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.contracts.fleets import difference
from shoal.errors import Stopped, UserError
from shoal.live import wire
from shoal.live.fleets import Home
from shoal.live.life import Life, awake
from shoal.live.replaying import replay
from shoal.live.store import Store
from shoal.live.transport import KEPT, LATER, Lines
from shoal.live.wire import sealed
from tests.live.houses import FREE, built, lived, simulated, small


def full(store: Store, pages: int) -> None:
    """Let a file have so many pages and no more, as on a disk that is full."""
    with suppress(sqlite3.ProgrammingError):  # it is closed
        store.base.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_said_in_a_sentence_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who cannot write ends; what cannot be kept stays with its sender."""
    lines = Lines(copies=[])
    lived(built(small("fedavg", clock=FREE), tmp_path / "true"), lines)
    frame = next(frame for sender, to, frame in lines.copies or [] if (sender, to) == (0, 1))
    life = awake(built(small("fedavg", clock=FREE), tmp_path / "full")[1], lambda home, terms: None, safe=False)
    full(life.store, 1)
    big = [(0, 1, "x", "each", bytes(10**6))]
    with pytest.raises(UserError, match="database or disk is full; what was written before is whole: make room"):
        life.store.put(big)
    while (said := life.office.deliver(0, frame)) == KEPT:  # until the last page is used
        frame = sealed(*renumbered(frame, life))
    assert said == LATER
    assert "is not kept: cannot write" in caplog.text
    full(life.store, 10**6)
    assert life.office.deliver(0, frame) == KEPT
    life.store.put(big)
    assert life.store.owed() == {0}
    life.store.close()


def renumbered(frame: bytes, life: Life) -> tuple[wire.Slip, bytes]:
    """A letter with the next number."""
    slip, body = wire.opened(frame, 0, life.office.terms)
    return replace(slip, number=slip.number + 1), body


@pytest.mark.parametrize("clock", [{}, FREE], ids=["lock-step", "free"])
def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: dict[str, Any]
) -> None:
    settings, real, jump = small("recv", "fedavg", clock=clock), time.time, [0.0]

    def jumping() -> float:
        jump[0] = -jump[0] * 3 + 86400.0
        return real() + jump[0]

    monkeypatch.setattr(time, "time", jumping)
    homes = built(settings, tmp_path)
    found = lived(homes)
    assert all(stack.task == settings.tasks.count for stack in found.values())
    if not clock:
        want = simulated(settings)
        assert all(difference(want[agent], stack) == "" for agent, stack in found.items())
    for home in homes:
        replay(home.folder)


def refused_by(home: Home) -> set[tuple[int, str]]:
    store = Store(home.letters)
    found = {(peer, why) for peer, why, _ in store.refusals()}
    store.close()
    return found


def test_a_neighbour_of_another_version_or_with_other_settings_is_refused_and_both_learn_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, head = small("recv", clock={**FREE, "patience": 0.2}), wire.HEAD
    homes = built(settings, tmp_path)

    class Head:
        """What agent 2 writes is of the next version."""

        size, unpack_from = head.size, head.unpack_from

        def pack(self, magic: bytes, version: int, *lengths: int) -> bytes:
            return head.pack(magic, version + (threading.current_thread().name == "agent 2"), *lengths)

    def learn(life: Any) -> None:
        with suppress(Stopped):
            life.learn()

    monkeypatch.setattr(wire, "HEAD", Head())
    lines, over = Lines(), threading.Event()
    lives = [awake(home, lambda home, terms: lines.line(home.agent), over.is_set, safe=False) for home in homes]
    lives[1].office.terms = replace(lives[1].office.terms, settings="ffffffff")
    for life in lives:
        life.office.open()
    threads = [threading.Thread(target=learn, args=[life], name=life.home.name, daemon=True) for life in lives]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    count = settings.tasks.count
    while any(life.stack.task < count - 1 for life in lives) and time.monotonic() < until:
        time.sleep(0.1)
    assert [life.stack.task >= count - 1 for life in lives] == [True] * 3
    over.set()
    for thread in threads:
        thread.join(10)
    for life in lives:
        life.office.close()
        life.store.close()
    assert (1, "other settings") in refused_by(homes[0])
    assert (0, "refused by it: other settings") in refused_by(homes[1])
    assert (2, "other version") in refused_by(homes[1])


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda folder: (folder / "key.pem").chmod(0o644), "can be read by others"),
        (lambda folder: (folder / "key.pem").unlink(), "is missing; get the agent's folder anew"),
        (lambda folder: (folder / "agent.json").unlink(), "it is no folder of a live agent"),
        (lambda folder: (folder / "letters.db").write_bytes(b"no database" * 1000), "cannot open"),
    ],
    ids=["key for all", "no key", "no agent", "no database"],
)
def test_the_command_says_one_sentence(tmp_path: Path, spoil: Any, word: str) -> None:
    pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
    from tests.live.test_hosts import made

    folder = made(tmp_path) / "agent-0"
    spoil(folder)
    words = [sys.executable, "-m", "shoal", "live", "run", str(folder), "--leave"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2, done.stderr
    assert word in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
