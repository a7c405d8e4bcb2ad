"""The time of a run is told by its first steps: ten cases, run small. So that no clock decides, a second is a step of
an agent here."""

from typing import Any

import pytest

import shoal
from bench.estimates import convolutions, layers, table
from shoal.fleet import pace as paces
from shoal.learners.in_kernel import InKernel
from shoal.learners.in_torch import InTorch

FEW: dict[str, Any] = {"count": 4, "classes": 2, "train": 20, "validation": 5, "initial": 2}
LEARNER: dict[str, Any] = {"epochs": 6, "batch": 10, "memory": 10}
CASES: dict[str, dict[str, Any]] = {
    "a net in one piece": {},
    "a modular net": {"model": "modular-mlp"},
    "convolutions": {"model": convolutions},
    "layers": {"model": layers},
    "without rehearsal": {"learner": {**LEARNER, "method": "none"}},
    "many agents": {"agents": 40},
    "a common start": {"tasks": {**FEW, "common": True}},
    "steps that are counted": {"learner": {**LEARNER, "iterations": 30, "epochs": 3}},
    "a table": {"data": lambda: table(4000, 4), "tasks": {}},
    "numbers": {"data": lambda: table(2000, 4, True), "tasks": {}},
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps all lanes have taken; the clock of estimates goes by them."""
    steps = [0]
    for backend in (InKernel, InTorch):

        def counted(self: Any, every: Any, own: type = backend, take: Any = backend.take) -> None:
            every, lanes = list(every), len(self.stack.lanes)
            steps[0] += lanes * len(every) if type(self) is own else 0  # the kernel leaves some to torch
            take(self, every)

        monkeypatch.setattr(backend, "take", counted)

    monkeypatch.setattr(paces, "CLOCK", lambda: float(steps[0]))
    for name in ("RUN", "AGENT", "TASK", "EPOCH", "MEETING", "EDGE", "BYTE"):
        monkeypatch.setattr(paces, name, 0.0)
    return steps


@pytest.mark.parametrize("whole", [0.2, 1e9])  # an epoch is told by some of its steps, or taken whole
@pytest.mark.parametrize("case", CASES)
def test_a_run_takes_as_many_steps_as_are_told(
    case: str, whole: float, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paces, "WHOLE", whole)
    said = {"model": "mlp", "agents": 4, "tasks": FEW, "learner": LEARNER, **CASES[case]}
    fleet = shoal.Fleet(said.pop("data", lambda: "digits")(), **said)
    worlds = shoal.prepare(fleet.settings, yes=True)
    told = paces.pace(worlds)
    taken[0] = 0
    shoal.train(worlds)
    assert taken[0] > 100
    assert taken[0] / 2 <= told <= 2 * taken[0], (told, taken[0])


def test_check_tells_the_time() -> None:
    fleet = shoal.Fleet("digits", agents=2, tasks=FEW)
    assert "by the time of the first steps" in str(fleet.check(time=True))
    assert "first steps" not in str(fleet.check())  # nothing is trained to say the rest
