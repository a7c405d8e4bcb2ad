"""A common start that was kept serves other runs, bit for bit."""

from pathlib import Path
from typing import Any

import pytest

from shoal.agents.stack import Stack
from shoal.configure.reading import resolve
from shoal.fleet.run import Moment
from shoal.runs import common_starts as starts
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import create
from shoal.settings.groups import Settings

RAW: dict[str, Any] = {
    "dataset": "digits",
    "agents": 3,
    "seeds": 2,
    "tasks": {"count": 6, "train": 16, "validation": 8},
    "net": {"width": 16, "depth": 2, "dropout": 0.2},
    "learner": {"epochs": 4, "batch": 16, "rate": 0.03, "memory": 8},
    "machine": {"threads": 1},
}
FEDAVG = {"mode": "fedavg", "every": 2}


def settings(**changes: Any) -> Settings:
    raw = dict(RAW)
    for name, value in changes.items():
        raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
    return resolve(raw)


def run(chosen: Settings, folder: Path, kept: Path | None) -> tuple[dict[str, bytes], list[int]]:
    """All tensors at the end, and the tasks that were learned on the way."""
    seen: list[Stack] = []
    tasks: list[int] = []

    def show(moment: Moment) -> None:
        seen.append(moment.stacks[0])
        tasks.append(moment.task)

    record = create(folder, chosen)
    carry_out(prepare(chosen), record, show, kept)
    return {name: tensor.numpy().tobytes() for name, tensor in seen[-1].tensors.items()}, tasks


@pytest.mark.parametrize("model", ["mlp", "modular-mlp"])
def test_a_run_from_a_kept_start_is_the_run_without(model: str, tmp_path: Path) -> None:
    later: dict[str, Any] = {"accept": 0.3} if model.startswith("modular-") else {}
    starts_ = tmp_path / "starts"
    run(settings(model=model), tmp_path / "first", starts_)
    (kept,) = starts_.iterdir()
    others: list[dict[str, Any]] = [
        {"sharing": [FEDAVG | {"mode": "recv"}, FEDAVG], "learner": {"fresh_adam": True} | later},
        {
            "sharing": [FEDAVG | {"mode": "fedprox"}],
            "agents": 4,
            "network": "ring",
            "protocol": "paper",
            "tasks": {"common": True, "draw": "fleet"},
            "net": {"head": settings(model=model).net.head},
        },
    ]
    for number, changes in enumerate(others):
        chosen = settings(model=model, **changes)
        from_kept, tasks = run(chosen, tmp_path / f"kept{number}", starts_)
        unbroken, every = run(chosen, tmp_path / f"plain{number}", None)
        assert (min(tasks), min(every)) == (4, 1)
        assert from_kept == unbroken
    assert list(starts_.iterdir()) == [kept]


def test_what_a_start_depends_on_is_in_its_identity() -> None:
    own = starts.identity(settings())
    changes: dict[str, Any]
    for changes in (
        {"sharing": "modmod"}, {"network": "ring"}, {"agents": 5}, {"learner": {"adaptation": "never"}},
        {"learner": {"hidden": "keep", "current": "max"}}, {"machine": {"threads": 2, "checkpoint": 1.0}},
    ):  # fmt: skip
        assert starts.identity(settings(**changes)) == own, changes
    for changes in (
        {"model": "mlp"}, {"seed": 1}, {"seeds": 3}, {"tasks": {"count": 7}}, {"tasks": {"train": 20}},
        {"net": {"dropout": 0.3}}, {"net": {"dropout_basis": True}}, {"learner": {"rate": 0.02}},
        {"learner": {"epochs": 5}}, {"learner": {"memory": 9}}, {"machine": {"engine": "loop"}},
    ):  # fmt: skip
        assert starts.identity(settings(**changes)) != own, changes


def test_the_authors_draw_a_start_after_all_agents_so_that_their_number_is_in_its_identity() -> None:
    def made(agents: int, draw: str) -> str:
        return starts.identity(resolve({"dataset": "digits", "agents": agents, "tasks": {"draw": draw}}))

    assert made(2, "fleet") == made(3, "fleet")
    assert made(2, "authors") != made(3, "authors")


def test_a_start_that_sharing_could_touch_is_not_kept() -> None:
    assert starts.common(settings(sharing=[{"mode": "recv", "every": 2}]))
    assert not starts.common(settings(sharing=[{"mode": "recv", "every": 2, "start": 3}]))
    assert not starts.common(settings(sharing=[{"mode": "modmod", "extra_random": True}]))
    assert not starts.common(settings(tasks={"common": False}))


def test_a_damaged_start_is_not_used(tmp_path: Path) -> None:
    chosen = settings(sharing=[FEDAVG])
    unbroken, _ = run(chosen, tmp_path / "plain", tmp_path / "starts")
    (file,) = (tmp_path / "starts").glob("*/*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    again, tasks = run(chosen, tmp_path / "again", tmp_path / "starts")
    assert min(tasks) == 1
    assert again == unbroken
    assert file.read_bytes() != content  # and was made anew


def test_a_run_goes_on_if_its_start_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "starts").write_text("a file")
    run(settings(), tmp_path / "run", tmp_path / "starts")
    assert (tmp_path / "run" / "summary.json").exists()
