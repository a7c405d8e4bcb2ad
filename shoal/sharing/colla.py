"""CoLLA: agents agree on one dictionary without showing a task, by ADMM (Rostami et al. 2018)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.mail.mail import Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, numbers
from shoal.models.factor import DICTIONARY, Factor
from shoal.settings.groups import Settings
from shoal.sharing.contract import Carries, Sharing

LARGE = 1e6  # no number that is sent is larger
FITS = "ella"  # whose normal equations are solved


class CoLLA(Sharing):
    """Agreement on a dictionary: everybody sends its shared atoms in every epoch, and moves towards what fits the tasks
    of all.

    With T_i fits that have the normal equations A_i x = b_i, and c_ij the mean of what both ends of a link pull with:
    p_i += sum_j c_ij (x_i - x_j), then x_i = (A_i / T_i + (decay + sum_j c_ij) I)^-1 (b_i / T_i - p_i / 2 + sum_j
    c_ij (x_i + x_j) / 2), over the neighbours j that were heard. Codes, and atoms of one's own, are never sent.
    """

    between: ClassVar[str] = "agents of model factor with the same net.basis"
    mode: Literal["colla"] = "colla"
    every: PositiveInt = Field(1, description="epochs between rounds")
    when: Literal["after"] = Field("after", description="exchange after every so many epochs")
    pull: PositiveFloat = Field(
        0.5, description="how hard agents pull at each other, in units of how well their own tasks hold the atoms"
    )

    def suits(self, settings: Settings) -> None:
        if not settings.closed:
            raise SettingsError(
                f"mode `colla` agrees on a dictionary, and `{settings.model}` has none; use model = "
                '"factor", or share by another mode'
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        return super().fits(sender, receiver) and sender.net.basis == receiver.net.basis

    def init(self, world: World) -> dict[str, Tensor]:
        """The last atoms `x` that were agreed on, if any were (`on`); the multipliers; and a factor of the normal
        equations, for as long as fits and neighbours stay the same."""
        model, lanes = world.model, len(world.lanes)
        assert isinstance(model, Factor)
        size = model.inputs * model.read

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(lanes, *shape, dtype=torch.float64, device=world.device)

        return {
            "x": zeros(model.inputs * model.shared),
            "multipliers": zeros(model.inputs * model.shared),
            "factor": zeros(size, size),
            "pulled": zeros(),
            "of": torch.zeros(lanes, dtype=torch.int64),
            "on": torch.zeros(lanes, dtype=torch.bool),
        }

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """The shared atoms of all lanes that have fitted anything, and how hard they pull."""
        mails = []
        for row, lane in enumerate(post.world.lanes):
            if post.stack.of(FITS)["count"][row]:
                payload = self.told(post, row)
                mails += [post.mail(lane, other, "dictionary", payload, 1) for other in post.out(lane)]
        return mails

    def told(self, post: Post, row: int) -> dict[str, Tensor]:
        """What a lane sends in a round. The same numbers count for itself: what two agents make of each other cancels
        out."""

        def find() -> dict[str, Tensor]:
            model, state, fits = shape_of(post.world), post.stack.of(self.owner), post.stack.of(FITS)
            atoms = post.stack.params[DICTIONARY][row, : model.shared]
            if state["on"][row]:  # what a new task has made of them since is in the normal equations
                atoms = state["x"][row].view_as(atoms)
            held = fits["gram"][row].diagonal()[: model.inputs * model.shared].mean() / fits["count"][row]
            near = max(1, len(post.world.neighbours(self)[post.world.lanes[row]]))
            return {DICTIONARY: atoms.float().cpu().clone(), "pull": (self.pull * held / near)[None].float().cpu()}

        return post.once(("told", row), post.stack, find)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """One round of ADMM for every lane that was told anything; who was not heard does not count in it."""
        for lane, mails in by_receiver(answers).items():
            row = post.world.row[lane]
            if post.stack.of(FITS)["count"][row]:
                self.agree(post, row, sorted(mails, key=lambda one: one.sender))

    def agree(self, post: Post, row: int, mails: Sequence[Mail]) -> None:
        """One round of a lane."""
        world, state, fits = post.world, post.stack.of(self.owner), post.stack.of(FITS)
        model, count = shape_of(world), int(fits["count"][row])
        mine = self.told(post, row)
        x, pull = flat(mine[DICTIONARY], world), float(mine["pull"])
        far, near, pulled = torch.zeros_like(x), torch.zeros_like(x), 0.0
        for mail in mails:
            theirs, both = flat(mail.payload[DICTIONARY], world), (pull + float(mail.payload["pull"])) / 2
            far += both * (x - theirs)
            near += both * (x + theirs)
            pulled += both
        state["multipliers"][row] += far
        if (count, pulled) != (int(state["of"][row]), float(state["pulled"][row])):
            matrix = fits["gram"][row] / count
            matrix.diagonal().add_(world.settings.learner.decay)  # type: ignore[attr-defined]
            matrix.diagonal()[: len(x)].add_(pulled)
            state["factor"][row] = torch.linalg.cholesky(matrix)
            state["of"][row], state["pulled"][row] = count, pulled
        wanted = fits["target"][row] / count
        wanted[: len(x)] += (near - state["multipliers"][row]) / 2
        found = torch.cholesky_solve(wanted[:, None], state["factor"][row])[:, 0]
        state["x"][row], state["on"][row] = found[: len(x)], True
        post.stack.params[DICTIONARY][row] = found.view(model.read, -1)
        post.stack.moved[row] = True

    def carries(self, kind: str) -> Carries | None:
        return Carries(("models",)) if kind == "dictionary" else None

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        model = shape_of(world)
        return {
            DICTIONARY: Expected(torch.float32, (model.shared, model.inputs), least=-LARGE, most=LARGE),
            "pull": Expected(torch.float32, (1,), least=0.0, most=LARGE),
        }

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        return [Quote("dictionary", 1, numbers(self.expects(world, "dictionary", world.lanes[0]), 1))]


def flat(dictionary: Tensor, world: World) -> Tensor:
    """The atoms of a dictionary as it is sent, one after the other, in double precision."""
    return dictionary.flatten().double().to(world.device)


def shape_of(world: World) -> Factor:
    """The model of agents that agree on a dictionary."""
    assert isinstance(world.model, Factor), f"`{world.settings.model}` has no dictionary"
    return world.model
