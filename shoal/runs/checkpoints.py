"""Checkpoints: stacks as a file, and stacks of a file, which says by its digest whether it is whole."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from shoal.data.tasks import Lane
from shoal.fleet.stack import Stack
from shoal.mail.inbox import Inbox
from shoal.mail.ledger import Ledger
from shoal.mail.mail import Envelope, pack, unpack
from shoal.runs.about import FORMAT
from shoal.settings.reading import is_there

TYPED = "typed:"  # what a digest begins with that covers types and shapes


class DamagedError(Exception):
    """A checkpoint that is not whole, and why."""


class Saved(NamedTuple):
    """What a checkpoint holds."""

    about: dict[str, str]
    tensors: dict[str, torch.Tensor]

    @property
    def identity(self) -> str:
        """The identity of the settings that it belongs to."""
        return self.about["identity"]

    @property
    def seconds(self) -> float:
        """The time spent in the run until then."""
        return float(self.about["seconds"])

    def stacks(self, epochs: int) -> tuple[Stack, ...]:
        """The stacks; a task has so many epochs."""
        about, flat = self.about, dict(self.tensors)
        flat |= {name: flat[name].cpu() for name in json.loads(about["host"])}
        lanes = [[Lane(*lane) for lane in one] for one in json.loads(about["lanes"])]
        rows, words = flat.pop("ledger").cpu().numpy(), json.loads(about["words"])
        totals = flat.pop("totals").cpu().numpy() if "totals" in flat else None
        inboxes = [
            [
                unpack(Envelope(*envelope), flat.pop(letter(at, place)).cpu().numpy().tobytes())
                for place, envelope in enumerate(one)
            ]
            for at, one in enumerate(json.loads(about["inbox"]))
        ]
        waiting = [mail for inbox in inboxes for mail in inbox]
        ledger = Ledger.of(rows, words, epochs, totals, waiting)
        stacks = []
        for at, mine in enumerate(lanes):
            head = mark(at, len(lanes))
            own = {name.removeprefix(head): tensor for name, tensor in flat.items() if name.startswith(head)}
            stacks.append(Stack.made(mine, own, ledger))
            stacks[-1].inbox = Inbox(inboxes[at])
        return tuple(stacks)


def packed(stacks: Sequence[Stack], identity: str, seconds: float) -> bytes:
    """A checkpoint: one clock, one ledger, and the tensors and the inbox of every stack."""
    stack = stacks[0]
    about = {
        "format": str(FORMAT),
        "identity": identity,
        "lanes": json.dumps([one.lanes for one in stacks]),
        "seconds": repr(seconds),
    }
    tensors = {
        f"{mark(at, len(stacks))}{name}": tensor.contiguous()
        for at, one in enumerate(stacks)
        for name, tensor in one.tensors.items()
    }
    # Counters and results stay on the host, whatever the device.
    host = [name for name, tensor in tensors.items() if tensor.device.type == "cpu"]
    about["host"] = json.dumps(sorted(host) if len(host) < len(tensors) else [])
    tensors["ledger"] = torch.from_numpy(stack.ledger.rows)
    if stack.ledger.totals is not None:
        tensors["totals"] = torch.from_numpy(stack.ledger.totals)
    about["words"] = json.dumps(stack.ledger.words)
    letters = [[pack(mail) for mail in one.inbox] for one in stacks]
    about["inbox"] = json.dumps([[envelope for envelope, _ in one] for one in letters])
    for at, one in enumerate(letters):
        for place, (_, content) in enumerate(one):
            tensors[letter(at, place)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    about["digest"] = f"{TYPED}{digest(about, tensors, typed=True)}"
    return save(tensors, about)


def opened(place: Path, device: torch.device) -> Saved:
    """What a checkpoint holds, if it is whole."""
    try:
        if not is_there(place) or place.is_symlink():
            raise OSError("it is no regular file")
        with safe_open(place, "pt", device=str(device)) as file:
            about = file.metadata() or {}
            # Copies: a tensor begins anywhere in the file, and how a product is summed depends on where its factors
            # begin.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DamagedError(error) from None
    said = about.pop("digest", "")
    typed = said.startswith(TYPED)  # one of an earlier version does not cover types and shapes
    if said.removeprefix(TYPED) != digest(about, tensors, typed):
        raise DamagedError("its content does not match its digest")
    return Saved(about, tensors)


def mark(at: int, count: int) -> str:
    """What the names of a stack's tensors begin with in a checkpoint of several stacks."""
    return "" if count == 1 else f"{at}:"


def letter(at: int, place: int) -> str:
    """The name of a mail in a checkpoint: its place in the inbox of a stack."""
    return f"inbox:{at}:{place}"


def digest(about: dict[str, str], tensors: dict[str, torch.Tensor], typed: bool) -> str:
    """A checksum of all that a checkpoint says: what a disk or a copy has changed must not become a result. `typed`
    ones cover the types and shapes of tensors too."""
    value = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].cpu()
        label = f"{name} {tensor.dtype} {list(tensor.shape)}" if typed else name
        value = zlib.crc32(tensor.numpy().data, zlib.crc32(label.encode(), value))
    return f"{value:08x}"
