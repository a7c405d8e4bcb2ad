"""`make fuzz`: what a stranger could send, made at random, bounded and seeded; whatever is no sentence ends it with 1.

Settings words, settings files, data of one's own, run directories, checkpoints and mail are made and made wrong. Each
must be taken, or refused in a sentence: no traceback, no hang, no process, no connection, no module of theirs imported,
and no file outside of the folder in which it works.

    python -m bench.fuzz --seconds 600 --seed 0
"""

import argparse
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from warnings import simplefilter

import numpy as np

HANG = 30  # seconds after which something hangs
FORBIDDEN = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system", "socket.connect",
             "socket.bind")  # fmt: skip
TASKS = {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1}
TINY = {
    "dataset": "digits", "agents": 2, "tasks": TASKS, "net": {"width": 8, "depth": 2},
    "learner": {"epochs": 2, "batch": 8, "memory": 4}, "sharing": [{"mode": "recv", "every": 1}],
    "machine": {"threads": 1},
}  # fmt: skip
VALUES = (
    "0", "-1", "1e99", "nan", "inf", "true", "''", "[]", "{}", "[[1]]", "'x'", "99999999999999999999", "1979-05-27",
    "'evil:Net'", "'modular-evil:Net'", "'csv:/dev/zero?label=a'", "'/etc/passwd'", "'\\u0000'", "'~nobody/x'",
    "[1, 'a']", "{a = 1}", "'../../x.graphml'", "0.5", "7",
)  # fmt: skip
watched: list[Any] = []  # where files may be written, and what was done that may not be, while something is watched


def hook(event: str, given: tuple[Any, ...]) -> None:
    """Note what nothing here may do."""
    if not watched:
        return
    place, seen = watched
    if event in FORBIDDEN:
        seen.append(f"{event} {str(given)[:80]}")
    elif event == "import" and given[0].startswith("evil"):
        seen.append(f"import {given[0]}")
    elif event == "open" and isinstance(given[0], str | bytes) and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        path = os.path.realpath(os.fsdecode(given[0]))
        if not path.startswith((str(place), "/dev/null")) and "__pycache__" not in path:
            seen.append(f"writes {path}")


@cache
def listen() -> None:
    """From now on, note what is done: once for a process, because nothing can take such a hook away."""
    sys.addaudithook(hook)


class Hang(BaseException):
    """Something took too long; no error, so that nobody catches it."""


@contextmanager
def watch(place: Path) -> Iterator[list[str]]:
    """What is done that may not be, while something works in a folder; what takes too long is stopped."""

    def late(*_: object) -> None:
        raise Hang(f"no answer after {HANG} seconds")

    listen()
    seen: list[str] = []
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG)
    watched[:] = [place.resolve(), seen]
    try:
        yield seen
    finally:
        watched.clear()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tried(action: Callable[[], object], place: Path) -> str:
    """What is wrong with how something ended; empty: nothing."""
    from shoal.errors import UserError

    fault = ""
    with watch(place) as seen, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            action()
        except UserError as error:
            if not str(error).strip():
                fault = "an error without a sentence"
        except Hang as error:
            fault = str(error)
        except BaseException:
            fault = traceback.format_exc(limit=-4)
    return fault or "; ".join(seen)


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    """A file cut off, with bytes changed, doubled, or of nothing but noise."""
    way = int(rng.integers(5))
    if way == 0 or not content:
        return content[: int(rng.integers(len(content) + 1))]
    if way == 1:
        return rng.bytes(int(rng.integers(1, 200)))
    if way == 2:
        return content + content[: int(rng.integers(len(content)))]
    found = bytearray(content)
    for _ in range(int(rng.integers(1, 20))):
        found[int(rng.integers(len(found)))] = int(rng.integers(256))
    return bytes(found)


def words(rng: np.random.Generator, place: Path) -> Callable[[], object]:
    """Settings on the command line."""
    from shoal.configure.checks import fields
    from shoal.configure.reading import read

    names = [name for name, _ in fields()] + ["sharing", "kinds", "learner", "network", "x.y", "", "tasks"]
    said = [
        f"{rng.choice(names)}={rng.choice(VALUES)}".replace("evil:", "none.such:") for _ in range(rng.integers(1, 4))
    ]
    return lambda: read("digits", [word for word in said if "dataset=" not in word])


