"""Golden records: what small runs of every kind come to, held so that a change of code cannot change them unnoticed.

`python -m tests.golden` writes golden.json anew; a commit that does so says which numbers changed, by how much and why.
`python -m tests.golden new` adds the runs that it has not got.

How a product is summed depends on the processor and on torch. Digests are kept for each order of sums that the machine
of the writer can be told to use (`ORDERS`), and compared where arithmetic gives the same bits as one of them
(`arithmetic`); elsewhere the sums beside them are compared, with a tolerance.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from examples import own_learner, own_mode
from shoal import data
from shoal.agents.worlds import worlds
from shoal.configure.reading import resolve
from shoal.contracts.learners import heads_of, said_of
from shoal.contracts.learners import model_of as taught
from shoal.contracts.mode_case import made_of, suited
from shoal.errors import SettingsError
from shoal.fleet.run import train
from shoal.learners.table import LEARNERS
from shoal.runs.tables import accuracies, candidates, growth, posted
from shoal.sharing.modes import MODES
from tests import golden_modes
from tests.fleets import colours

FILE = Path(__file__).with_name("golden.json")
MODELS = ("mlp", "modular-mlp", "cnn", "modular-cnn")
# What a processor is told so that it sums in the order of some instruction set: its own, or one that most have.
ORDERS: tuple[dict[str, str], ...] = ({}, {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"})
# Modes whose runs are held on every model; all are held under tight budgets and bad links.
HELD = ("recv", "simp", "uniform", "fedavg", "fedprox", "fedcurv", "fedfish", "modmod")
# Modes whose agents send others something else to each neighbour: held in two workers too.
CHOOSING = ("push", "heads", "fedweit", "modmod")
# Two budgets for each mode, in bytes at an exchange: its largest mail hardly fits the first, and little the second.
TIGHT = {
    "recv": (900, 420),
    "simp": (500, 190),
    "uniform": (500, 200),
    "modmod": (2200, 1200),
    "push": (300, 230),
    "prototypes": (400, 230),
    "labels": (420, 260),
    "masks": (1100, 900),
    "heads": (1600, 800),
    "fedweit": (4200, 1800),
    "colla": (1200, 600),
    "statistics": (23000, 9000),
    "fedagem": (7000, 3000),
    "fedcurv": (6000, 3000),
    "tracking": (6000, 3000),
}
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
        # Records hold what code does, and not what a protocol chooses where nothing is said.
        "net": {**({"width": 6, "depth": 3} if cnn else {"width": 16}), "head": "random"},
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
    return usual() | conditions() | averaging() | learners()


def usual() -> dict[str, dict[str, Any]]:
    """Every model with modes that are held on all, and with settings that change what is learned."""
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
        "heads that begin at zero": plain("modular-mlp", "modmod", tasks=four, net={"head": "zero"}),
        "dropout on the basis": plain("modular-mlp", net={"dropout_basis": True, "initial_structure": "own"})
        | {"tasks": four},
    }


def conditions() -> dict[str, dict[str, Any]]:
    """Every mode over links with limits, links that lose and delay, by clocks of its agents' own, under policies, among
    liars and in two processes."""
    found: dict[str, dict[str, Any]] = {}
    bad: dict[str, Any] = {"graph": "ring", "loss": 0.3, "delay": {"least": 0, "most": 3}}
    clock: dict[str, Any] = {"pace": "asynchronous", "speed": [3.0, 5.0, 7.0, 11.0, 4.0, 6.0, 9.0, 10.0]}
    for mode in MODES:
        model = suited([made_of(mode)])[0]
        for budget in TIGHT.get(mode, (3000, 1500)):
            found[f"{mode} with {budget} bytes"] = plain(model, mode, network={"budget": f"{budget} B"}, seeds=1)
        found[f"{mode} over bad links"] = plain(model, mode, network=bad, agents=4, seeds=1)
        slow = {"bandwidth": "40 kB/s", "latency": 0.2}
        found[f"{mode} by eight clocks"] = plain(model, mode, network={"graph": "ring", **slow}, clock=clock)
        found[f"{mode} by eight clocks"] |= {"agents": 8, "seeds": 1}
    limited = {**bad, "budget": "900 B", "every": 2}
    every = ("recv", "modmod", "fedprox")
    staggered = {"starts": 3.0, "arrivals": "poisson", "gap": 4.0, "speed": 5.0}
    liars = [{"agents": [1], "does": "random"}, {"agents": [3], "does": "sign-flip"}]
    median = {"combine": "median", "tolerates": 1}
    sites = [{"agents": [0], "forbid": ["models"]}, {"agents": [1], "forbid_classes": [3], "per_class": 2}]
    two = {"members": "processes", "workers": 2}
    for mode in CHOOSING:
        found[f"{mode} in two workers"] = plain(suited([made_of(mode)])[0], mode, agents=4, seeds=1, machine=two)
    return found | {
        **{name: own_settings(mode, own, **changes) for name, (mode, own, changes) in choices(bad, sites).items()},
        "three modes, limits and bad links": plain("modular-mlp", *every, network=limited, agents=4),
        "modules that do not all fit": plain("modular-mlp", agents=4, network={"budget": "4500 B"})
        | {"sharing": [shared("modmod")[0] | {"modules": 3}]},
        "floats by the task": plain("modular-mlp", *every, network={"budget": "3000 floats/task"}, agents=4),
        "staggered": plain("modular-mlp", *every, clock=staggered, agents=4),
        "staggered, limits": plain("modular-mlp", *every, clock=staggered, agents=4)
        | {"network": {"graph": "ring", "loss": 0.3, "budget": "900 B", "every": 2}},
        "two workers": plain("modular-mlp", *every, agents=4, machine={"members": "processes", "workers": 2}),
        "two workers, limits": plain("modular-mlp", *every, network=limited, agents=4)
        | {"machine": {"members": "processes", "workers": 2}},
        "sites with policies": plain("modular-mlp", *every, policy=sites, agents=4),
        "images under a policy": plain("mlp", "uniform", "prototypes", policy=sites, agents=4),
        "liars, mean": plain("mlp", "fedavg", faulty=liars, agents=5),
        "liars, median": plain("mlp", faulty=liars, agents=5) | {"sharing": [shared("fedavg")[0] | median]},
        "liars in images": plain("mlp", "recv", faulty=[{"agents": [1], "does": "label-flip"}], agents=5),
        **{
            f"short form, {one}": plain("mlp", agents=4) | {"sharing": [mode.model_validate({})]}
            for one, mode in SHORT.items()
        },
        "short form over bad links": plain("mlp", agents=4, network=bad)
        | {"sharing": [SHORT["kindred"].model_validate({})]},
    }


def choices(bad: dict[str, Any], sites: list[dict[str, Any]]) -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """Modes that choose what they send, by whatever they can choose by: mode, its settings, those of the run."""
    tight, lossy = {"network": {"budget": "4500 B"}}, {"graph": "ring", "loss": 0.3}
    return {
        "push by coverage, at sites": ("push", {"choose": "coverage", "buffer": "replace"}, {"policy": sites}),
        "push by herding, what helps": ("push", {"choose": "herding", "accept": "helps"}, {}),
        "push by spread over bad links": ("push", {"choose": "spread"}, {"network": bad}),
        "push by votes for what was kept, at sites": ("push", {"vote": "kept"}, {"policy": sites}),
        "push by votes, limits and bad links": ("push", {}, {"network": {**bad, "budget": "600 B", "every": 2}}),
        "heads for the same classes, at sites": ("heads", {"begin": "same"}, {"policy": sites, "network": bad}),
        "fedweit at sites": ("fedweit", {}, {"policy": sites}),
        "modmod by labelled images": ("modmod", {"metric": "leep", "modules": 2, "leak": True}, tight),
        "modmod by features, what helps": (
            "modmod",
            {"metric": "kl", "accept": "helps", "tryout": 2},
            {"network": lossy},
        ),
        "modmod in bytes, at sites": ("modmod", {"compress": "int8", "modules": 2}, {"policy": sites, **tight}),
        "modmod without heads": (
            "modmod",
            {"transfer_head": False, "transfer_structure": False, "extra_random": True, "frozen": True},
            {"tasks": {"common": False}},
        ),
    }


def own_settings(mode: str, own: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A fleet of four agents with a mode of its own settings."""
    table = shared(mode)[0] | ({"min_similarity": -1e9} if "metric" in own else {}) | own
    return plain(suited([made_of(mode)])[0], **{"agents": 4, "seeds": 1, **changes}) | {"sharing": [table]}


