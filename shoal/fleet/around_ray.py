"""What is around Ray in this process: the environment that it reads, signals that it takes, and what it says."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from shoal.fleet import watchdog

ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # whether Ray speaks to other machines at all
BEFORE: dict[str, str] = {}  # what the user's environment said of tokens


@contextmanager
def marked(folder: Path) -> Iterator[None]:
    """What is started inside bears the mark of a folder, and listens on this machine alone."""
    constants: Any = import_module("ray._private.ray_constants")
    with patched({watchdog.MARK: str(folder), ALONE: "0"}):
        before = getattr(constants, "ENABLE_RAY_CLUSTER", None)  # it was read from the environment at the import
        if before is not None:
            constants.ENABLE_RAY_CLUSTER = False
        try:
            yield
        finally:
            if before is not None:
                constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def patched(words: Mapping[str, str]) -> Iterator[None]:
    """The environment with some words in it, for those who are started inside."""
    before = {name: os.environ.get(name) for name in words}
    os.environ.update(words)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def with_token(token: str | None) -> None:
    """Let Ray in this process and those that it starts ask for a token; None: what the user's environment says. Else it
    would write one into the home folder, for all to read. A Ray that cannot be told so any more has none."""
    for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}.items():
        if token is None and name in BEFORE:
            os.environ[name] = BEFORE[name]
        elif token is None:
            os.environ.pop(name, None)
        else:
            if name in os.environ:
                BEFORE.setdefault(name, os.environ[name])
            os.environ[name] = str(value)
    if not reread() and token is not None:
        with_token(None)


def reread() -> bool:
    """Let Ray read the environment again: it did when it was imported. Could it be done? Its names for that are
    private, and another version may have none."""
    try:
        compiled = import_module("ray._raylet")
        compiled.Config.initialize("")
        compiled.AuthenticationTokenLoader.instance().reset_cache()
    except (ImportError, AttributeError, TypeError):
        return False
    return True


@contextmanager
def hushed(said: list[str]) -> Iterator[None]:
    """What this process, also its parts that are not Python, says on stderr inside is put into a list instead."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            said.extend(file.read().decode(errors="replace").splitlines())


@contextmanager
def hearing() -> Iterator[None]:
    """Let those hear signals afterwards who did before: Ray puts its own handler in their place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
