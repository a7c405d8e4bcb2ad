"""shoal: fleets of agents that learn their own streams of tasks, and share what helps the others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.config import Settings
    from shoal.reading import read, resolve
    from shoal.record import create, reopen
    from shoal.run import simulate, train
    from shoal.session import carry_out, prepare
    from shoal.stack import Stack

__version__ = "0.1.0"

# The public names, imported when they are first used: torch alone takes two seconds.
HOMES = {
    "Settings": "shoal.config",
    "Stack": "shoal.stack",
    "carry_out": "shoal.session",
    "create": "shoal.record",
    "prepare": "shoal.session",
    "read": "shoal.reading",
    "reopen": "shoal.record",
    "resolve": "shoal.reading",
    "simulate": "shoal.run",
    "train": "shoal.run",
}
__all__ = [
    "Settings",
    "Stack",
    "__version__",
    "carry_out",
    "create",
    "prepare",
    "read",
    "reopen",
    "resolve",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"shoal has no `{name}`; it has {', '.join(HOMES)}")
    return getattr(import_module(HOMES[name]), name)
