"""Calling shoal in tests: inside this process, as a real command, or as a process that starts at once, to be killed."""

import io
import multiprocessing
import os
import runpy
import signal
import stat
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from shoal.cli import commands as cli
from shoal.configure.reading import EXPERIMENTS

ROOT = Path(__file__).parents[1]
DIGITS = EXPERIMENTS / "digits.toml"
# A run of half a second in which something is learned, modules are kept and modules are dropped.
TINY = (
    "agents=2", "seeds=2", "seed=10", "tasks.count=6", "tasks.classes=2", "tasks.train=16", "tasks.validation=8",
    "net.width=16", "net.depth=2", "net.dropout=0.2", "learner.epochs=6", "learner.batch=16", "learner.rate=0.04",
    "learner.memory=8", "machine.threads=1",
)  # fmt: skip


class Done(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


def call(*words: object) -> Done:
    """The command line in this process, from its entry point to its exit code."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["shoal", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        return Done(int(end.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.argv = before
    raise AssertionError("a command must end with an exit code")


def refused(done: Done, *parts: str) -> str:
    """Exit code 2, nothing on stdout, and on stderr one sentence that has all `parts`."""
    assert (done.code, done.out) == (2, ""), done
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    assert done.err.endswith("\n")
    for part in parts:
        assert part in done.err, done.err
    return done.err


def command(*words: object) -> list[str]:
    """The words that start the command line as a process of its own."""
    return [sys.executable, "-m", "shoal", *map(str, words)]


def launch(*words: object, group: bool = False) -> "subprocess.Popen[str]":
    """Start the real command, in a group of processes of its own, if that is wanted."""
    return subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=group
    )


def server() -> ForkServerContext:
    """Starts processes that have imported everything already, so that a test can afford dozens. Only the imports are
    shared: they are processes like any other."""
    context = multiprocessing.get_context("forkserver")
    # torch imports sympy when it first trains
    context.set_forkserver_preload(["shoal.cli.commands", "shoal.runs.execute", "sympy"])
    return context


def fork(*words: object, fatal: int = 0) -> BaseProcess:
    """Start the command line at once; it kills itself in its `fatal`-th write, if that is given."""
    process = server().Process(target=child, args=(list(map(str, words)), fatal))
    process.start()
    return process


def child(words: list[str], fatal: int) -> None:
    """What a forked process does."""
    writes = 0

    def die(file: int) -> None:
        nonlocal writes
        if not stat.S_ISREG(os.fstat(file).st_mode):  # a folder
            return
        writes += 1
        if writes == fatal:
            os.ftruncate(file, os.fstat(file).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    if fatal:
        os.fsync = die  # type: ignore[assignment]
    sys.argv = ["shoal", *words]
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        cli.main()


def program_in(folder: Path, file: Path) -> Done:
    """A program that starts at once in a process of its own, in a folder, and all that it says; its code is 1 where it
    fails."""
    out = folder / "said.txt"
    process = server().Process(target=follow, args=(file, folder, out))
    process.start()
    process.join()
    return Done(process.exitcode or 0, out.read_text(encoding="utf-8"), "")


def follow(file: Path, folder: Path, out: Path) -> None:
    """What such a process does."""
    os.chdir(folder)
    sys.path.insert(0, str(ROOT))
    with out.open("w", encoding="utf-8") as stream, redirect_stdout(stream), redirect_stderr(stream):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except BaseException:
            traceback.print_exc()
            stream.flush()
            os._exit(1)
