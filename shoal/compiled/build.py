"""Building the kernel, once: when shoal is installed or a wheel is made, for every set of instructions of the machine.

In a source tree `python -m shoal.compiled.build` does it again. `hatch_build.py` runs this file by its path, where
nothing else of shoal can be imported: it needs the standard library alone.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("steps.c")
BUILT = Path(__file__).with_name("built")
COMPILERS = ("cc", "gcc", "clang")
# Not -ffast-math: sums keep their order, and what is no number stays none.
FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-pthread")
SHARED = ("-shared", "-fPIC")
X86: dict[str, tuple[str, ...]] = {  # the least first; `shoal_level` in steps.c says which of them a processor has
    "x86-64-v2": ("-march=nehalem",),
    "avx2": ("-march=haswell",),
    "avx512": ("-march=skylake-avx512",),
}
PATIENCE = 300.0  # seconds that compiling may take


def instruction_sets() -> dict[str, tuple[str, ...]]:
    """The sets of instructions that this kind of machine can have, by name, and what a compiler is told of each."""
    machine = platform.machine().lower()
    return X86 if machine in ("x86_64", "amd64") else {machine: ()}


def file_of(name: str) -> Path:
    """Where the kernel for a set of instructions is."""
    return BUILT / f"steps-{name}.so"


def digest() -> str:
    """What names the source, with the headers beside it; every file that is built of it says so."""
    files = [SOURCE, *sorted(SOURCE.parent.glob("*.h"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:32]


def fresh() -> bool:
    """Is the kernel built, for every set of instructions, from the source as it is?"""
    mark = digest().encode()
    return all(file.is_file() and mark in file.read_bytes() for file in map(file_of, instruction_sets()))


def compiler() -> str:
    """A C compiler; empty: there is none."""
    names = (os.environ.get("CC"), *COMPILERS)
    return next((found for name in names if name and (found := shutil.which(name))), "")


def build() -> list[Path]:
    """Build the kernel for every set of instructions; a file appears whole or not at all. RuntimeError says in one
    sentence why it cannot."""
    if not (tool := compiler()):
        raise RuntimeError("there is no C compiler (cc, gcc or clang)")
    said = f'-DSHOAL_SOURCE="{digest()}"'
    BUILT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as inner:
        made = {name: Path(inner) / file_of(name).name for name in instruction_sets()}
        jobs = [
            subprocess.Popen(
                [tool, *FLAGS, *SHARED, *flags, said, str(SOURCE), "-o", str(made[name]), "-lm"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "LC_ALL": "C"},
            )
            for name, flags in instruction_sets().items()
        ]  # fmt: skip
        try:
            told = [job.communicate(timeout=PATIENCE)[0] for job in jobs]
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{Path(tool).name} takes more than {PATIENCE:.0f} seconds") from None
        finally:
            for job in jobs:
                job.kill()
        for job, words in zip(jobs, told, strict=True):
            if job.returncode:
                raise RuntimeError(f"{Path(tool).name} could not compile it: {' '.join(words.split())[:200]}")
        for name, file in made.items():
            file.replace(file_of(name))
    return [file_of(name) for name in made]


def main() -> None:
    try:
        files = build()
    except (OSError, RuntimeError) as error:
        sys.exit(f"the kernel is not built: {error}; without it torch takes the steps, more slowly")
    print(*files, sep="\n")


if __name__ == "__main__":
    main()
