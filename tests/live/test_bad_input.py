"""A full disk, a clock that jumps, a neighbour of another version: a sentence, and nothing is lost."""

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
from shoal.live.life import awake
from shoal.live.replaying import replay
from shoal.live.store import Store
from shoal.live.transport import Lines
from tests.live.houses import FREE, built, lived, simulated, small


def full(store: Store, pages: int) -> None:
    """Let a file have so many pages and no more, as on a disk that is full."""
    store.base.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_ends_an_agent_with_a_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In lock-step the fleet comes to the simulator's bits all the same, once there is room."""
    settings = small("recv", "fedavg")
    homes, begin, said = built(settings, tmp_path), Store.__init__, list[str]()

    def small_disk(store: Store, *words: Any, **more: Any) -> None:
        begin(store, *words, **more)
        if "agent-1" in str(store.file) and not said:
            full(store, 20)

    monkeypatch.setattr(Store, "__init__", small_disk)
    lines, found = Lines(), dict[int, Any]()
    over = threading.Event()

    def others() -> None:
        found.update(lived([homes[0], homes[2]], lines, seconds=100))

    thread = threading.Thread(target=others, daemon=True)
    thread.start()
    with pytest.raises(UserError, match="database or disk is full; what was written before is whole") as error:
        lived([homes[1]], lines)
    said.append(str(error.value))
    found |= lived([homes[1]], lines)
    thread.join(100)
    over.set()
    want = simulated(settings)
    assert sorted(found) == [0, 1, 2]
    for agent, stack in found.items():
        assert difference(want[agent], stack) == ""
    assert replay(homes[1].folder).task == settings.tasks.count


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
