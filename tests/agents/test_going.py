"""Going on: two weeks at once come to what one week, saved, and the next come to."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import shoal
from shoal.errors import SettingsError, UserError
from shoal.learners.table import LEARNERS
from shoal.letters.mail import ACCEPTED
from shoal.models.table import BUILT_IN
from shoal.runs.record import Record
from shoal.sharing.modes import MODES
from tests.agents.test_agents import Small
from tests.command import call
from tests.fleets import last_saved

TASKS, ROWS = 4, 48  # tasks, and rows of each


def rows(numeric: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x, task = rng.normal(3, 10, (TASKS * ROWS, 5)), np.arange(TASKS * ROWS) // ROWS
    y = x[:, 0] * 7 + task if numeric else (x[np.arange(len(x)), task % 3] > 3).astype(int)
    return {"x": x, "y": y, "agent": np.array(["a", "b", "c"])[np.arange(len(x)) % 3], "task": task}


def some(every: dict[str, np.ndarray], which: np.ndarray) -> shoal.Data:
    return shoal.Data.from_arrays(**{name: values[which] for name, values in every.items()})


def both(numeric: bool = False, **said: Any) -> tuple[shoal.Result, shoal.Result]:
    """A fleet that learns all tasks at once, and one that goes on with the last."""
    every = rows(numeric)
    last = every["task"] == TASKS - 1
    learner = {"epochs": 4, "batch": 8, "memory": 4, **said.pop("learner", {})}
    said = {"model": "mlp", "net": {"width": 8, "depth": 2}, **said, "learner": learner}
    whole = shoal.Fleet(some(every, last | ~last), **said).run()
    return whole, shoal.Fleet(some(every, ~last), **said).run().continue_with(some(every, last))


def same(whole: shoal.Result, parts: shoal.Result) -> None:
    assert whole.settings.identity() == parts.settings.identity()
    here, there = (last_saved(Record(run.folder, run.settings)) or () for run in (whole, parts))
    for one, two in zip(here, there, strict=True):
        assert one.tensors.keys() == two.tensors.keys()
        for name, tensor in one.tensors.items():
            pair = [found.nan_to_num(-7) for found in (tensor, two.tensors[name])]
            if name == "record/training":  # whose last column, the norm of all weights, counts those that are to come
                pair = [found[..., :2] for found in pair]
            if not torch.equal(*pair):
                pytest.fail(f"{name} differs")
    assert whole.accuracy.equals(parts.accuracy)
    assert whole.ledger.equals(parts.ledger)
    assert int(parts.accuracy["task"].max()) == TASKS  # type: ignore[arg-type]


def law(**said: Any) -> None:
    """The law, or a sentence."""
    try:
        found = both(**said)
    except UserError as error:
        if "cannot go on" not in str(error) and not isinstance(error, SettingsError):
            raise
        pytest.skip(str(error))
    same(*found)
    if said.get("sharing"):  # else nothing was tried
        came = found[1].ledger.filter(pl.col("verdict") == ACCEPTED)["task"]
        assert came.min() < TASKS == came.max()  # type: ignore[operator]


KERNELS = ("auto", "torch")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", [*(one for one in BUILT_IN if not one.endswith("cnn")), Small])
def test_every_model_goes_on_or_says_why_not(model: Any, kernel: str) -> None:
    law(model=model, machine={"kernel": kernel})


METHODS = {"modular": "modular-mlp", "frozen": "frozen-mlp", "decomposed": "decomposed-mlp", "ella": "factor"}
METHODS["analytic"] = "ridge"
SHARED = {
    "modmod": "modular-mlp",
    "colla": "factor",
    "fedweit": "decomposed-mlp",
    "heads": "frozen-mlp",
    "masks": "masked-mlp",
    "statistics": "ridge",
}


def shares(mode: str, kernel: str = "auto") -> None:
    sharing, machine = [{"mode": mode, **MODES[mode].example}], {"kernel": kernel}
    law(model=SHARED.get(mode, "mlp"), sharing=sharing, network="ring", machine=machine)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("method", "heads"), [(one, two) for one in sorted(LEARNERS) for two in LEARNERS[one].serves])
def test_every_learner_goes_on_or_says_why_not(method: str, heads: str, kernel: str) -> None:
    machine = {"kernel": kernel}
    law(model=METHODS.get(method, "mlp"), learner={"method": method}, tasks={"heads": heads}, machine=machine)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", sorted(set(MODES)))
def test_every_mode_goes_on_or_says_why_not(mode: str, kernel: str) -> None:
    shares(mode, kernel)


@pytest.mark.parametrize("mode", ["fedavg", "modmod", "simp"])
def test_agents_that_share_go_on(mode: str) -> None:
    shares(mode)


@pytest.mark.parametrize("method", ["lwf", "ewc"])
def test_learners_whose_penalty_reads_heads_go_on_by_torch(method: str) -> None:
    law(learner={"method": method}, machine={"kernel": "torch"})


@pytest.mark.parametrize("heads", ["one", "grow"])
def test_heads_that_tasks_share_go_on(heads: str) -> None:
    law(tasks={"heads": heads})


@pytest.mark.parametrize("speed", [100.0, [50.0, 100.0, 30.0]])
def test_seconds_that_are_counted_go_on(speed: Any) -> None:
    network = {"graph": "ring", "bandwidth": "1 kB/s", "latency": "20 ms"}
    law(clock={"speed": speed}, sharing=[{"mode": "simp", "every": 2}], network=network)


def test_links_that_lose_and_delay_mail_go_on() -> None:
    network = {"graph": "ring", "loss": 0.3, "delay": 1, "budget": "2 kB/task"}
    law(sharing=[{"mode": "fedavg", "every": 2}, {"mode": "simp", "every": 1}], network=network)


def test_agents_of_several_kinds_go_on_and_those_that_are_absent() -> None:
    kinds = [{"name": "small", "agents": [0], "net": {"width": 4, "depth": 2}}]
    law(kinds=kinds, sharing=[{"mode": "prototypes", "every": 2}], network="ring")
    away = {"absent": [{"agents": [1], "epochs": [[5, 9]]}]}
    law(presence=away, sharing=[{"mode": "fedavg", "every": 2}], network="ring")


def test_numbers_go_on() -> None:
    law(numeric=True)


def test_what_was_stopped_while_it_went_on_is_ended_by_the_same_call_or_by_resume(tmp_path: Path) -> None:
    every = rows()
    last = every["task"] == TASKS - 1
    said: dict[str, Any] = {"model": "mlp", "net": {"width": 8, "depth": 2}, "learner": {"epochs": 4, "memory": 4}}
    before = shoal.Fleet(some(every, ~last), **said).run(out=tmp_path / "before")
    whole = before.continue_with(some(every, last))

    def stop(moment: Any) -> None:
        if (moment.task, moment.epoch) == (TASKS - 1, 2):
            raise RuntimeError("the power is gone")

    for name in ("call", "resume"):
        out = tmp_path / name
        with pytest.raises(RuntimeError, match="the power is gone"):
            before.continue_with(some(every, last), out=out, progress=stop)
        assert not (out / "summary.json").exists()
        if name == "call":
            before.continue_with(some(every, last), out=out)
        else:
            assert call("resume", out).code == 0
        same(whole, shoal.Result.read(out))


def week(**changes: Any) -> shoal.Data:
    return shoal.Data.from_arrays(**{**rows(), **changes})


WRONG: dict[str, tuple[Any, str]] = {
    "other columns": (lambda: week(x=rows()["x"][:, :3]), "same columns"),
    "numbers for classes": (lambda: week(y=rows()["x"][:, 0]), "another kind"),
    "an unknown site": (lambda: week(agent=["d"] * TASKS * ROWS), "no agent is at 'd'"),
    "nothing": (lambda: None, "cannot go on with NoneType"),
    "more classes than a head has": (lambda: week(y=np.arange(TASKS * ROWS) % 5), "tasks.classes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_rows_that_do_not_fit_are_refused_in_a_sentence(what: str) -> None:
    run = shoal.Fleet(week(), model="mlp", net={"width": 6, "depth": 2}, learner={"epochs": 1, "memory": 2}).run()
    given, words = WRONG[what]
    with pytest.raises(UserError, match=words) as error:
        run.continue_with(given())
    assert "\n" not in str(error.value)


def test_data_that_does_not_name_its_tasks_cannot_go_on() -> None:
    run = shoal.Fleet(
        "digits", agents=2, tasks={"count": 2, "train": 4, "initial": 1}, learner={"epochs": 1, "memory": 2}
    ).run()
    with pytest.raises(UserError, match="name the task of each row"):
        run.continue_with(week())


def test_an_agent_that_is_behind_the_others_is_not_taken_for_one_that_went_on() -> None:
    every = rows()
    behind = (every["agent"] == "c") & (every["task"] == TASKS - 2)
    last = every["task"] == TASKS - 1
    run = shoal.Fleet(some(every, ~last & ~behind), model="mlp", learner={"epochs": 1, "memory": 2}).run()
    with pytest.raises(UserError, match="c has learned 2 tasks and others 3"):
        run.continue_with(some(every, last))
    after = run.continue_with(some(every, last & (every["agent"] != "c")))
    assert [len(agent.tasks) for agent in after.agents] == [TASKS, TASKS, TASKS - 2]
    mine = last & (every["agent"] == "c")
    assert len(after.agent("c").learn(every["x"][mine], every["y"][mine]).tasks) == TASKS - 1


@pytest.mark.parametrize("heads", ["one", "grow"])
def test_a_class_that_is_new_does_not_move_the_outputs_of_a_head(heads: str) -> None:
    every = rows() | {"y": np.array(["m", "z"])[rows()["y"]]}
    last = every["task"] == TASKS - 1
    said: dict[str, Any] = {"model": "mlp", "learner": {"epochs": 1, "memory": 2}, "tasks": {"heads": heads}}
    run = shoal.Fleet(some(every, ~last), **said).run()
    with pytest.raises(UserError, match="'a' is new"):
        run.continue_with(some(every | {"y": np.where(every["y"] == "m", "a", "z")}, last))
