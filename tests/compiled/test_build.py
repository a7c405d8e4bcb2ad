"""The kernel is compiled once and kept where only its user can write; without a compiler torch does the work."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.compiled import build
from shoal.errors import SettingsError
from shoal.fleet.world import World
from shoal.settings.reading import read
from tests.command import DIGITS, TINY, call, refused
from tests.fleets import fleet

COMPILED = build.kernel().library is not None
compiles = pytest.mark.skipif(not COMPILED, reason=build.kernel().about)


@pytest.fixture(autouse=True)
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own for what is compiled, and nothing remembered."""
    monkeypatch.setenv(build.CACHE, str(tmp_path / "cache"))
    build.kernel.cache_clear()
    yield tmp_path / "cache"
    build.kernel.cache_clear()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a compiler."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(build, "COMPILERS", ("no-such-compiler",))


def count(folder: Path) -> int:
    return len(list(folder.glob("*.so")))


@compiles
def test_the_kernel_is_compiled_once_for_a_machine(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.kernel().library is not None
    assert count(anew) == 1
    assert not list(anew.glob("tmp*")), "nothing is left behind"
    assert not anew.stat().st_mode & 0o077
    build.kernel.cache_clear()
    monkeypatch.setattr(build, "compile_to", lambda *given: pytest.fail("it was compiled again"))
    assert build.kernel().library is not None
    monkeypatch.undo()
    monkeypatch.setenv(build.CACHE, str(anew))
    monkeypatch.setattr(build, "processor", lambda: "another one")
    build.kernel.cache_clear()
    assert build.kernel().library is not None
    assert count(anew) == 2, "another processor has a file of its own"


@compiles
def test_a_damaged_or_foreign_file_is_never_loaded(anew: Path) -> None:
    build.kernel()
    (file,) = anew.glob("*.so")
    whole = file.read_bytes()
    file.unlink()  # what is loaded stays as it is
    file.write_bytes(whole[:-100] + bytes(100))
    assert not build.trusted(file)
    file.write_bytes(whole)
    file.chmod(0o700)
    assert build.trusted(file)
    file.chmod(0o722)
    assert not build.trusted(file), "others could have written it"
    file.unlink()
    real = file.with_name("elsewhere")
    real.write_bytes(whole)
    file.symlink_to(real)
    assert not build.trusted(file)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="a system without owners of files")
def test_a_folder_that_others_may_write_is_not_used(anew: Path) -> None:
    anew.mkdir()
    anew.chmod(0o777)
    there = build.kernel()
    assert there.library is None
    assert not COMPILED or f"{anew} is no folder that this user alone may write" in there.about


def test_without_a_compiler_torch_takes_the_steps_and_says_so(without: None, tmp_path: Path) -> None:
    world = fleet("mlp")
    assert (world.compiled, world.kernel) == (False, "torch")
    assert world.about.endswith("; its steps go through torch: there is no C compiler (cc, gcc or clang)")
    with pytest.raises(SettingsError, match=r'machine.kernel = "compiled" cannot be, because there is no C compiler'):
        fleet("mlp", machine={"kernel": "compiled"})


def test_a_compiler_that_fails_is_said_and_torch_takes_the_steps(
    anew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "cc"
    bad.write_text('#!/bin/sh\n[ "$1" = --version ] && echo bad 1.0 && exit\necho no space >&2\nexit 1\n')
    bad.chmod(0o755)
    monkeypatch.setenv("CC", str(bad))
    assert build.kernel() == (None, "cc could not compile it: no space")
    assert not fleet("mlp").compiled


@compiles
def test_what_the_kernel_does_not_know_goes_through_torch() -> None:
    def said(world: World) -> str:
        assert not world.compiled
        return world.uncompiled

    assert said(fleet("cnn")) == "it knows MLPs alone"
    assert said(fleet("mlp", machine={"kernel": "torch"})) == "machine.kernel says so"
    assert "takes the place of the engine vmap" in said(fleet("mlp", machine={"engine": "loop"}))


def test_asking_for_a_kernel_that_cannot_be_is_one_sentence() -> None:
    words = ["machine.kernel=compiled", "machine.engine=loop"]
    refused(call("check", DIGITS, *words), 'machine.kernel = "compiled" cannot be, because it takes the place')


def test_what_takes_the_steps_is_in_the_record_but_not_in_the_name_of_a_run(tmp_path: Path) -> None:
    one, other = (read(DIGITS, [*TINY, f"machine.kernel={name}"]) for name in ("torch", "auto"))
    assert one.identity() == other.identity()
    assert call("run", DIGITS, *TINY, "machine.kernel=torch", "--out", tmp_path / "run").code == 0
    made = json.loads((tmp_path / "run" / "about.json").read_text())
    assert made["kernel"] == "torch"
    assert made["models"][0].endswith("its steps go through torch: machine.kernel says so")


@compiles
def test_the_source_compiles_without_a_warning(tmp_path: Path) -> None:
    flags = [*build.FLAGS, *build.SHARED, "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        ["cc", *flags, str(build.SOURCE), "-o", str(tmp_path / "steps.so"), "-lm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