def averaging() -> dict[str, dict[str, Any]]:
    """Modes that average models: among liars that a rule bears, made small, by other weights, with receipts, under a
    policy that clips and noises, and in two workers."""
    bad: dict[str, Any] = {"graph": "ring", "loss": 0.3, "delay": {"least": 0, "most": 3}}
    liars = [{"agents": [1], "does": "random"}, {"agents": [3], "does": "stale"}]
    rules = ("trimmed", "geometric", "clipped", "multi-krum", "krum", "median", "median", "clipped")
    found: dict[str, dict[str, Any]] = {}

    def run(name: str, mode: str, settings: dict[str, Any], **changes: Any) -> None:
        model = "modular-mlp" if mode in ("fedavg", "fedprox") else "mlp"
        found[name] = plain(model, agents=4, seeds=1, **changes) | {"sharing": [shared(mode)[0] | settings]}

    for mode, rule in zip(AVERAGING, rules, strict=True):
        run(f"{mode} by {rule} among liars", mode, {"combine": rule, "tolerates": 1}, faulty=liars)
        if mode not in ("tracking", "fedcurv"):
            run(f"{mode} in copies", mode, {"compress": "topk", "ratio": 0.3}, network=bad)
            run(f"{mode} in power", mode, {"compress": "power"}, network=bad)
        if mode != "tracking":
            run(f"{mode} in bytes", mode, {"compress": "int8"}, network={**bad, "budget": "2500 B"})
        run(f"{mode} by metropolis", mode, {"weights": "metropolis"}, network={"graph": "tree", "loss": 0.3})
    paths = {"graph": "edges", "edges": [{"sender": a, "receiver": b} for a, b in ((0, 1), (1, 2), (2, 0), (2, 3))]}
    tight = {**bad, "budget": "1500 B"}
    run("push-sum", "fedavg", {"weights": "push-sum"}, network={**bad, **paths, "budget": "3000 B"})
    run("receipts", "fedprox", {"receipts": True}, network=tight)
    run("receipts by eight clocks", "fedavg", {"receipts": True}, clock={"speed": [3.0, 5.0, 7.0, 4.0]}, network=tight)
    run("copies that do not all fit", "fedavg", {"compress": "topk", "weights": "metropolis"}, network=tight)
    run("copies of signs", "fedavg", {"compress": "sign"}, network=tight)
    run("copies in bytes", "fedfish", {"compress": "int4", "form": "copies"}, network=bad)
    run("differences", "fedavg", {"compress": "randk", "form": "difference"}, network=tight)
    run("power of rank two", "fedavg", {"compress": "power", "rank": 2}, network=bad)
    run("copies from own starts", "fedavg", {"compress": "randk"}, tasks={"common": False})
    noisy = {"clip": 1.0, "noise": 0.01, "epsilon": 1e9, "delta": 1e-5}
    run("models clipped and noised", "fedavg", {}, policy=noisy)
    small: tuple[dict[str, Any], ...] = (
        {"compress": "topk"},
        {"compress": "power"},
        {"compress": "int8"},
        {"weights": "metropolis"},
        {},
        {},
        {},
    )
    every = plain("mlp", agents=4, seeds=1, machine={"members": "processes", "workers": 2})
    made = [one | more for one, more in zip(shared(*AVERAGING[:-1]), small, strict=True)]
    return found | {
        "averaging in two workers": every | {"sharing": shared(*[one for one in AVERAGING if one != "ditto"])},
        "averaging in two workers over bad links": every | {"sharing": made, "network": bad},
    }


