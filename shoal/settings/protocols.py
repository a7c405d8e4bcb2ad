"""Protocols: bundles of switches, for agents that share by some modes."""

from collections.abc import Callable
from typing import Any

from shoal.settings.groups import FAIR, Settings

Groups = dict[str, dict[str, Any]]  # settings by their group; those of modes are in "sharing", by the mode
PAPER = "paper"
EXAMPLE = "modular-mlp", "mnist"  # the model and dataset that lists show a protocol for


def fair(model: str, dataset: str, modes: tuple[str, ...], initial: int) -> Groups:
    """One setting for every row: common start, persistent Adam, clean softmax, test data never chooses."""
    learner = {"fresh_adam": False, "hidden": "renormalise", "current": "validation"}
    return {"tasks": {"common": True, "draw": "fleet"}, "net": usual_net(model), "learner": learner, "sharing": {}}


def paper(model: str, dataset: str, modes: tuple[str, ...], initial: int) -> Groups:
    """What the runs behind Table 1 really did."""
    from shoal.reproduce import protocol

    return protocol.paper(model, dataset, modes, initial)


PROTOCOLS: dict[str, Callable[[str, str, tuple[str, ...], int], Groups]] = {FAIR: fair, PAPER: paper}


def usual_net(model: str) -> dict[str, Any]:
    """The CNN always had dropout on its basis, and since March 2024 one module per initial task (docs/protocol.md,
    section 2)."""
    cnn = model.endswith("cnn")
    return {"dropout_basis": cnn, "initial_structure": "own" if cnn else "onehot"}


def switches(protocol: str, model: str, dataset: str, modes: tuple[str, ...] = (), initial: int = 4) -> Groups:
    """What a protocol sets where the user is silent, for agents that share by `modes`."""
    return PROTOCOLS[protocol](model, dataset, modes, initial)


def completed(raw: dict[str, Any], said: Settings, model: str, modes: tuple[str, ...]) -> Groups:
    """The groups of settings that the protocol has a say in, for a model: the user's words win. What it says of the
    learner and of modes is as it is: not every learner has all of it."""
    found = switches(said.protocol, model, said.dataset, modes, said.tasks.initial)
    plain = {part: {**found[part], **raw.get(part, {})} for part in ("tasks", "net")}
    return found | plain
