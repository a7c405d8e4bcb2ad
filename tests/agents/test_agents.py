"""Agents that were taken out: law 11, names, files, and what is said of wrong uses."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import shoal
from shoal.agents.evaluate import nets
from shoal.errors import UserError
from shoal.models import frozen, mlp
from shoal.models.table import BUILT_IN
from shoal.runs.execute import prepare
from shoal.runs.record import reopen
from tests.fleets import colours

LEARNER = {"epochs": 2, "batch": 8, "memory": 4}
SITES = ("north", "south")


class Small(nn.Module):
    """A net of one's own."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(shape[0], 6), nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.first(x)))


def table(numeric: bool = False, rows: int = 80) -> pl.DataFrame:
    """Rows of two sites and two tasks in units that need scaling."""
    rng = np.random.default_rng(0)
    heat, load = rng.normal(300, 20, rows), rng.normal(0, 0.01, rows)
    task = np.arange(rows) * 2 // rows
    kind = np.where(heat > 300, "hot", "cold")
    classes = np.where(task > 0, np.where(load > 0, "busy", "idle"), kind)
    return pl.DataFrame(
        {
            "heat": heat,
            "load": load,
            "roof": np.array(["flat", "steep"])[rng.integers(0, 2, rows)],
            "site": np.array(SITES)[np.arange(rows) % 2],
            "week": task,
            "state": heat * 2 + 1000 * load + 7 if numeric else classes,
        }
    )


def data(numeric: bool = False) -> shoal.Data:
    return shoal.Data.from_table(table(numeric), "state", agent="site", task="week", onehot=["roof"])


@cache
def result(model: Any = "mlp", heads: str = "task", numeric: bool = False, method: str = "") -> shoal.Result:
    """A tiny fleet that has learned."""
    learner = {**LEARNER, **({"method": method} if method else {})}
    said: dict[str, Any] = {"model": model, "net": {"width": 6, "depth": 2}, "learner": learner}
    if isinstance(model, str) and model.endswith("cnn"):
        tasks = {"scenario": "split", "count": 2, "initial": 1, "train": 6, "validation": 3, "common": False}
        return shoal.Fleet(shoal.Data(colours()), agents=2, tasks={**tasks, "replacement": False}, **said).run()
    return shoal.Fleet(data(numeric), tasks={"heads": heads}, **said).run()


CASES = [
    *((model, "task", False, "") for model in BUILT_IN),
    (Small, "task", False, ""),
    ("mlp", "one", True, ""),
    ("mlp", "grow", False, ""),
    ("factor", "task", True, ""),
    ("ridge", "one", True, ""),
    ("modular-mlp", "task", True, ""),
    (Small, "task", True, ""),
    ("mlp", "task", False, "packnet"),
]
NAMES = [" ".join(str(getattr(one, "__name__", one)) for one in case if one) for case in CASES]


def taken(case: Any, tmp_path: Path) -> None:
    """Law 11, but for exports: in the simulator, taken out, saved and loaded."""
    model, numeric = case[0], case[2]
    run = result(*case)
    worlds, record = prepare(run.settings), reopen(run.folder)
    (world,), (stack,) = worlds, record.load(worlds) or ()
    for agent in run.agents:
        row = world.lanes.index(agent.told.lane)
        loaded = shoal.Agent.load(agent.save(tmp_path / "agent.safetensors"), None if isinstance(model, str) else model)
        for at in range(int(world.ends[row])):
            size = int(world.test.sizes[row, at])
            with torch.no_grad():
                wanted = nets(world, stack)[row].logits(world.test.rows[row, at, :size], at).double()
            if agent.told.units is not None:
                wanted = wanted * torch.from_numpy(agent.told.units[1]) + torch.from_numpy(agent.told.units[0])
            else:
                wanted = wanted[:, list(agent.told.tasks[at].known)]
            raw = world.bank.take(world.streams[row][at].test)
            taken = agent.logits(raw, at + 1)
            assert wanted.shape[0] == size > 0
            scale = max(1.0, float(wanted.abs().max()))
            assert torch.allclose(taken.double(), wanted, atol=1e-5 * scale)
            assert torch.equal(loaded.logits(raw, at + 1), taken)
            if not numeric:
                said = [world.bank.classes[one] for one in world.bank.labels[world.streams[row][at].test]]
                right = run.accuracy.filter(
                    (pl.col("agent") == agent.told.lane.agent) & (pl.col("tested") == at + 1) & (pl.col("task") == 2)
                )
                last = right.sort("epoch")["accuracy"][-1]
                assert agent.score(raw, said, at + 1) == pytest.approx(last, abs=1e-6)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_an_agent_predicts_what_it_predicts_in_the_simulator(case: Any, tmp_path: Path) -> None:
    taken(case, tmp_path)


