"""What made a run: versions, commit and machine, of each of its sessions."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import shoal
from shoal.runs.files import FORMAT as FORMAT

CODE = tuple(f":(top)*.{end}" for end in ("py", "c", "h", "toml"))  # what of a tree can change a result
PACKAGES = ("torch", "numpy", "networkx", "pydantic", "safetensors", "polars")


def about() -> dict[str, Any]:
    """What made this run: enough to make it again."""
    return {
        "format": FORMAT,
        "shoal": shoal.__version__,
        "commit": commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def sessions_of(made: dict[str, Any]) -> list[dict[str, Any]]:
    """What about.json says of the session that began a run, and of those that went on with it."""
    resumed = made.get("resumed", [])
    more = resumed if isinstance(resumed, list) else []
    return [made, *(one for one in more if isinstance(one, dict))]


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What of all that can change the last bits of a run differs between two sessions; empty: nothing."""

    def said(session: dict[str, Any]) -> dict[str, Any]:
        packages = session.get("packages")
        torch_ = packages.get("torch") if isinstance(packages, dict) else None
        return {
            "torch": torch_,
            "commit": session.get("commit"),
            "instruction set": session.get("cpu"),
            "kernel": session.get("kernel", "torch"),  # as all had before there was another
        }

    one, other = said(before), said(now)
    changed = [name for name in one if one[name] is not None and one[name] != other[name]]
    return ", ".join(f"{name} {other[name]} in place of {one[name]}" for name in changed)


@cache
def commit() -> str | None:
    """The commit of shoal's own source tree, marked if its code has changes; None if it is installed without one. It is
    asked for once: what is committed later is not what this process runs."""
    return commit_of(Path(__file__))


def commit_of(file: Path) -> str | None:
    """The commit of the tree that a tracked file is in. Code has changed if a program or a settings file has; a table
    of results that the last command has written is none."""

    def git(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            ["git", *words], cwd=file.parent, capture_output=True, text=True, timeout=10, check=False
        )  # fmt: skip
        return done.returncode, done.stdout.strip()

    try:
        here, name = git("describe", "--always", "--abbrev=12", "--exclude=*")
        tracked, _ = git("ls-files", "--error-unmatch", str(file))
        changed, _ = git("diff", "--quiet", "HEAD", "--", *CODE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return name + "-dirty" * (changed != 0) if here == tracked == 0 else None