def settings(rng: np.random.Generator, place: Path) -> Callable[[], object]:
    """A settings file, with a module beside it that nobody may import."""
    from shoal.configure.reading import EXPERIMENTS, read

    files = sorted(EXPERIMENTS.glob("*.toml"))
    lines = files[int(rng.integers(len(files)))].read_text().splitlines()
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        name = lines[at].partition("=")[0]
        lines[at] = (
            f"{name}= {rng.choice(VALUES)}" if "=" in lines[at] else str(rng.choice(["[", "[[x]]", "a.b.c = 1"]))
        )
    content = "\n".join(lines).encode()
    file = place / "fleet.toml"
    file.write_bytes(flip(content, rng) if rng.integers(4) == 0 else content)
    (place / "evil.py").write_text("raise SystemExit\n")
    return lambda: read(file)


def sources(place: Path) -> dict[str, bytes]:
    """Files of each kind that data of one's own can be in, all of them right."""
    import polars as pl

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})
    made: dict[str, bytes] = {"t.csv": frame.write_csv().encode()}
    parquet, npz, npy = io.BytesIO(), io.BytesIO(), io.BytesIO()
    frame.write_parquet(parquet)
    np.savez_compressed(npz, x=x, y=y)
    np.save(npy, x[:, :2])
    made |= {"t.parquet": parquet.getvalue(), "t.npz": npz.getvalue(), "f/0/a.npy": npy.getvalue()}
    made |= {"f/1/b.npy": npy.getvalue(), "f/1/c.npy": npy.getvalue(), "f/0/d.npy": npy.getvalue()}
    arrow = io.BytesIO()
    frame.write_ipc_stream(arrow)
    made |= {
        "h/data.arrow": arrow.getvalue(),
        "h/state.json": json.dumps({"_data_files": [{"filename": "data.arrow"}]}).encode(),
        "h/dataset_info.json": json.dumps({"features": {"y": {"_type": "ClassLabel", "names": ["n", "p"]}}}).encode(),
    }  # fmt: skip
    try:
        from PIL import Image
    except ImportError:
        return made
    picture = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (6, 6), np.uint8)).save(picture, "PNG")
    return made | {f"p/{at % 2}/{at}.png": picture.getvalue() for at in range(4)}


NAMES = {
    "t.csv": "csv:{}/t.csv?label=y", "t.parquet": "parquet:{}/t.parquet?label=y", "t.npz": "npz:{}/t.npz",
    "f": "folder:{}/f", "h": "hf:{}/h?label=y", "p": "folder:{}/p",
}  # fmt: skip


def data(rng: np.random.Generator, place: Path) -> Callable[[], object]:
    """Data of one's own: a file of it is damaged, or in its place is what is no file."""
    from shoal.data.sources import read

    held = sources(place)
    for name, content in held.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    victim = str(rng.choice(list(held)))
    file, way = place / victim, int(rng.integers(10))
    if way < 7:
        file.write_bytes(flip(held[victim], rng))
    else:
        file.unlink()
        (os.mkfifo, os.mkdir, lambda to: to.symlink_to("/dev/zero"))[way - 7](file)
    if victim.endswith(".json") and way < 7:
        file.write_text(str(rng.choice(["[]", "{", "3", "null", '{"_data_files": 3}', '{"features": []}', "[" * 9999,
                                        '{"_data_files": [{"filename": "../../../etc/passwd"}]}'])))  # fmt: skip
    named = NAMES[victim.partition("/")[0]].format(place)
    if rng.integers(8) == 0:
        named = str(rng.choice([
            named.replace(str(place), "~nobody"), named + "\0", named + "?", named + "&size=30000,30000",
            named.partition("?")[0] + "?size=99999,99999", named + "&label=", "csv:/dev/zero?label=a", "npz:/dev/zero",
        ]))  # fmt: skip
    return lambda: read(named)


def finished(place: Path, made: dict[str, Any] = {}) -> Path:  # noqa: B006 - made once
    """A copy of a finished run."""
    from shoal.runs.execute import carry_out, prepare
    from shoal.runs.record import create
    from shoal.settings.groups import Settings

    if "run" not in made:
        made["run"] = Path(tempfile.mkdtemp(prefix="shoal-fuzz-run-")) / "run"
        whole = Settings(**TINY)
        carry_out(prepare(whole), create(made["run"], whole))
    return Path(shutil.copytree(made["run"], place / "run"))


def runs(rng: np.random.Generator, place: Path) -> Callable[[], object]:
    """A run directory, read as a report and a comparison read it."""
    from shoal.runs import read as reading
    from shoal.study.compare import entries

    run = finished(place)
    if rng.integers(2):
        (run / "manifest.json").unlink()
    file = run / str(rng.choice(sorted(one.name for one in run.iterdir())))
    content = file.read_bytes()
    if file.name == "settings.toml" and rng.integers(2):
        lines = content.decode().splitlines()
        at = int(rng.integers(len(lines)))
        lines[at] = f"{lines[at].partition('=')[0]}= {rng.choice(VALUES)}"
        content = "\n".join(lines).encode()
        (run / "evil.py").write_text("raise SystemExit\n")
    else:
        content = flip(content, rng)
    file.write_bytes(content)

    def act() -> None:
        reading.gather([run])
        entries([run])

    return act