LIGHT = [0, NAMES.index("modular-mlp task"), NAMES.index("Small task"), NAMES.index("factor task True")]


def exported(case: Any, tmp_path: Path) -> None:
    run = result(*case)
    agent = run.agents[1]
    for kept in (mlp.projection, frozen.backbone):  # as where an agent was read from a file, and is exported first
        kept.cache_clear()
    agent.module()
    raw = prepare(run.settings)[0].bank.images[:9]
    wanted = agent.logits(raw).float()
    scale = max(1.0, float(wanted.abs().max()))
    module = agent.module()
    assert not any(type(one).__module__.startswith("shoal") for one in module.modules())
    assert torch.allclose(module(torch.from_numpy(raw)), wanted, atol=1e-5 * scale)
    assert torch.allclose(module.train()(torch.from_numpy(raw[:2])), wanted[:2], atol=1e-5 * scale)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(agent.export(tmp_path / "agent.onnx"), providers=["CPUExecutionProvider"])
    said = session.run(None, {session.get_inputs()[0].name: raw.astype(np.float32)})[0]
    assert np.allclose(said, wanted, atol=1e-5 * scale)
    again = torch.export.load(agent.export(tmp_path / "agent.pt2")).module()
    assert torch.allclose(again(torch.from_numpy(raw.astype(np.float32))), wanted, atol=1e-5 * scale)


@pytest.mark.parametrize("at", LIGHT, ids=[NAMES[at] for at in LIGHT])
def test_an_agent_predicts_the_same_when_it_is_exported(at: int, tmp_path: Path) -> None:
    """Law 11 for module() and ONNX, for a few nets; a slow test has all."""
    exported(CASES[at], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_net_can_be_exported(case: Any, tmp_path: Path) -> None:
    exported(case, tmp_path)


EVERY = [
    (model, heads, numeric, "")
    for model in (*BUILT_IN, Small)
    for heads in ("task", "one", "grow")
    for numeric in (False, True)
]
EVERY_NAME = [" ".join(str(getattr(one, "__name__", one)) for one in case if one) for case in EVERY]
# What a model, a head or numbers rule out, in words of the sentence that says so.
REFUSED = ("classes", "numbers", "tasks.heads", "needs", "is for")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", EVERY, ids=[" ".join(str(getattr(one, "__name__", one)) for one in case) for case in EVERY]
)
def test_every_net_with_every_head_predicts_the_same_wherever_it_is(case: Any, tmp_path: Path) -> None:
    """Law 11 for all that a model, the heads of tasks and classes or numbers allow together."""
    try:
        result(*case)
    except UserError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert any(word in refused for word in REFUSED), refused
        pytest.skip(refused)
    taken(case, tmp_path)
    exported(case, tmp_path)


def test_an_agent_is_found_by_the_name_of_its_site_or_by_its_number() -> None:
    run = result()
    assert [agent.name for agent in run.agents] == list(SITES)
    assert run.agent("south").told == run.agent(1).told == run.agent("1", seed=0).told
    assert next(task.classes for task in run.agent("north").tasks) != ()
    assert set(run.agent("north").classes(1)) == {"hot", "cold"}


