"""Protocols: bundles of switches, for agents that share by some modes."""

from typing import Any

from shoal.settings.groups import Settings


def switches(protocol: str, model: str, dataset: str, modes: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """What a protocol sets where the user is silent, for agents that share by `modes`.

    `fair` is one setting for every row: common start, persistent Adam, clean softmax, test data never chooses. `paper`
    is what the runs behind Table 1 really did (protocol 7), which differs from row to row and dataset to dataset.
    """
    cnn, modular = model.endswith("cnn"), model.startswith("modular-")
    # The CNN always had dropout on its basis, and since March 2024 one module per initial task (protocol 2).
    net = {"dropout_basis": cnn, "initial_structure": "own" if cnn else "onehot"}
    if protocol == "fair":
        return {
            "tasks": {"common": True},
            "net": net,
            "learner": {"fresh_adam": False, "hidden": "renormalise", "current": "validation"},
        }
    mixed = dataset in ("combined", "cifar100")
    common, fresh = mixed, modular and not mixed  # agents alone
    if modes == ("recv",):
        common = mixed or not modular
        net["dropout_basis"] = True
    elif modes == ("simp",):
        common, fresh = False, False
    elif modes:
        common, fresh = True, fresh and modes in (("fedavg",), ("modmod",))
    learner = {"fresh_adam": fresh, "hidden": "keep", "current": "max"}
    if dataset == "cifar100" and "modmod" in modes:  # these two rows alone
        learner["adaptation"] = "never"
    return {"tasks": {"common": common}, "net": net, "learner": learner}


def completed(raw: dict[str, Any], said: Settings, model: str, modes: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The groups of settings that the protocol has a say in, for a model: the user's words win."""
    found = switches(said.protocol, model, said.dataset, modes)
    return {part: {**values, **raw.get(part, {})} for part, values in found.items()}
