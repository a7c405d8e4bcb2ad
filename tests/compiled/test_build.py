"""The kernel is built when shoal is installed, and loaded for the instructions of the machine; without it torch does
the work."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.agents.world import World
from shoal.compiled import build, layout, library
from shoal.configure.reading import read
from shoal.errors import SettingsError
from tests.command import DIGITS, TINY, call, refused
from tests.fleets import fleet

BUILT = library.kernel().library is not None
built = pytest.mark.skipif(not BUILT, reason=library.kernel().about)
compiles = pytest.mark.skipif(not build.compiler(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Nothing is remembered."""
    library.kernel.cache_clear()
    yield
    library.kernel.cache_clear()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own for what is built."""
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    return tmp_path / "built"


@compiles
def test_where_there_is_a_compiler_the_kernel_is_built() -> None:
    """Or else all other tests of it would be skipped."""
    assert build.fresh()
    assert BUILT, library.kernel().about


@built
def test_the_best_instructions_are_used_or_less_and_the_name_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(build.instruction_sets())
    best = names[library.opened(names[0]).shoal_level()]
    assert fleet("mlp").kernel.endswith(f" for {best}")
    said = set()
    for name in names[: names.index(best) + 1]:
        monkeypatch.setenv(library.MOST, name)
        library.kernel.cache_clear()
        world = fleet("mlp")
        assert world.compiled
        assert world.kernel == f"compiled by {library.kernel().about}"
        assert world.kernel.endswith(f" for {name}")
        said.add(world.kernel)
    assert len(said) == names.index(best) + 1, "what gives other bits has another name"
    monkeypatch.setenv(library.MOST, "quantum")
    library.kernel.cache_clear()
    assert library.kernel() == (None, f"SHOAL_INSTRUCTIONS is `quantum`, which is none of {', '.join(names)}")


@built
def test_every_set_of_instructions_learns_the_same_up_to_rounding(tmp_path: Path) -> None:
    """Each in a process of its own: what is loaded stays loaded."""
    program = (
        "from tests import golden; from shoal.compiled.library import kernel;"
        "found = golden.measured(golden.cases()['modular-mlp alone'], 'compiled');"
        "print(kernel().about.rpartition(' ')[2], found['accuracy'], found['weights'])"
    )
    names = list(build.instruction_sets())
    names = names[: library.opened(names[0]).shoal_level() + 1]
    told = []
    for name in names:
        environment = {**os.environ, library.MOST: name, "PYTHONPATH": os.pathsep.join(sys.path)}
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.split())
    assert [one[0] for one in told] == names
    for _, accuracy, weights in told:
        assert float(accuracy) == pytest.approx(float(told[0][1]), abs=0.01)
        assert float(weights) == pytest.approx(float(told[0][2]), rel=0.002)


@compiles
def test_it_is_built_for_every_set_and_nothing_else_is_left(elsewhere: Path) -> None:
    assert not build.fresh()
    files = build.build()
    assert sorted(elsewhere.iterdir()) == sorted(files)
    assert [file.name for file in files] == [f"steps-{name}.so" for name in build.instruction_sets()]
    assert build.fresh()
    assert library.kernel().library is not None


def test_without_what_was_built_torch_takes_the_steps_and_says_so(elsewhere: Path) -> None:
    world = fleet("mlp")
    why = "the kernel is not built here; with a C compiler, `python -m shoal.compiled.build` builds it"
    assert (world.compiled, world.kernel) == (False, "torch")
    assert world.about.endswith(f"; its steps go through torch: {why}")
    with pytest.raises(SettingsError, match=r'machine.kernel = "compiled" cannot be, because the kernel is not built'):
        fleet("mlp", machine={"kernel": "compiled"})


@built
def test_a_kernel_of_another_source_or_with_other_structures_is_not_used(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(iter(build.instruction_sets()))
    file = Path(__file__).parents[2] / "shoal" / "compiled" / "built" / f"steps-{name}.so"
    elsewhere.mkdir()
    build.file_of(name).write_bytes(file.read_bytes())
    library.opened(name)
    with monkeypatch.context() as other:
        other.setitem(layout.STRUCTURES, "Step", 8)
        with pytest.raises(ValueError, match=r"structures of the kernel in .* have .* bytes, and not those of"):
            library.opened(name)
    with monkeypatch.context() as other:
        other.setattr(build, "SOURCE", tmp_path / "steps.c")
        (tmp_path / "steps.c").write_text("int shoal_version(void) { return 2; }\n")
        with pytest.raises(ValueError, match="is of another source"):
            library.opened(name)
        assert not fleet("mlp").compiled
    monkeypatch.setattr(build, "BUILT", tmp_path)  # another path: what is loaded stays loaded
    build.file_of(name).write_bytes(b"no library")
    library.kernel.cache_clear()
    assert "cannot be loaded" in library.kernel().about


def test_without_a_compiler_or_with_one_that_fails_building_is_one_sentence(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CC", raising=False)
    with monkeypatch.context() as none:
        none.setattr(build, "COMPILERS", ("no-such-compiler",))
        with pytest.raises(SystemExit, match=r"not built: there is no C compiler \(cc, gcc or clang\); without"):
            build.main()
    bad = tmp_path / "cc"
    bad.write_text("#!/bin/sh\necho no space >&2\nexit 1\n")
    bad.chmod(0o755)
    monkeypatch.setenv("CC", str(bad))
    with pytest.raises(SystemExit, match="not built: cc could not compile it: no space"):
        build.main()
    assert not list(elsewhere.iterdir())


@built
def test_what_the_kernel_does_not_know_goes_through_torch() -> None:
    def said(world: World) -> str:
        assert not world.compiled
        return world.uncompiled

    assert "chains of linear layers and ReLUs alone" in said(fleet("ridge"))
    assert "takes the place of the engine loop" in said(fleet("cnn", machine={"engine": "vmap"}))
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
        [build.compiler(), *flags, str(build.SOURCE), "-o", str(tmp_path / "steps.so"), "-lm"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
