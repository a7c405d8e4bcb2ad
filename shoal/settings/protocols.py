"""Protocols: bundles of switches, for agents that share by some modes. Packages bring theirs by the door
`shoal.protocols`: a function like `fair`."""

from collections.abc import Callable
from typing import Any

from shoal.doors import Table, is_door
from shoal.errors import SettingsError
from shoal.settings.groups import FAIR, Settings

Groups = dict[str, dict[str, Any]]  # settings by their group; those of modes are in "sharing", by the mode
EXAMPLE = "modular-mlp", "mnist"  # the model and dataset that lists show a protocol for


def fair(model: str, dataset: str, modes: tuple[str, ...], initial: int) -> Groups:
    """One setting for every row: common start, persistent Adam, clean softmax, test data never chooses.

    Heads of `mlp` and of modular nets begin at zero, because agents alone know more validation rows so
    (docs/protocol.md, section 7). Other nets have not been asked, and masks of a frozen net hardly learn so.
    """
    zero = model == "mlp" or model.startswith("modular-")
    net = usual_net(model) | ({"head": "zero"} if zero else {})
    learner = {"fresh_adam": False, "hidden": "renormalise", "current": "validation"}
    return {"tasks": {"common": True, "draw": "fleet"}, "net": net, "learner": learner, "sharing": {}}


PROTOCOLS: Table[Callable[[str, str, tuple[str, ...], int], Groups]] = Table(
    "protocol", {FAIR: fair}, "shoal.protocols", callable
)


def usual_net(model: str) -> dict[str, Any]:
    """The CNN always had dropout on its basis, and since March 2024 one module per initial task (docs/protocol.md,
    section 2)."""
    cnn = model.endswith("cnn")
    return {"dropout_basis": cnn, "initial_structure": "own" if cnn else "onehot"}


def switches(protocol: str, model: str, dataset: str, modes: tuple[str, ...] = (), initial: int = 4) -> Groups:
    """What a protocol sets where the user is silent, for agents that share by `modes`."""
    if protocol not in PROTOCOLS and not is_door(protocol):
        raise SettingsError(f"`protocol` cannot be {protocol!r}; allowed: {', '.join(map(repr, PROTOCOLS))}")
    return PROTOCOLS.find(protocol)(model, dataset, modes, initial)


def completed(raw: dict[str, Any], said: Settings, model: str, modes: tuple[str, ...]) -> Groups:
    """The groups of settings that the protocol has a say in, for a model: the user's words win. What it says of nets,
    the learner and modes is as it is: not all have all of it."""
    found = switches(said.protocol, model, said.dataset, modes, said.tasks.initial)
    return found | {"tasks": {**found["tasks"], **raw.get("tasks", {})}}
