"""shoal: fleets of agents that learn their own streams of tasks, and share what helps the others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.agents.stack import Stack
    from shoal.backbones import features
    from shoal.configure.reading import read, resolve
    from shoal.data.sources import Data
    from shoal.data.texts import texts
    from shoal.fleet.run import simulate, train
    from shoal.keep.agent import Agent
    from shoal.models.table import adapted, modular
    from shoal.python.fleets import Fleet
    from shoal.python.networks import complete, connected, disconnected, random, ring, server, tree
    from shoal.python.results import Result, compare
    from shoal.runs.execute import carry_out, prepare
    from shoal.runs.record import create, reopen
    from shoal.settings.groups import Settings
    from shoal.short import mode, penalty
    from shoal.study.advise import Advice, advise

__version__ = "0.3.0"

# The public names, imported when they are first used: torch alone takes two seconds.
HOMES = {
    "Advice": "shoal.study.advise",
    "Agent": "shoal.keep.agent",
    "Data": "shoal.data.sources",
    "Fleet": "shoal.python.fleets",
    "Result": "shoal.python.results",
    "Settings": "shoal.settings.groups",
    "Stack": "shoal.agents.stack",
    "adapted": "shoal.models.table",
    "advise": "shoal.study.advise",
    "carry_out": "shoal.runs.execute",
    "compare": "shoal.python.results",
    "complete": "shoal.python.networks",
    "connected": "shoal.python.networks",
    "create": "shoal.runs.record",
    "disconnected": "shoal.python.networks",
    "features": "shoal.backbones",
    "mode": "shoal.short",
    "modular": "shoal.models.table",
    "penalty": "shoal.short",
    "prepare": "shoal.runs.execute",
    "random": "shoal.python.networks",
    "read": "shoal.configure.reading",
    "reopen": "shoal.runs.record",
    "resolve": "shoal.configure.reading",
    "ring": "shoal.python.networks",
    "server": "shoal.python.networks",
    "simulate": "shoal.fleet.run",
    "texts": "shoal.data.texts",
    "train": "shoal.fleet.run",
    "tree": "shoal.python.networks",
}
__all__ = [
    "Advice",
    "Agent",
    "Data",
    "Fleet",
    "Result",
    "Settings",
    "Stack",
    "__version__",
    "adapted",
    "advise",
    "carry_out",
    "compare",
    "complete",
    "connected",
    "create",
    "disconnected",
    "features",
    "mode",
    "modular",
    "penalty",
    "prepare",
    "random",
    "read",
    "reopen",
    "resolve",
    "ring",
    "server",
    "simulate",
    "texts",
    "train",
    "tree",
]


def __dir__() -> list[str]:
    """The public names, whether they have been used or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"shoal has no `{name}`; it has {', '.join(HOMES)}")
    return getattr(import_module(HOMES[name]), name)