def test_rows_may_be_frames_arrays_or_lists_in_the_units_of_the_data() -> None:
    agent, frame = result().agent("north"), table()
    said = agent.predict(frame, task=1)
    assert said.tolist() == agent.predict(frame.drop("state", "site").select(pl.all().reverse()).reverse(), 1).tolist()
    roof = frame["roof"].to_numpy()
    array = np.stack([frame["heat"], frame["load"], roof == "flat", roof == "steep"], 1)
    assert said.tolist() == agent.predict(array, 1).tolist() == agent.predict(array.tolist(), 1).tolist()
    assert agent.probabilities(frame).sum(1) == pytest.approx(1)
    numbers = result("mlp", "one", True).agent("north").predict(table(True))
    assert 400 < numbers.mean() < 800


def test_what_it_holds_can_be_looked_at() -> None:
    agent = result().agent("north")
    assert "module.weight" in agent.weights
    assert agent.history.columns[-1] == "accuracy"
    before = agent.predict(table())
    for tensor in agent.weights.values():
        tensor.zero_()
    assert (agent.predict(table()) == before).all()


def test_a_file_has_rows_of_data_only_if_memory_is_asked_for(tmp_path: Path) -> None:
    agent = result().agent("north")

    def owners(file: Path) -> set[str]:
        with safe_open(file, "pt") as held:
            return {name.split("/")[1] for name in held.keys() if name.startswith("state/")}  # noqa: SIM118

    assert "memory" not in owners(agent.save(tmp_path / "a.safetensors"))
    assert "memory" in owners(agent.save(tmp_path / "b.safetensors", memory=True))


