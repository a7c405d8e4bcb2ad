"""How deep the two walks are that should stay short: a batch, and a message. `python -m bench.depth` prints both.

A walk is measured by a traced run of a small fleet: the largest number of the package's own functions between the one
that is named and the innermost that it calls. What torch, numpy and pydantic do in between is not counted, nor are
comprehensions and lambdas.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

RAW: dict[str, Any] = {
    "dataset": "digits",
    "agents": 3,
    "tasks": {"count": 6, "train": 10, "validation": 5},
    "net": {"width": 16},
    "learner": {"epochs": 4, "batch": 16, "memory": 4},
    "machine": {"threads": 1},
}


def deepest(work: Callable[[], object], names: tuple[str, ...]) -> dict[str, list[str]]:
    """For each of some functions of the package, the longest chain of its functions below it, itself left out."""
    found: dict[str, list[str]] = {name: [] for name in names}
    chain: list[tuple[int, str]] = []

    def trace(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if "/shoal/" not in code.co_filename or code.co_name.startswith("<"):
            return
        if event == "call":
            chain.append((id(frame), code.co_name))
            for name in names:
                at = next((at for at, (_, one) in enumerate(chain) if one == name), None)
                if at is not None and len(chain) - at - 1 > len(found[name]):
                    found[name] = [one for _, one in chain[at + 1 :]]
        elif event == "return" and chain and chain[-1][0] == id(frame):
            chain.pop()

    sys.setprofile(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    import shoal

    walks: dict[str, dict[str, Any]] = {
        "a batch, monolithic": {"model": "mlp"},
        "a batch, modular": {"model": "modular-mlp"},
        "a Recv message": {"model": "mlp", "sharing": [{"mode": "recv", "every": 2, "queries": 4}]},
        "a FedAvg message": {"model": "mlp", "sharing": [{"mode": "fedavg", "every": 2}]},
    }
    for title, raw in walks.items():
        (world,) = shoal.prepare(shoal.resolve({**RAW, **raw}))
        shoal.simulate(world)  # what is found once, such as who is connected, is not part of every walk
        name = "learn_epoch" if "batch" in title else "meet"
        chain = deepest(lambda world=world: shoal.simulate(world), (name,))[name]  # type: ignore[misc]
        print(f"{title}: {len(chain)} below `{name}`: {' > '.join(chain)}")


if __name__ == "__main__":
    main()
