"""Build wheel and sdist, look into both, write beside the wheel what it brings (.ci/sbom.py), install the wheel and
that of paper/ in an empty environment, and try every command there.

`make package` runs it. Nothing of the source tree is on the path of the new environment: what works, works from the
wheel. What the wheel needs comes from this environment's packages where they are there already (`--offline`, the
default, so that no gigabyte is downloaded twice), or else from the index (`--online`).
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

import sbom

ROOT = Path(__file__).parents[1]
SMALL = ("agents=2", "seeds=1", "tasks.count=6", "tasks.train=4", "tasks.validation=4", "net.width=8", "net.depth=2",
         "learner.epochs=16", "learner.memory=4", "machine.threads=1")  # fmt: skip
# Every command, as somebody would try it; `{run}` and `{other}` are finished runs. Those that start at once are tried
# as commands; the others in one process through the same door, because torch takes seconds to start.
LIGHT = ("--version", "--help", "list settings", "list sharing", "list learners", "list experiments", "data list")
HEAVY = (
    f"check digits {' '.join(SMALL)} sharing=recv network=ring", "network ring --out ring.svg",
    f"run digits {' '.join(SMALL)} --out {{run}}",
    f"run digits {' '.join(SMALL)} sharing=modmod learner.accept=-1 --out {{other}}",
    "resume {run}", "compare {run} {other} --no-page", "report {run} {other} --out page.html",
    f"sweep digits {' '.join(SMALL)} sharing=none,uniform --no-page",
    f"advise digits {' '.join(SMALL)} --candidates simp --seeds 2 --budget 100kB/task",
    "transfer {other} --epochs 1 --out transfer.svg",
    f"demo {' '.join(word for word in SMALL if not word.startswith('seeds'))} --seeds 1",
    "reproduce report --tables {docs} --write page.md --figures figures",
)  # fmt: skip
PROGRAM = """
import shlex, sys
from shoal.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["shoal", *shlex.split(line)]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"shoal {line} ends with {end.code}")
    print(f"ok  shoal {line}", flush=True)
"""
WITHIN = {"shoal/py.typed", "shoal/data/digits.npz", "shoal/data/digits.txt", "shoal/report/page.css",
          "shoal/report/page.js", "shoal/experiments/digits.toml", "shoal/compiled/steps.c"}  # fmt: skip
BESIDE = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "codemeta.json", "Makefile", "docs/conf.py",
          "docs/index.md", "tests/golden.json", "examples/hello.py", "paper/pyproject.toml"}  # fmt: skip


def build(place: Path) -> tuple[Path, Path, Path]:
    """The wheel and the sdist, and the wheel of the package in paper/."""
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(place)]
    subprocess.run(words, cwd=ROOT, check=True)
    subprocess.run([*words, "-t", "wheel"], cwd=ROOT / "paper", check=True)
    (wheel,), (sdist,), (paper,) = (place.glob(name) for name in ("shoal-*.whl", "shoal-*.tar.gz", "shoal_paper-*.whl"))
    return wheel, sdist, paper


def look(wheel: Path, sdist: Path) -> None:
    """What must be in both, and what must not."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    assert names >= WITHIN, f"the wheel lacks {sorted(WITHIN - names)}"
    built = {name for name in names if name.startswith("shoal/compiled/built/")}
    assert bool(built) == ("none-any" not in wheel.name), f"{wheel.name} has {sorted(built) or 'no kernel'}"
    strange = {name for name in names if not name.startswith(("shoal/", "shoal-"))}
    assert not strange, f"the wheel has {sorted(strange)}"
    with tarfile.open(sdist) as file:
        beside = {name.partition("/")[2] for name in file.getnames()}
    assert beside >= WITHIN | BESIDE, f"the sdist lacks {sorted((WITHIN | BESIDE) - beside)}"
    made = {name for name in beside if name.startswith(("docs/_build", "docs/reference", "runs/", ".venv"))}
    assert not made, f"the sdist has {sorted(made)[:5]}"


def install(wheel: Path, paper: Path, place: Path, online: bool) -> Path:
    """A new environment that has both wheels, and its `shoal`."""
    venv.create(place, with_pip=online)
    python = place / "bin" / "python"
    if online:
        words = [python, "-m", "pip", "install", "-c", ROOT / "constraints.txt", f"shoal[report] @ {wheel.as_uri()}",
                 paper]  # fmt: skip
    else:
        site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
        paths = [path for path in sys.path if "site-packages" in path and path != str(ROOT)]
        (site / "packages.pth").write_text("\n".join(paths))  # as folders alone: their own .pth files do not count
        words = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--ignore-installed", wheel,
                 paper]  # fmt: skip
    subprocess.run(list(map(str, words)), check=True)
    return place / "bin" / "shoal"


def smoke(shoal: Path, wheel: Path, place: Path) -> None:
    """Every command in a folder of its own; none may fail."""
    # Where there is no compiler: what is fast was built before.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(place / "cache"),
        "PATH": str(shoal.parent),
        "CC": "",
    }
    environment.pop("PYTHONPATH", None)
    where = subprocess.run(
        [str(shoal.parent / "python"), "-c", "import shoal; print(shoal.__file__)"], cwd=place, env=environment,
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(shoal.parent.parent) in where, f"it is not the wheel that is tried: {where}"
    if "none-any" not in wheel.name:
        kernel = "from shoal.compiled.library import kernel; print(kernel().about); assert kernel().library"
        subprocess.run([str(shoal.parent / "python"), "-c", kernel], cwd=place, env=environment, check=True)
    for line in LIGHT:
        done = subprocess.run([str(shoal), *line.split()], cwd=place, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"shoal {line} ends with {done.returncode}: {done.stderr[-2000:]}"
        print(f"ok  shoal {line}", flush=True)
    lines = "\n".join(HEAVY).format(run="runs/one", other="runs/two", docs=ROOT / "docs" / "results")
    done = subprocess.run([str(shoal.parent / "python"), "-c", PROGRAM], cwd=place, env=environment, input=lines,
                          capture_output=True, text=True)  # fmt: skip
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith("ok  ")), flush=True)
    assert done.returncode == 0, done.stderr[-3000:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--online", action="store_true", help="install what the wheel needs from the index")
    parser.add_argument("--keep", type=Path, default=ROOT / "dist", help="where wheel and sdist stay")
    said = parser.parse_args()
    for old in (
        [*said.keep.glob("shoal*.whl"), *said.keep.glob("shoal-*.tar.gz"), *said.keep.glob("shoal-*.cdx.json")]
        if said.keep.exists()
        else ()
    ):
        old.unlink()
    wheel, sdist, paper = build(said.keep)
    look(wheel, sdist)
    print(f"{sbom.write(wheel).name} lists what the wheel brings", flush=True)
    with tempfile.TemporaryDirectory() as place:
        smoke(install(wheel, paper, Path(place) / "env", said.online), wheel, Path(place))
    print(f"{wheel.name}, {sdist.name} and {paper.name} are good")


if __name__ == "__main__":
    main()