def checkpoints(rng: np.random.Generator, place: Path) -> Callable[[], object]:
    """A checkpoint with a right digest, of which one thing is another."""
    import torch
    from safetensors.torch import save

    from shoal.runs import checkpoints as files
    from shoal.runs.execute import prepare
    from shoal.runs.record import reopen

    run = finished(place)
    (run / "summary.json").unlink()
    (run / "manifest.json").unlink()
    record = reopen(run)
    saved = files.opened(record.checkpoint, torch.device("cpu"))
    tensors, about = dict(saved.tensors), dict(saved.about)
    name = str(rng.choice(list(tensors)))
    one = tensors[name].clone()
    if one.numel() and rng.integers(3):
        one.view(-1)[int(rng.integers(one.numel()))] = int(rng.choice([-1, 1, 2**15 - 1, -(2**15)]))
    else:
        one = one.reshape(-1)
    tensors[name] = one
    if not rng.integers(5):
        about[str(rng.choice(list(about)))] = str(rng.choice(["", "[]", "{}", "-1", "[[[0, 0]]]", '["x"]']))
    record.checkpoint.write_bytes(save(tensors, {**about, "digest": files.digest(about, tensors)}))
    fleet = prepare(record.settings)
    return lambda: record.load(fleet)


def mail(rng: np.random.Generator, place: Path) -> Callable[[], object]:
    """A payload that is judged by what is expected of it."""
    import torch

    from shoal.letters.mail import Expected, fault

    simplefilter("ignore", UserWarning)  # of what torch calls a prototype

    kinds = (torch.float32, torch.int64, torch.uint8, torch.float64, torch.bool, torch.complex64, torch.float16)
    shape = tuple(int(one) for one in rng.integers(0, 4, rng.integers(0, 4)))
    tensor: Any = torch.zeros(shape, dtype=kinds[int(rng.integers(len(kinds)))])
    odd = [
        tensor, tensor.to_sparse() if tensor.ndim else tensor, torch.zeros(2).to_mkldnn(),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        torch.zeros(2, device="meta"), None, "x", torch.full((2, 2), float("nan")), torch.zeros(2, requires_grad=True),
    ]  # fmt: skip
    payload = {str(rng.choice(["a", "b", ""])): odd[int(rng.integers(len(odd)))]}
    want = {"a": Expected(torch.float32, (None, 2), least=-1, most=1)}

    def act() -> None:
        if not isinstance(fault(payload, want), str):
            raise TypeError("no verdict")

    return act


SURFACES = {one.__name__: one for one in (words, settings, data, runs, checkpoints, mail)}


def fuzz(
    seconds: float, seed: int, most: int | None = None, only: tuple[str, ...] = ()
) -> tuple[Counter[str], list[str]]:
    """How many of each were tried, and what was wrong: until the time, or so many of each, is over."""
    chosen = {name: make for name, make in SURFACES.items() if not only or name in only}
    ends, counts, faults, at = time.monotonic() + seconds, Counter[str](), list[str](), 0
    while time.monotonic() < ends and (most is None or at < most):
        for name, make in chosen.items():
            if time.monotonic() > ends:
                break
            place = Path(tempfile.mkdtemp(prefix="shoal-fuzz-"))
            before, home = os.environ.get("TMPDIR"), Path.cwd()
            try:
                action = make(np.random.default_rng([seed, at, list(SURFACES).index(name)]), place)
                os.environ["TMPDIR"] = str(place)
                os.chdir(place)
                if fault := tried(action, place):
                    faults.append(f"{name}, seed {seed}, trial {at}: {fault}")
            finally:
                os.chdir(home)
                os.environ.pop("TMPDIR", None)
                if before is not None:
                    os.environ["TMPDIR"] = before
                shutil.rmtree(place, ignore_errors=True)
            counts[name] += 1
        at += 1
    return counts, faults


def main() -> int:
    """Say what was tried and what was wrong with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), choices=list(SURFACES))
    given = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="shoal-fuzz-state-")
    counts, faults = fuzz(given.seconds, given.seed, only=tuple(given.only))
    for fault in faults:
        print(fault)
    print(f"{sum(counts.values())} trials ({', '.join(f'{name} {count}' for name, count in counts.items())}), "
          f"{len(faults)} that are no sentence")  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
