"""CoLLA: agents agree on one dictionary without showing a task, by ADMM (Rostami et al. 2018)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.letters.letter import Letter
from shoal.letters.mail import Expected
from shoal.models.factor import DICTIONARY, Factor
from shoal.models.families import family
from shoal.models.table import CLOSED
from shoal.settings.groups import Settings
from shoal.sharing.mode import Draft, Mode, Present, Received

LARGE = 1e6  # no number that is sent is larger
FITS = "ella"  # whose normal equations are solved


class CoLLA(Mode):
    """Agreement on a dictionary: everybody sends its shared atoms in every epoch, and moves towards what fits the tasks
    of all.

    *Source:* CoLLA (Rostami et al. 2018); atoms of one's own (`net.private`) after Mohammadi & Kolouri (2019).

    *Formula:* with A_i x = b_i the normal equations of agent i's T_i fits (learner `ella`), in every epoch p_i += Σ_j
    c_ij (x_i − x_j) and x_i = (A_i/T_i + (decay + Σ_j c_ij) I)⁻¹ (b_i/T_i − p_i/2 + Σ_j c_ij (x_i + x_j)/2), over the
    neighbours j that were heard; the fixed point is the dictionary of all agents' tasks together. `learner.epochs` (20)
    is the number of rounds per task.

    *Price:* D · atoms + 1 in each round.

    *Changed:* all agents at once; the pull c_ij is the mean of what both ends say, `pull` times the mean diagonal of
    A_i/T_i over the number of neighbours. If mail is lost, the multipliers of two ends no longer cancel, and the
    agreement is near that of all, not at it (0.19 to 0.44 of its length with a fifth lost, where it is below 0.02
    without; `tests/sharing/test_colla.py`). Only agents whose rows mean the same can agree, and only tasks whose codes
    hold every direction of the dictionary.
    """

    between: ClassVar[str] = "agents of model factor with the same net.basis"
    mode: Literal["colla"] = "colla"
    every: PositiveInt = Field(1, description="epochs between rounds")
    when: Literal["after"] = Field("after", description="exchange after every so many epochs")
    pull: PositiveFloat = Field(
        0.5, description="how hard agents pull at each other, in units of how well their own tasks hold the atoms"
    )

    def suits(self, settings: Settings) -> None:
        if family(settings) != CLOSED:
            raise SettingsError(
                f"mode `colla` agrees on a dictionary, and `{settings.model}` has none; use model = "
                '"factor", or share by another mode'
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        return super().fits(sender, receiver) and sender.net.shape == receiver.net.shape

    def init(self, world: World) -> dict[str, Tensor]:
        """The last atoms `x` that were agreed on, if any were (`agreed`); the multipliers; and a factor of the normal
        equations, for as long as fits and neighbours stay the same."""
        model, lanes = shape_of(world), len(world.lanes)
        size = model.inputs * model.read

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(lanes, *shape, dtype=torch.float64, device=world.device)

        return {
            "x": zeros(model.inputs * model.shared),
            "multipliers": zeros(model.inputs * model.shared),
            "factor": zeros(size, size),
            "pulled": zeros(),
            "of": torch.zeros(lanes, dtype=torch.int64),
            "agreed": torch.zeros(lanes, dtype=torch.bool),
        }

    @property
    def letters(self) -> Mapping[str, Letter]:
        pull = Expected(torch.float32, (1,), least=0.0, most=LARGE)
        return {"dictionary": Letter({DICTIONARY: atoms_of, "pull": pull}, 1, ("models",), alike=True)}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:
        """Its shared atoms, if it has fitted anything, and how hard it pulls."""
        return self.told(agent) if agent.state_of(FITS)["count"] else None

    def told(self, agent: Present) -> dict[str, Tensor]:
        """What an agent sends in a round. The same numbers count for itself: what two agents make of each other cancels
        out."""

        def find() -> dict[str, Tensor]:
            kept, fits, atoms = agent.kept, agent.state_of(FITS), agent.weights[DICTIONARY]
            if kept["agreed"]:  # what a new task has made of them since is in the normal equations
                atoms = kept["x"].view_as(atoms)
            held = fits["gram"].diagonal()[: atoms.numel()].mean() / fits["count"]
            pull = self.pull * held / max(1, agent.links)
            return {DICTIONARY: atoms.float().cpu().clone(), "pull": pull[None].float().cpu()}

        return agent.once("told", find)

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """One round of ADMM, if it was told anything; who was not heard does not count in it."""
        kept, fits = agent.kept, agent.state_of(FITS)
        count = int(fits["count"])
        if not letters or not count:
            return
        mine, where = self.told(agent), kept["x"].device
        x, pull = flat(mine[DICTIONARY], where), float(mine["pull"])
        far, near, pulled = torch.zeros_like(x), torch.zeros_like(x), 0.0
        for letter in sorted(letters, key=lambda one: one.sender):
            theirs, both = flat(letter[DICTIONARY], where), (pull + float(letter["pull"])) / 2
            far += both * (x - theirs)
            near += both * (x + theirs)
            pulled += both
        multipliers, factor = kept["multipliers"] + far, kept["factor"]
        if (count, pulled) != (int(kept["of"]), float(kept["pulled"])):
            matrix = fits["gram"] / count
            matrix.diagonal().add_(agent.settings.learner.decay)  # type: ignore[attr-defined]
            matrix.diagonal()[: len(x)].add_(pulled)
            factor = torch.linalg.cholesky(matrix)
        wanted = fits["target"] / count
        wanted[: len(x)] += (near - multipliers) / 2
        found = torch.cholesky_solve(wanted[:, None], factor)[:, 0]
        agent.keep(x=found[: len(x)], multipliers=multipliers, factor=factor, agreed=torch.tensor(True))
        agent.keep(of=torch.tensor(count), pulled=torch.tensor(pulled, dtype=torch.float64))
        agent.become({DICTIONARY: found.view(-1, mine[DICTIONARY].shape[1])})


def atoms_of(world: World) -> Expected:
    """What shared atoms in a letter look like."""
    model = shape_of(world)
    return Expected(torch.float32, (model.shared, model.inputs), least=-LARGE, most=LARGE)


def flat(atoms: Tensor, where: torch.device) -> Tensor:
    """The atoms of a dictionary as it is sent, one after the other, in double precision."""
    return atoms.flatten().double().to(where)


def shape_of(world: World) -> Factor:
    """The model of agents that agree on a dictionary."""
    assert isinstance(world.model, Factor), f"`{world.settings.model}` has no dictionary"
    return world.model
