"""The protocol `paper`: what the runs behind each row of Table 1 really did, which differs from row to row and from
dataset to dataset (docs/protocol.md, section 7)."""

from typing import Any

from shoal.settings.protocols import Groups, usual_net

PAPER = "paper"  # its name
PENALTY = {"fashionmnist": 0.01, "combined": 0.01, "cifar100": 1.0}  # FedProx's mu of modular nets, else 0.001


def paper(model: str, dataset: str, modes: tuple[str, ...], initial: int) -> Groups:
    """What each row of Table 1 really did, where it differs from the defaults."""
    modular = model.startswith("modular-")
    return {
        **switches(model, dataset, modes),
        "sharing": {mode: mode_settings(mode, dataset, modular, initial, modes) for mode in modes},
    }


def switches(model: str, dataset: str, modes: tuple[str, ...]) -> Groups:
    """How agents that share by `modes` began and learned."""
    modular = model.startswith("modular-")
    net = usual_net(model)
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
    return {"tasks": {"common": common, "draw": "authors"}, "net": net, "learner": learner}


def mode_settings(mode: str, dataset: str, modular: bool, initial: int, modes: tuple[str, ...]) -> dict[str, Any]:
    """How a mode acted in the row with these `modes`."""
    match mode:
        case "recv":
            return recv(dataset, modular, initial, modes)
        case "simp":
            own = {"worth": "task", "buffer": "replace" if modes == ("simp",) else "reservoir"}
            return own | ({"scope": "last", "every": 20, "when": "before"} if modular else {})
        case "fedavg":
            # The fleet of these rows left out neighbours with other data, whatever was shared.
            clustered = dataset == "combined" and (modular or len(modes) > 1)
            return {"neighbours": "same source"} if clustered else {}
        case "fedprox":
            mu = PENALTY.get(dataset, 0.001) if modular else 0.001
            return {"mu": mu, "squared": False, "scaling": "task"}
        case "fedcurv":
            mu = 0.001 if dataset == "kmnist" and not modular else 1.0
            return {"mu": mu, "fisher": "frozen" if modular else "batch", "scaling": "task"}
        case "fedfish":
            return {"fisher": "frozen" if modular else "batch", "norm": "softmax"}
        case "modmod":
            return modmod(dataset, modes)
    return {}


def recv(dataset: str, modular: bool, initial: int, modes: tuple[str, ...]) -> dict[str, Any]:
    combined, hybrid = dataset == "combined", len(modes) > 1
    own: dict[str, Any] = {"leak": True}
    if combined:
        own |= {"neighbours": "same source", "oldest": initial}
    if not modular:
        return own
    own["scope"] = "current"
    if combined:
        return own | ({} if hybrid else {"buffer": "replace"})
    return own | {"labels": "query"} | ({} if hybrid else {"start": initial - 1})


def modmod(dataset: str, modes: tuple[str, ...]) -> dict[str, Any]:
    if dataset == "combined" and modes == ("modmod",):
        return {"metric": "leep", "leak": True}
    own: dict[str, Any] = {"neighbours": "same source"} if dataset == "combined" else {}
    # Later code sent modules even if there was no class in common.
    return own | ({"min_similarity": -1.0} if len(modes) > 1 or dataset == "cifar100" else {})
