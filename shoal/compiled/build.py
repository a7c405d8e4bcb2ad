"""Compiling the kernel once for a machine, and loading it."""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from shoal.models.contract import Model
from shoal.models.mlp import Linear
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic

SOURCE = Path(__file__).with_name("steps.c")
COMPILERS = ("cc", "gcc", "clang")
# Not -ffast-math: sums keep their order, and what is no number stays none.
FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-pthread")
SHARED = ("-shared", "-fPIC")
NATIVE = ("-march=native", "-mcpu=native")  # what a compiler calls this machine's own instructions
PATIENCE = 120.0  # seconds that compiling may take
CACHE = "SHOAL_CACHE"  # a folder for what is compiled, instead of the user's usual one


class Kernel(NamedTuple):
    """A compiled kernel, or why there is none."""

    library: ctypes.CDLL | None
    about: str  # who compiled it for which processor, or what is missing


@cache
def kernel() -> Kernel:
    """The kernel of this machine; it is compiled the first time, which takes some seconds, and kept."""
    compiler = next(
        (found for name in (os.environ.get("CC"), *COMPILERS) if name and (found := shutil.which(name))), ""
    )
    if not compiler:
        return Kernel(None, "there is no C compiler (cc, gcc or clang)")
    try:
        source = SOURCE.read_bytes()
        version = said(compiler, "--version").splitlines()[0]
        file = folder() / f"steps-{name(source, compiler, version)}.so"
        if not trusted(file):
            compile_to(file, compiler)
        library = ctypes.CDLL(str(file))
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        why = getattr(error, "stderr", None) or getattr(error, "strerror", None) or error
        return Kernel(None, f"{Path(compiler).name} could not compile it: {' '.join(str(why).split())[:200]}")
    library.shoal_means.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    library.shoal_means.restype = None
    library.shoal_steps.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int64]
    library.shoal_answers.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    number, place = ctypes.c_int64, ctypes.c_void_p
    library.shoal_orders.argtypes = [place, place, number, number, ctypes.c_int, place, place]
    library.shoal_nearest.argtypes = [place, number, number, number, place, number, place, place]
    for function in (library.shoal_steps, library.shoal_answers, library.shoal_nearest, library.shoal_orders):
        function.restype = ctypes.c_int
    return Kernel(library, version)


def unsuited(model: Model, device: str) -> str:
    """Why the kernel does not know such nets; empty: it does."""
    if device != "cpu":
        return f"the device is {device}, and it runs on cpu alone"
    if not isinstance(model, Monolithic | Modular) or not isinstance(model.block, Linear):
        return "it knows MLPs alone"
    return ""


def name(source: bytes, *more: str) -> str:
    """Letters that name all that a compiled file depends on."""
    said = "\n".join((*more, *FLAGS, *SHARED, *NATIVE, platform.machine(), processor(), sys.platform))
    return hashlib.sha256(source + said.encode()).hexdigest()[:32]


def processor() -> str:
    """What the processor calls itself and what it can do: another must not run what was compiled for this one."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
        return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return platform.processor()


def folder() -> Path:
    """Where compiled files are kept: the user's own, which nobody else may write."""
    said, usual = os.environ.get(CACHE), os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    temporary = Path(tempfile.gettempdir()) / f"shoal-{os.getuid() if hasattr(os, 'getuid') else 'kernel'}"
    for found in [Path(said)] if said else [Path(usual).expanduser() / "shoal", temporary]:
        with suppress(OSError, RuntimeError):
            found.mkdir(mode=0o700, parents=True, exist_ok=True)
            if own(found) and os.access(found, os.W_OK | os.X_OK):
                return found
    raise OSError(0, f"{found} is no folder that this user alone may write; set {CACHE} to one that is")


def own(path: Path) -> bool:
    """Is it a file or folder of this user that nobody else may write, and no link?"""
    there = path.lstat()
    if stat.S_ISLNK(there.st_mode):
        return False
    return not hasattr(os, "getuid") or (there.st_uid == os.getuid() and not there.st_mode & 0o022)


def trusted(file: Path) -> bool:
    """Is there a compiled file of ours, whole? Its digest is kept beside it."""
    try:
        return own(file) and file.with_suffix(".sha256").read_text(encoding="ascii") == checksum(file)
    except (OSError, ValueError):
        return False


def checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def compile_to(file: Path, compiler: str) -> None:
    """Compile beside the place of a file, then move it there, so that another process finds it whole or not at all."""
    with tempfile.TemporaryDirectory(dir=file.parent) as inner:
        made = Path(inner) / file.name
        for native in (*((flag,) for flag in NATIVE), ()):
            try:
                said(compiler, *FLAGS, *SHARED, *native, str(SOURCE), "-o", str(made), "-lm")
                break
            except subprocess.CalledProcessError:
                if not native:
                    raise
        made.chmod(0o700)
        mark = made.with_suffix(".sha256")
        mark.write_text(checksum(made), encoding="ascii")
        made.replace(file)
        mark.replace(file.with_suffix(".sha256"))


def said(*command: str) -> str:
    """What a command prints; an error, if it fails."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE, env=environment)
    return done.stdout
