"""Nets that need no shoal: an agent's net for one task, with scaling and head inside, as torch and others run it."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from shoal.errors import UserError
from shoal.files import save
from shoal.models.foreign import quiet, words

if TYPE_CHECKING:
    from shoal.keep.agent import Agent

ROWS = 7  # with which a net is tried
CLOSE = 1e-5  # by how much what is exported may differ, relative to the largest number
KINDS = (".onnx", ".pt2", ".safetensors")


class Plain(nn.Module):
    """From raw rows [B, ...] to logits [B, classes], or to numbers in their units: what an agent does to rows in a
    task, in operations of torch alone."""

    shift: Tensor
    spread: Tensor
    target_shift: Tensor
    target_spread: Tensor

    def __init__(self, agent: "Agent", at: int) -> None:
        super().__init__()
        model, told = agent.model, agent.told
        if not hasattr(model, "encoded"):
            raise UserError(f"the model `{agent.settings.model}` has no `encoded`, by which its rows can be exported")
        self.model, self.at, self.peak, self.seed = model, at, agent.source.peak, agent.seed
        params, self.usage = model.composed(agent.answering(at), agent.usage, at)
        self.params = params
        self.known = list(told.tasks[at].known)
        self.scaled = told.scaling is not None and told.scaling.how == "standard"
        self.numeric = told.units is not None
        if self.scaled:
            assert told.scaling is not None
            self.register_buffer("shift", torch.from_numpy(told.scaling.shift.copy()))
            self.register_buffer("spread", torch.from_numpy(told.scaling.spread.copy()))
        if told.units is not None:
            self.register_buffer("target_shift", torch.from_numpy(told.units[0].copy()))
            self.register_buffer("target_spread", torch.from_numpy(told.units[1].copy()))

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.float64)
        if self.scaled:
            x = (x - self.shift) / self.spread
        read = self.model.encoded(x.to(torch.float32), self.peak, self.seed)
        found: Tensor = self.model.logits(self.params, read, self.at, **self.usage)
        if self.numeric:
            return (found.to(torch.float64) * self.target_spread + self.target_shift).to(torch.float32)
        return found[:, self.known]


def program(agent: "Agent", task: int | None) -> torch.export.ExportedProgram:
    """The program of an agent's net for a task, for any number of rows."""
    if agent.ended:
        raise UserError(agent.ended)
    at = agent.place(task)
    if getattr(agent.scenario, "view", None) is not None and at:
        raise UserError(
            f"task {at + 1} of {agent.name} sees rows in another way (tasks.scenario = "
            f'"{agent.settings.tasks.scenario}"), which is not exported; export task 1, or use predict(x)'
        )
    x = torch.zeros(ROWS, *agent.source.shape)
    try:
        with quiet(), torch.no_grad():
            net = Plain(agent, at).eval()
            net(x)  # what nets keep from their first use on must not be kept from an export, whose numbers are none
            return torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    except UserError:
        raise
    except Exception as error:  # a net of somebody else can fail in any way
        raise UserError(
            f"the net `{agent.settings.model}` cannot be exported ({words(error)}); write it in operations that "
            "torch.export knows"
        ) from error


def module(agent: "Agent", task: int | None) -> nn.Module:
    """An agent's net for a task as a module of torch's own classes."""
    with quiet():
        found = program(agent, task).module(check_guards=False)
    for node in list(found.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:  # rows may be of any type
            found.graph.erase_node(node)
    # A module of the same graph that may be set to train or eval, which torch forbids this one.
    return fx.GraphModule(found, found.graph).eval()


def export(agent: "Agent", file: Path, task: int | None) -> Path:
    """Write an agent's net for a task as a file of the kind that its name says."""
    if file.suffix not in KINDS:
        raise UserError(f"cannot tell what to export as {file}; its name ends in {', '.join(KINDS)}")
    writers: Mapping[str, Callable[[Agent, int | None], bytes]] = {
        ".onnx": onnx, ".pt2": portable, ".safetensors": tensors,
    }  # fmt: skip
    return save(file, writers[file.suffix](agent, task), "give another place")


def labelled(agent: "Agent", task: int | None) -> dict[str, str]:
    """What a file says of the numbers that go in and come out, as words."""
    told: dict[str, Any] = {
        "agent": agent.name,
        "classes": [str(one) for one in agent.classes(task)],
        "columns": agent.source.spelt,
        "predicts": list(agent.source.wanted),
    }
    return {name: one if isinstance(one, str) else json.dumps(one) for name, one in told.items()}


def portable(agent: "Agent", task: int | None) -> bytes:
    """The program in the format of `torch.export.load`."""
    content = io.BytesIO()
    with quiet():
        torch.export.save(program(agent, task), content, extra_files=labelled(agent, task))
    return content.getvalue()


def tensors(agent: "Agent", task: int | None) -> bytes:
    """The numbers alone: parameters as the agent has them, projection and scaling, for loaders in any language."""
    from safetensors.torch import save as packed

    if agent.ended:
        raise UserError(agent.ended)
    made = Plain(agent, agent.place(task))
    held = dict(agent.weights.items())
    held |= dict(made.named_buffers())
    project = getattr(getattr(agent.model, "block", None), "projected", None)
    if project is not None:
        held |= dict(zip(("projection.weight", "projection.bias"), project(agent.seed), strict=True))
    return packed({name: one.contiguous() for name, one in held.items()}, labelled(agent, task))


def onnx(agent: "Agent", task: int | None) -> bytes:
    """The program in ONNX's format, once onnxruntime has come to the same numbers."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  # which torch needs
    except ImportError as error:
        raise UserError(f'ONNX files need {error.name}: pip install "shoal[export]"') from None
    made = program(agent, task)
    with quiet():
        found = torch.onnx.export(made, input_names=["rows"], output_names=["scores"], dynamo=True, verbose=False)
    assert found is not None
    proto = found.model_proto
    for name, text in labelled(agent, task).items():
        proto.metadata_props.add(key=name, value=text)
    content: bytes = proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(0).normal(0, agent.source.peak, (ROWS + 3, *agent.source.shape)).astype(np.float32)
    said = session.run(None, {session.get_inputs()[0].name: rows})[0]
    with torch.no_grad():
        wanted = made.module(check_guards=False)(torch.from_numpy(rows)).numpy()
    if not np.allclose(said, wanted, rtol=CLOSE, atol=CLOSE * max(1.0, float(np.abs(wanted).max()))):
        raise UserError(
            f"onnxruntime {onnxruntime.__version__} comes to other numbers than {agent.name}, by up to "
            f"{float(np.abs(said - wanted).max()):.2g}; nothing is written: export .pt2, or use another version"
        )
    return content
