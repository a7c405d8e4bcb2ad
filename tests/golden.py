"""Golden records: what small runs of every kind come to, held so that a change of code cannot change them unnoticed.

`python -m tests.golden` writes golden.json anew; a commit that does so says which numbers changed, by how much and why.

How a product is summed depends on the processor and on torch. Digests are compared where arithmetic gives the same bits
as where they were made (`arithmetic`); elsewhere the sums beside them are compared, with a tolerance.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal import data
from shoal.fleet.run import train
from shoal.fleet.world import worlds
from shoal.runs.tables import accuracies, candidates, growth, posted
from shoal.settings.reading import resolve
from shoal.sharing.modes import MODES
from tests.fleets import colours

FILE = Path(__file__).with_name("golden.json")
MODELS = ("mlp", "modular-mlp", "cnn", "modular-cnn")
# Modes that came later are held by the laws of their contract and by tests of their own.
HELD = ("recv", "simp", "uniform", "fedavg", "fedprox", "fedcurv", "fedfish", "modmod")
TASKS: dict[str, Any] = {"draw": "agent", "count": 3, "classes": 4, "initial": 1, "train": 6, "validation": 4}


def shared(*modes: str) -> list[dict[str, Any]]:
    return [{"mode": one, **MODES[one].example} for one in modes]


def plain(model: str, *modes: str, **changes: Any) -> dict[str, Any]:
    """A fleet of three agents and two seeds."""
    cnn = model.endswith("cnn")
    raw: dict[str, Any] = {
        "dataset": "digits",
        "model": model,
        "agents": 3,
        "seeds": 2,
        "tasks": {**TASKS, "train": 4} if cnn else TASKS,
        "net": {"width": 6, "depth": 3} if cnn else {"width": 16},
        "learner": {"epochs": 4, "batch": 16, "memory": 4, "rate": 3e-3},
        "sharing": shared(*modes),
    }
    if "modular" in model:
        raw["learner"] = {**raw["learner"], "accept": -1.0}
    for name, value in changes.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return raw


def cases() -> dict[str, dict[str, Any]]:
    """Every run that is held, by name."""
    found: dict[str, dict[str, Any]] = {}
    for model in MODELS:
        for mode in ("", *HELD):
            if mode != "modmod" or "modular" in model:
                found[f"{model} {mode or 'alone'}"] = plain(model, *([mode] if mode else []))
    four = {"draw": "agent", "count": 6, "classes": 2, "initial": 4, "train": 10, "validation": 5}
    for model in ("mlp", "modular-mlp"):
        for mode in ("", *HELD, "recv modmod fedavg"):
            if "modmod" not in mode or "modular" in model:
                found[f"{model} {mode or 'alone'} as in the paper"] = plain(
                    model, *mode.split(), protocol="paper", tasks=four
                )
    every = ("recv", "modmod", "fedprox")
    limits = {"graph": "ring", "budget": 700, "every": 3}
    grown = {"tasks": four, "learner": {"epochs": 6, "accept": 0.0, "adaptation": 3}}
    tried = {"mode": "modmod", "metric": "leep", "choose": "tryout", "tryout": 2, "modules": 2, "extra_random": True}
    kinds = [
        {"name": "flat", "agents": [1], "model": "mlp", "net": {"width": 8}},
        {"name": "deep", "agents": [3], "net": {"depth": 5}, "learner": {"rate": 1e-3}},
    ]
    return found | {
        "hybrid": plain("modular-mlp", *every, **grown),
        "hybrid, monolithic": plain("mlp", "recv", "fedcurv", tasks=four),
        "links with limits": plain("modular-mlp", *every, network=limits, agents=5, **grown),
        "links with limits, monolithic": plain("mlp", "fedavg", "simp", network=limits, agents=5, tasks=four),
        "own starts": plain("modular-mlp", "fedavg", tasks={**four, "common": False}),
        "tryouts": plain("modular-mlp", agents=4, **grown) | {"sharing": [tried]},
        "kinds": plain("modular-mlp", "recv", "modmod", "fedavg", agents=4, kinds=kinds, tasks=four),
        "leaks": plain("modular-mlp", tasks=four) | {"sharing": [{**shared("recv")[0], "leak": True}]},
        "drawn for the fleet": plain("modular-mlp", "recv", tasks={**four, "draw": "fleet"}),
        "drawn as by the authors": plain("mlp", "fedavg", protocol="paper", tasks={**four, "draw": "authors"}),
        "other dropout": plain("mlp", net={"dropout": 0.3}),
        "dropout on the basis": plain("modular-mlp", net={"dropout_basis": True, "initial_structure": "own"})
        | {"tasks": four},
    }


def measured(raw: dict[str, Any], kernel: str = "torch") -> dict[str, Any]:
    """What a run comes to: a digest of its tables, its ledger and its weights, and sums of each. Held is what torch
    comes to: what is compiled depends on the compiler."""
    settings = resolve(raw | {"machine": {**raw.get("machine", {}), "kernel": kernel}})
    bank = colours() if settings.model.endswith("cnn") else data.load(settings.dataset)
    stacks = train(worlds(settings, bank))
    tables = {"accuracy": accuracies(settings, stacks), "growth": growth(settings, stacks)}
    if settings.sharing:
        tables["ledger"] = posted(settings, stacks[0].ledger)
    if any(mode.offers for mode in settings.sharing):
        tables["candidates"] = candidates(settings, stacks)
    weights = {f"{at} {name}": tensor for at, stack in enumerate(stacks) for name, tensor in stack.params.items()}
    return {
        "digest": digest({name: table.write_csv().encode() for name, table in tables.items()} | as_bytes(weights)),
        "accuracy": float(tables["accuracy"]["accuracy"].mean()),  # type: ignore[arg-type]
        "weights": float(sum(tensor.double().abs().sum() for tensor in weights.values())),
        **costs(tables.get("ledger")),
    }


def costs(ledger: pl.DataFrame | None) -> dict[str, int]:
    if ledger is None:
        return {}
    accepted = ledger.filter(pl.col("verdict") == "accepted")
    return {"messages": len(ledger), "accepted": len(accepted), "bytes": int(accepted["bytes"].sum())}


def as_bytes(tensors: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(tensor.numpy()).tobytes() for name, tensor in tensors.items()}


def digest(parts: dict[str, bytes]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for name in sorted(parts):
        found.update(name.encode() + parts[name])
    return found.hexdigest()


def arithmetic() -> str:
    """A digest of products of the sizes that these runs have: the same where their sums are made in the same order."""
    rng = np.random.default_rng(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {}
        for size in (6, 8, 16, 64):
            one, two = (torch.from_numpy(rng.normal(size=(3, size, size)).astype(np.float32)) for _ in range(2))
            found[f"bmm {size}"] = one @ two
            found[f"mm {size}"] = torch.addmm(one[1], one[0], two[0])
            found[f"softmax {size}"] = one.softmax(1).sqrt().exp()
        images, kernels = (torch.from_numpy(rng.normal(size=(6, 6, 8, 8)).astype(np.float32)) for _ in range(2))
        kernels = kernels[..., :3, :3].contiguous().requires_grad_()
        last = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        for name, x in {"conv": images, "conv last": last}.items():
            out = F.conv2d(x, kernels, padding=1)
            found[name] = out.detach()
            (found[f"{name} back"],) = torch.autograd.grad(out.square().sum(), kernels)
        return digest(as_bytes(found))
    finally:
        torch.set_num_threads(threads)


def write() -> None:
    """Measure every run anew and keep what it comes to."""
    runs = {name: measured(raw) for name, raw in cases().items()}
    FILE.write_text(json.dumps({"arithmetic": arithmetic(), "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