def changed(file: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The same file with other metadata, and a digest that fits it."""
    from shoal.keep.files import KEY, digest

    with safe_open(file, "pt") as held:
        said = json.loads(held.metadata()[KEY])
        tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    change(said)
    text = json.dumps(said, sort_keys=True)
    save_file(tensors, file, {KEY: text, "digest": digest(text, tensors)})
    return file


def a_file(tmp: Path) -> Path:
    return result().agent(0).save(tmp / "agent.safetensors")


def a_folder(tmp: Path) -> Path:
    (tmp / "a.safetensors").mkdir()
    return tmp / "a.safetensors"


def damaged(tmp: Path) -> Path:
    file = a_file(tmp)
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    return file


def cut(tmp: Path) -> Path:
    file = a_file(tmp)
    file.write_bytes(file.read_bytes()[:-100])
    return file


def strange(tmp: Path) -> Path:
    save_file({"x": torch.zeros(1)}, tmp / "other.safetensors")
    return tmp / "other.safetensors"


def agent_of() -> shoal.Agent:
    return result().agent(0)


def numeric() -> shoal.Agent:
    return result("mlp", "one", True).agent(0)


def later(said: dict[str, Any]) -> None:
    said["format"] = 9


def own_net(said: dict[str, Any]) -> None:
    said["settings"]["model"] = "somewhere.nets:Net"


def wider(said: dict[str, Any]) -> None:
    said["settings"]["net"]["width"] = 9


def with_nan() -> pl.DataFrame:
    return table().with_columns(pl.when(pl.col("heat") > 330).then(None).otherwise(pl.col("heat")).alias("heat"))


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a column is missing": (lambda _: agent_of().predict(table().drop("heat")), "no column `heat`"),
    "a column has another name": (lambda _: agent_of().predict(table().rename({"heat": "Heat"})), "no column `heat`"),
    "too few numbers": (lambda _: agent_of().predict(np.zeros((3, 2))), "rows have 2 columns"),
    "too many numbers": (lambda _: agent_of().predict(np.zeros((3, 9))), "rows have 9 columns"),
    "one row": (lambda _: agent_of().predict(np.zeros(4)), "give"),
    "a single number": (lambda _: agent_of().predict(3.0), "single value"),
    "pictures": (lambda _: agent_of().predict(np.zeros((3, 8, 8))), "shape"),
    "words for numbers": (lambda _: agent_of().predict(np.full((3, 4), "warm")), "must be numbers"),
    "a column of words": (
        lambda _: agent_of().predict(table().with_columns(heat=pl.lit("warm"))), "no numbers are in `heat`",
    ),
    "rows of different lengths": (lambda _: agent_of().predict([[1.0, 2.0], [1.0]]), "different"),
    "a word never met": (lambda _: agent_of().predict(table().with_columns(roof=pl.lit("dome"))), "never met"),
    "NaN in an array": (lambda _: agent_of().predict(np.full((3, 4), np.nan)), "not numbers"),
    "infinity in an array": (lambda _: agent_of().predict(np.full((3, 4), np.inf)), "not numbers"),
    "values missing in a frame": (lambda _: agent_of().predict(with_nan()), "values are missing"),
    "a mapping": (lambda _: agent_of().predict({"heat": [1.0]}), "got dict"),
    "nothing": (lambda _: agent_of().predict(None), "x"),
    "a task that it has not": (lambda _: agent_of().predict(table(), task=3), "2 tasks"),
    "task 0": (lambda _: agent_of().predict(table(), task=0), "counted from 1"),
    "a task by name": (lambda _: agent_of().predict(table(), task="first"), "counted from 1"),  # type: ignore[arg-type]
    "probabilities of numbers": (lambda _: numeric().probabilities(table()), "have no probabilities"),
    "a class never met": (lambda _: agent_of().score(table(), ["warm"] * 80), "never met"),
    "labels too few": (lambda _: agent_of().score(table(), ["hot"] * 3), "80 rows"),
    "labels of numbers are words": (lambda _: numeric().score(table(), ["hot"] * 80), "must be numbers"),
    "labels of numbers are NaN": (lambda _: numeric().score(table(), [np.nan] * 80), "must be numbers"),
    "two numbers for one": (lambda _: numeric().score(table(), np.zeros((80, 2))), "2 numbers"),
    "an unknown site": (lambda _: result().agent("east"), "no agent 'east'"),
    "an unknown number": (lambda _: result().agent(7), "counted from 0 to 1"),
    "a negative number": (lambda _: result().agent(-1), "counted from 0"),
    "a float": (lambda _: result().agent(1.0), "counted from 0"),  # type: ignore[arg-type]
    "an unknown seed": (lambda _: result().agent(0, seed=4), "no seed 4"),
    "another ending": (lambda tmp: agent_of().save(tmp / "agent.pkl"), ".safetensors"),
    "export without an ending": (lambda tmp: agent_of().export(tmp / "agent"), ".onnx"),
    "export as a pickle": (lambda tmp: agent_of().export(tmp / "agent.pt"), ".onnx"),
    "save to a folder": (lambda tmp: agent_of().save(a_folder(tmp)), "folder"),
    "a file that is not there": (lambda tmp: shoal.Agent.load(tmp / "none.safetensors"), "no file"),
    "a damaged file": (lambda tmp: shoal.Agent.load(damaged(tmp)), "damaged"),
    "a file that is cut": (lambda tmp: shoal.Agent.load(cut(tmp)), "damaged"),
    "a file of something else": (lambda tmp: shoal.Agent.load(strange(tmp)), "no agent"),
    "a file of a later version": (lambda tmp: shoal.Agent.load(changed(a_file(tmp), later)), "format 9"),
    "code of its own": (lambda tmp: shoal.Agent.load(changed(a_file(tmp), own_net)), "trust=True"),
    "code that is not here": (
        lambda tmp: shoal.Agent.load(changed(a_file(tmp), own_net), trust=True), "importing",
    ),
    "another net": (lambda tmp: shoal.Agent.load(a_file(tmp), model=Small), "give the net that was trained"),
    "weights of another size": (lambda tmp: shoal.Agent.load(changed(a_file(tmp), wider)), "have shape"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_use_is_answered_by_one_sentence(what: str, tmp_path: Path) -> None:
    use, words = WRONG[what]
    with pytest.raises(UserError) as error:
        use(tmp_path)
    said = str(error.value)
    assert words in said
    assert "\n" not in said
    assert len(said) < 500
