"""Agents as files: one safetensors file that says by its digest whether it is whole. Nothing in it is ever run."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as packed

import shoal
from shoal.agents.stack import CLOCK, MODEL, PARAMS, RECORD
from shoal.data.rows import Source
from shoal.data.scaling import Scaling
from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.files import save as write
from shoal.learners.contract import Learner
from shoal.learners.table import LEARNERS
from shoal.models.table import MODELS
from shoal.runs.kept import Met, Told
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.keep.agent import Agent

FORMAT = 1  # of a file; raised when an older shoal could not read it
KEY = "shoal.agent"  # where the metadata of a file says what it is
ALWAYS = (CLOCK, PARAMS, MODEL, RECORD)  # whose state goes into every file
SCALE = ("shift", "spread", "target_shift", "target_spread")


def save(agent: "Agent", file: Path, memory: bool) -> Path:
    """Write an agent to a file."""
    if file.suffix != ".safetensors":
        raise UserError(f"an agent is saved as a .safetensors file, got {file}; export() writes other kinds")
    if memory and not agent.whole:
        raise UserError(f"{agent.name} was saved without its memory, so there is none to save; leave memory out")
    told, learner = agent.told, agent.settings.learner
    owners = {*ALWAYS} | ({learner.owner} if type(learner).answering is not Learner.answering else set())
    state = {name: one for name, one in agent.state.items() if memory or name.partition("/")[0] in owners}
    tensors = {f"state/{name}": one.contiguous() for name, one in state.items()}
    numbers = [*((None, None) if told.scaling is None else (told.scaling.shift, told.scaling.spread))]
    numbers += [None, None] if told.units is None else list(told.units)
    tensors |= {
        name: torch.from_numpy(np.ascontiguousarray(one))
        for name, one in zip(SCALE, numbers, strict=True)
        if one is not None
    }
    said = agent.settings.model_dump(
        mode="json", include={"model", "tasks", "net", "learner", "seed", "agents", "sharing"}
    )
    about = {
        "format": FORMAT,
        "shoal": shoal.__version__,
        "made": dict(agent.about),
        "settings": {name: one for name, one in said.items() if one is not None},
        "source": agent.source.about(),
        "agent": {"seed": told.lane.seed, "agent": told.lane.agent, "kind": told.kind, "site": told.site},
        "tasks": [[list(met.outputs), list(met.known), met.rows] for met in told.tasks],
        "memory": memory,
    }
    text = json.dumps(about, sort_keys=True)
    content = packed(tensors, {KEY: text, "digest": digest(text, tensors)})
    return write(file, content, "give another place")


def load(file: Path, model: Any = None, trust: bool = False) -> "Agent":
    """The agent in a file."""
    from shoal.keep.agent import Agent

    said, tensors = opened(file)
    source = Source.read(said["source"])
    settings = settings_of(said["settings"], file, model, trust)
    scale = [tensors[name].numpy() for name in SCALE[:2]] if SCALE[0] in tensors else None
    units = (tensors[SCALE[2]].numpy(), tensors[SCALE[3]].numpy()) if SCALE[2] in tensors else None
    tasks = tuple(Met(tuple(outputs), tuple(known), rows) for outputs, known, rows in said["tasks"])
    own = said["agent"]
    told = Told(
        Lane(own["seed"], own["agent"]),
        own["kind"],
        own["site"],
        tasks,
        None if scale is None else Scaling(source.scale, sum(met.rows for met in tasks), scale[0], scale[1]),
        units,
    )
    state = {name.removeprefix("state/"): one for name, one in tensors.items() if name.startswith("state/")}
    found = Agent(settings, source, told, state, said["made"], said["memory"])
    suits(found, file)
    return found


def opened(file: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """What a file says and holds, if it is whole and of an agent."""
    try:
        if file.is_dir():
            raise UserError(f"{file} is a folder, and an agent is one file; `shoal export {file}` writes one of a run")
        if not file.is_file():
            raise UserError(f"there is no file {file}; name one that agent.save() has written")
        with safe_open(file, "pt") as held:
            about = held.metadata() or {}
            tensors = {name: held.get_tensor(name).clone() for name in held.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} is damaged, or no safetensors file ({error}); restore it") from None
    if KEY not in about:
        raise UserError(f"{file} holds no agent of shoal; name a file that agent.save() has written")
    if about.get("digest") != digest(about[KEY], tensors):
        raise UserError(f"{file} is damaged: its content does not match its digest; restore it, or save it again")
    said = json.loads(about[KEY])
    if said.get("format") != FORMAT:
        raise UserError(
            f"{file} was written by shoal {said.get('shoal')} in format {said.get('format')}, and this shoal "
            f"{shoal.__version__} reads format {FORMAT}; load it with that version"
        )
    return said, tensors


def settings_of(said: dict[str, Any], file: Path, model: Any, trust: bool) -> Settings:
    """The settings of an agent; code of somebody else is not imported unless it is trusted."""
    if model is not None:
        said = {**said, "model": MODELS.named(model)}
    for table, name, way in ((MODELS, said["model"], "model=Net"), (LEARNERS, said["learner"]["method"], "")):
        given = model is not None and table is MODELS
        if name not in table.built_in and not given and not trust:
            hint = f"give it as load(..., {way}), or " if way else ""
            raise UserError(
                f"{file} needs the {table.noun} `{name}`, which is code of its own; {hint}say trust=True to import it"
            )
    tasks = {**said["tasks"], "scenario": said["tasks"]["scenario"]}
    return Settings(**{**said, "tasks": tasks, "dataset": "digits", "seeds": 1})


def suits(agent: "Agent", file: Path) -> None:
    """Raise if the weights in a file are not those of the net that it names."""
    from shoal.models.contract import shapes

    wanted, there = shapes(agent.model), {name: tuple(one.shape) for name, one in agent.of(PARAMS).items()}
    if wanted != there:
        names = [name for name in {**wanted, **there} if wanted.get(name) != there.get(name)]
        raise UserError(
            f"the weights `{names[0]}` in {file} have shape {there.get(names[0])}, and the net "
            f"`{agent.settings.model}` has {wanted.get(names[0])}; give the net that was trained"
        )


def digest(text: str, tensors: dict[str, torch.Tensor]) -> str:
    """The SHA-256 of all that a file says and holds."""
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return found.hexdigest()
