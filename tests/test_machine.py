"""What a machine has."""

from pathlib import Path

import pytest

from shoal import machine


def test_memory_that_is_free_is_the_least_of_what_machine_and_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n", encoding="utf-8")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert machine.free() == 5000 * 1024
    (tmp_path / "memory.max").write_text("max\n", encoding="utf-8")
    (tmp_path / "memory.current").write_text("3000000\n", encoding="utf-8")
    (tmp_path / "memory.stat").write_text("anon 1\nactive_file 100\ninactive_file 20\n", encoding="utf-8")
    assert machine.free() == 5000 * 1024
    (tmp_path / "memory.max").write_text("4000000\n", encoding="utf-8")
    assert machine.free() == 1_000_120
    (tmp_path / "memory.max").write_text("2000000\n", encoding="utf-8")
    assert machine.free() == 0


def test_a_system_that_tells_nothing_is_asked_for_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "none")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert (machine.free() or 0) > 10**8
