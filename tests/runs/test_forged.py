"""A checkpoint with a right digest and wrong content is refused in a sentence, whatever is wrong with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.compiled.library import kernel
from shoal.configure.reading import read
from shoal.errors import Stopped
from shoal.fleet.run import simulate
from shoal.runs import checkpoints
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import DamagedCheckpointError, Record, create, reopen
from tests.command import DIGITS, TINY, call, refused

TRIALS = 200
# Fleets whose checkpoints hold all kinds of state: memories, buffers, modules, a reservoir, a clock, mail under way.
FLEETS = {
    "modules": ["sharing=recv,modmod", "sharing.recv.every=2", "network.delay=1"],
    "plain": ["model=mlp", "sharing=fedavg", "sharing.every=2", "learner=der", "clock.speed=100"],
}
Held = tuple[dict[str, str], dict[str, torch.Tensor]]


@pytest.fixture(scope="module", params=FLEETS)
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Held]:
    """A run that was stopped in its fifth task, and what its checkpoint holds."""
    folder = tmp_path_factory.mktemp("forged") / request.param
    settings = read(DIGITS, [*TINY, *FLEETS[request.param]])
    moments = 0

    def stop() -> bool:
        nonlocal moments
        moments += 1
        return moments > 12

    with pytest.raises(Stopped):
        carry_out(prepare(settings), create(folder, settings), stop=stop)
    (folder / "earlier.safetensors").unlink(missing_ok=True)
    (folder / "manifest.json").unlink()
    saved = checkpoints.opened(folder / "checkpoint.safetensors", torch.device("cpu"))
    return folder, (saved.about, saved.tensors)


def forge(folder: Path, about: dict[str, str], tensors: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint with a right digest."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    said = {**about, "digest": checkpoints.digest(about, tensors)}
    (folder / "checkpoint.safetensors").write_bytes(save(tensors, said))


def wrong(about: dict[str, str], tensors: dict[str, torch.Tensor], rng: np.random.Generator) -> str:
    """Change one thing that a checkpoint holds into what no run can hold, and say what."""
    words = ["lanes", "words", "inbox", "host", "seconds"]
    name = str(rng.choice([*tensors, *words]))
    if name in words:
        about[name] = str(
            rng.choice(["", "[", "[[[0, 0, 0]]]", '{"a": 1}', "-1", "nan", "[[1e99]]", '"x"', "[[null]]"])
        )
        return f"{name} = {about[name]}"
    tensor = tensors[name].clone()
    ways = ["shape", "type", "rows"]
    owner = name.partition("/")[0]
    if name == "received/marks":  # digests, which may be any number
        pass
    elif tensor.numel() and tensor.dtype in (torch.int64, torch.int16):
        ways += ["number"] * 6
    elif tensor.numel() and tensor.is_floating_point() and owner not in ("params", "mean", "var", "record", "clock"):
        ways += ["infinite"] * 3
    way = str(rng.choice(ways))
    if way == "number":
        most = torch.iinfo(tensor.dtype).max
        value = int(rng.choice([most, -(10**4), -most, most - 1]))
        tensor.view(-1)[int(rng.integers(tensor.numel()))] = value
        way = f"number {value}"
    elif way == "infinite":
        tensor.view(-1)[int(rng.integers(tensor.numel()))] = float(rng.choice([np.nan, np.inf, -np.inf]))
    elif way == "shape":
        tensor = tensor[..., None].repeat(*[1] * tensor.ndim, 2)
    elif way == "type":
        tensor = tensor.to(torch.float16 if tensor.dtype != torch.float16 else torch.int32)
    else:
        tensor = torch.cat([tensor, tensor, tensor[:0]]) if tensor.numel() else tensor.new_zeros(3, 7)
    tensors[name] = tensor
    return f"{name}: {way}"


def told(folder: Path, *parts: str) -> None:
    """To go on is refused in one sentence, behind the name of the folder."""
    done = call("resume", folder)
    refused(done._replace(err=done.err.partition("\n")[2]), *parts)


def loaded(folder: Path, fleet: tuple[World, ...]) -> Any:
    return Record(folder, fleet[0].fleet).load(fleet)


def test_no_forged_checkpoint_of_two_hundred_is_taken(stopped: tuple[Path, Held]) -> None:
    folder, (about, tensors) = stopped
    fleet = prepare(reopen(folder).settings)
    forge(folder, about, tensors)
    assert loaded(folder, fleet)  # as it was
    taken, sentences = [], []
    for seed in range(TRIALS):
        said, held = dict(about), dict(tensors)
        what = wrong(said, held, np.random.default_rng(seed))
        if said == about and all(torch.equal(held[name], tensors[name]) for name in held):
            continue
        forge(folder, said, held)
        try:
            loaded(folder, fleet)
        except DamagedCheckpointError as error:
            sentences.append(str(error))
        else:
            taken.append(what)
    assert taken == []
    assert [one for one in sentences if "\n" in one or "checkpoint.safetensors is damaged (" not in one] == []


@pytest.mark.parametrize(
    ("name", "value"), [("memory/y", 10**6), ("memory/y", -(10**6)), ("clock/task", 10**6), ("reservoir/y", 10**6)]
)
def test_an_index_that_a_kernel_would_follow_is_a_sentence(stopped: tuple[Path, Held], name: str, value: int) -> None:
    folder, (about, tensors) = stopped
    if name not in tensors or not tensors[name].numel():
        pytest.skip("such a fleet has none")
    forge(folder, about, {**tensors, name: torch.full_like(tensors[name], value)})
    told(folder, "is damaged", f"`{name}` has {value:g}")


def test_what_is_missing_is_a_sentence(stopped: tuple[Path, Held]) -> None:
    folder, (about, tensors) = stopped
    forge(folder, about, {name: one for name, one in tensors.items() if name != "clock/task"})
    told(folder, "is damaged", "`clock/task` is missing")
    forge(folder, {**about, "lanes": json.dumps([[[5, 5]]])}, tensors)
    told(folder, "is damaged")


@pytest.mark.parametrize(("name", "value"), [("y", 10**6), ("y", -1), ("choice", 10**6)])
def test_the_kernel_refuses_an_index_that_lies_outside(name: str, value: int) -> None:
    if kernel().library is None:
        pytest.skip("there is no compiler here")
    (world,) = prepare(read(DIGITS, [*TINY, "machine.kernel=compiled"]))

    def harm(stack: Stack) -> None:
        stack.of("model" if name == "choice" else "memory")[name].fill_(value)

    with pytest.raises(IndexError, match="a number that there is not"):
        simulate(world, watch=harm)