AVERAGING = ("fedavg", "fedprox", "fedcurv", "fedfish", "fedrep", "ditto", "tracking", "fedagem")
SHORT = {"kindred": own_mode.kindred, **golden_modes.ALL}


def learners() -> dict[str, dict[str, Any]]:
    """Every learner alone and, where they suit it, with images and weights that others send."""
    found: dict[str, dict[str, Any]] = {
        "learner hold alone": plain("mlp") | {"learner": own_learner.hold.model_validate({"epochs": 4, "memory": 4})}
    }
    for name in LEARNERS:
        said = said_of(name)
        model = taught(said)
        raw = plain(model, learner=said, tasks=heads_of(said), seeds=1)
        found[f"learner {name} alone"] = raw
        for mode in ("recv", "fedavg"):
            sent = raw | {"sharing": shared(mode)}
            try:
                resolve(sent)
            except SettingsError:
                continue
            found[f"learner {name} with {mode}"] = sent
    return found


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


def write(new: bool = False) -> None:
    """Measure every run anew, or those that are `new`, in every order of sums that this machine has, and keep what it
    comes to: sums by the first. Digests of other orders are kept of runs whose digests here are what they were."""
    before = json.loads(FILE.read_text(encoding="utf-8"))
    kept, runs, names = before["orders"], before["runs"] if new else {}, list(cases())
    wanted = [case for case in names if case not in runs]
    orders: dict[str, dict[str, str]] = {}
    for order in ORDERS:
        told = subprocess.run(
            [sys.executable, "-m", "tests.golden", "print", *wanted],
            env=os.environ | order,
            stdout=subprocess.PIPE,
            check=True,
        )
        name, found = json.loads(told.stdout)
        orders[name] = (kept[name] if new else {}) | {case: one.pop("digest") for case, one in found.items()}
        runs = found | runs
    for name in kept.keys() - orders.keys():
        same = [
            case for case in kept[name] if all(kept.get(one, {}).get(case) == orders[one].get(case) for one in orders)
        ]
        orders[name] = {case: kept[name][case] for case in same}
    orders = {name: {case: some[case] for case in names if case in some} for name, some in orders.items()}
    runs = {case: runs[case] for case in names}
    FILE.write_text(json.dumps({"orders": orders, "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["print"]:
        every = cases()
        print(json.dumps([arithmetic(), {name: measured(every[name]) for name in sys.argv[2:]}]))
    else:
        write("new" in sys.argv)
