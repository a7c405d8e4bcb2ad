"""FedWeIT (Yoon et al. 2021) without the server: neighbours average the base, and attend to each other's parts."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.slots import slots
from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.learners.decomposed import hear
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected, Mail, by_receiver
from shoal.letters.quote import Quote, Room, fitting, numbers
from shoal.mail.post import Post
from shoal.models.decomposed import BASE, LAST, SCALE, Decomposed
from shoal.models.families import is_decomposed
from shoal.settings.groups import Settings
from shoal.settings.policies import Carries
from shoal.sharing.body import net_of, write
from shoal.sharing.bounds import too_large
from shoal.sharing.contract import Sharing

LARGE = 100.0  # no entry of a part that is sent is larger


class FedWeIT(Sharing):
    """Averaging of the base, unit by unit where its scale is large, and sparse parts of tasks that others attend to.

    At every exchange a lane sends the base of those units of every layer whose |scale| is largest; the mean is taken
    over all that have a unit. With the first one of a task goes the sparse part of the task before.
    """

    between: ClassVar[str] = "agents of model decomposed-mlp with the same net.width and net.depth"
    writes: ClassVar[tuple[str, ...]] = (MODEL,)
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    mode: Literal["fedweit"] = "fedweit"
    every: PositiveInt = Field(5, description="epochs between exchanges")
    when: Literal["before"] = Field("before", description="exchange before every so many epochs")
    share: float = Field(0.7, gt=0, le=1, description="the share of the units of a layer that is sent")

    def suits(self, settings: Settings) -> None:
        if not is_decomposed(settings):
            raise SettingsError(
                f"mode `fedweit` shares a base and parts of tasks, and `{settings.model}` has none; use model = "
                '"decomposed-mlp", or share by another mode'
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    def carries(self, kind: str) -> Carries | None:
        """The base is common to all; the part of a task is grown for it, as a module is."""
        return {"base": Carries(("models",)), "part": Carries(("modules",))}.get(kind)

    def init(self, world: World) -> dict[str, Tensor]:
        """Up to which task neighbours have been told of parts; what all have learned together is known there."""
        tasks = world.settings.tasks
        known = tasks.initial if tasks.common else 0
        return {"told": torch.full((len(world.lanes), slots(world).most), known)}

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """The part of the task before to all that have not been told, and as many layers of the base as fit, in turn
        another one first."""
        world, stack, mails = post.world, post.stack, []
        chosen, looks = self.units(stack), [self.expects(world, kind, world.lanes[0]) for kind in ("part", "base")]
        depth, turn = world.settings.net.depth, post.now // self.every
        for row, lane in enumerate(world.lanes):
            part, letters = stack.of(MODEL)[LAST][row].cpu(), dict[tuple[str, int], dict[str, Tensor]]()
            for other in post.out(lane):
                room, wanted = post.left(lane, other), int((part != 0).sum())
                if wanted and int(stack.of(self.owner)["told"][row, slots(world).of(lane, other)]) < stack.task:
                    many = fitting(wanted, looks[0], room)
                    if ("part", many) not in letters:
                        letters["part", many] = sparse(part, many)
                    mails.append(post.mail(lane, other, "part", letters["part", many], many))
                    room = room.less(looks[0], many)
                many = fitting(depth, looks[1], room)
                if ("base", many) not in letters:
                    layers = (torch.arange(many) + (turn if many < depth else 0)) % depth
                    base, units = stack.params[BASE][row, layers].cpu(), chosen[row, layers]
                    rows = base[units].unflatten(0, (many, -1))
                    letters["base", many] = {"base": rows, "units": packed(units), "layers": layers.int()}
                mails.append(post.mail(lane, other, "base", letters["base", many], many))
        return mails

    def units(self, stack: Stack) -> Tensor:
        """Which units of every layer are sent, bool [L, depth, H]: by the scales of the task or, before it is trained,
        of the one before."""
        task = stack.task if stack.epoch else max(0, stack.task - 1)
        size = stack.params[SCALE][:, task].abs().cpu()
        rank = size.argsort(dim=2, descending=True, stable=True).argsort(2)
        return rank < self.many(size.shape[2])

    def many(self, width: int) -> int:
        """How many units of a layer are sent."""
        return ceil(round(self.share * width, 6))

    def objects(self, post: Post, mail: Mail) -> str:
        """Bits stand for as many numbers as there are, no layer comes twice, and no base is far larger than the
        receiver's own."""
        net, told = post.world.settings.net, mail.payload
        if mail.kind == "part":
            found = unpacked(told["bits"], net.depth * net.width**2)
            return ACCEPTED if 0 < len(told["values"]) == int(found.sum()) else OUT_OF_RANGE
        if not 0 < len(told["layers"]) == len(told["layers"].unique()):
            return OUT_OF_RANGE
        if (unpacked(told["units"], net.width).sum(1) != self.many(net.width)).any():
            return OUT_OF_RANGE
        return TOO_LARGE if too_large(post, mail, [BASE]) else ACCEPTED

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Average the base over all that have a unit, and keep parts."""
        world, stack, model = post.world, post.stack, post.world.model
        assert isinstance(model, Decomposed)
        for lane, other, kind in sorted(post.gone):
            if kind == "part":
                stack.of(self.owner)["told"][world.row[lane], slots(world).of(lane, other)] = stack.task
        chosen, most = self.units(stack), model.attended - 1
        for mail in answers:
            slot = slots(world).of(mail.receiver, mail.sender)
            if mail.kind == "part" and slot < most:
                part = opened(mail.payload, tuple(stack.of(MODEL)[LAST].shape[1:]))
                hear(stack, world.row[mail.receiver], slot, min(most, slots(world).most), part)
        for lane, mails in by_receiver(mail for mail in answers if mail.kind == "base").items():
            row = world.row[lane]
            own = stack.params[BASE][row].cpu()
            mine = {"base": own[chosen[row]].unflatten(0, (len(own), -1)), "units": packed(chosen[row])}
            letters = [(mail.sender, mail.payload) for mail in mails]
            letters.append((lane, mine | {"layers": torch.arange(len(own))}))
            total, count = own.new_zeros(own.shape, dtype=torch.float64), torch.zeros(own.shape[:2])
            heard = torch.zeros(own.shape[:2], dtype=torch.bool)
            for sender, payload in sorted(letters, key=lambda one: one[0]):
                units = torch.zeros_like(heard)
                units[payload["layers"].long()] = unpacked(payload["units"], own.shape[1])
                order = payload["layers"].argsort()
                total[units] += payload["base"][order].flatten(0, 1)
                count += units
                heard |= units & (sender != lane)
            mean = (total / count.clamp(min=1)[..., None]).float()
            write(stack, row, {BASE: torch.where(heard[..., None], mean, own).to(world.device)})

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        net = world.settings.net
        if kind == "part":
            return {
                "values": Expected(torch.float32, (None,), least=-LARGE, most=LARGE),
                "bits": Expected(torch.int32, (words(net.depth * net.width**2),)),
            }
        return {
            "base": Expected(torch.float32, (None, self.many(net.width), net.width)),
            "units": Expected(torch.int32, (None, words(net.width))),
            "layers": Expected(torch.int32, (None,), net.depth),
        }

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        net, found = world.settings.net, []
        for kind, wanted in (("part", net.depth * net.width**2), ("base", net.depth)):
            layout = self.expects(world, kind, world.lanes[0])
            items = fitting(wanted, layout, room)
            found.append(Quote(kind, items, numbers(layout, items)))
        return found


def words(bits: int) -> int:
    """How many whole numbers of 32 bits hold so many bits."""
    return -(-bits // 32)


def packed(bits: Tensor) -> Tensor:
    """Bits [..., n] as whole numbers, int32 [..., n / 32]."""
    wide = torch.nn.functional.pad(bits, (0, -bits.shape[-1] % 32))
    return torch.from_numpy(np.packbits(wide.numpy(), axis=-1).view(np.int32))


def unpacked(held: Tensor, count: int) -> Tensor:
    """The first `count` bits that whole numbers [..., n] hold, bool [..., count]."""
    return torch.from_numpy(np.unpackbits(held.numpy().view(np.uint8), axis=-1)[..., :count].astype(bool))


def sparse(part: Tensor, many: int) -> dict[str, Tensor]:
    """The `many` largest entries of a part, and where they are."""
    flat = part.flatten()
    held = torch.zeros(len(flat), dtype=torch.bool)
    held[flat.abs().argsort(descending=True, stable=True)[:many]] = True
    return {"values": flat[held].clamp(-LARGE, LARGE), "bits": packed(held)}


def opened(payload: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """The part that was sent."""
    flat = torch.zeros(int(np.prod(shape)))
    flat[unpacked(payload["bits"], len(flat))] = payload["values"]
    return flat.view(shape)
