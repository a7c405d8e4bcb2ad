"""How far an agent goes towards each of its neighbours: x_i + gamma sum_j w_ij (x_j - x_i), and its forms.

What a pair of agents differs in comes as a `Gap`, however it was learned: from whole models, from coded ones, from
copies that both keep, or as a product of low rank.

`weights = "mean"`, the default: w = 1/(1 + as many as came). `metropolis`: w = 1/(1 + the larger number of neighbours
of the two), which keeps the fleet's mean on any undirected graph (Xiao & Boyd 2004). `push-sum` (Kempe et al. 2003):
weights are averaged by masses that are sent along, which keeps the mean by mass on directed graphs; what was not let
out, a sender keeps, what is lost on the way is lost. Price: nothing, one number, one number per module. Not for
`combine` other than mean; push-sum not with `compress`.

D-PSGD (Lian et al. 2017) needs no mode: `learner.iterations=1000 learner.epochs=200 sharing.fedavg.every=1` averages
every 5 steps; Adam's moments stay local.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.learners.step import Tensors
from shoal.models.contract import body_units
from shoal.sharing.mode import Draft, Mode, Present, Received

MEAN, METROPOLIS, PUSH_SUM = "mean", "metropolis", "push-sum"


@dataclass(frozen=True)
class Gap:
    """What an agent would add to some of its modules to be where a neighbour is."""

    sender: int
    modules: Tensor  # int64 [m]
    values: Tensors  # [m, ...] by name, in double precision
    degree: int | None = None  # how many the neighbour sends to; None: all weigh the same


def told(tensors: Mapping[str, Tensor]) -> int | None:
    """How many the sender of a letter sends to, if it says so."""
    return int(tensors["degree"]) if "degree" in tensors else None


def degrees(mode: Mode, agent: Present) -> dict[str, Tensor]:
    """What an agent says of itself where weights depend on it: how many it sends to now."""
    if getattr(mode, "weights", "") != METROPOLIS:
        return {}
    return {"degree": torch.tensor([len(agent.neighbours)])}


def mixed(agent: Present, own: Tensors, gaps: Sequence[Gap], gamma: float) -> Tensors:
    """Where an agent goes to which something has come: its own weights (or other values) and, in the order of agents
    and in double precision, a part of each gap: 1 / (1 + as many as came), or Metropolis' 1 / (1 + the larger
    degree)."""
    if not gaps:
        return {}
    heard, found, degree = torch.zeros(body_units(agent.model), dtype=torch.float64), {}, len(agent.neighbours)
    for gap in gaps:
        heard[gap.modules] += 1
    for name, tensor in own.items():
        total = torch.zeros_like(tensor, dtype=torch.float64, device="cpu")
        for gap in sorted(gaps, key=lambda one: one.sender):
            if gap.degree is None:
                weight = 1 / (1 + heard[gap.modules])
            else:
                weight = torch.full(gap.modules.shape, 1 / (1 + max(gap.degree, degree))).double()
            total[gap.modules] += weight.view(-1, *[1] * (tensor.ndim - 1)) * gap.values[name]
        found[name] = (tensor.cpu().double() + gamma * total).float().to(agent.device)
    return found


def gap_to(letter: Received, theirs: Mapping[str, Tensor], own: Tensors, prefix: str = "") -> Gap:
    """The gap to a model that has come whole, from one's weights or from what one has sent of them, `own`."""
    at = theirs["modules"].long()
    values = {name: theirs[prefix + name].double() - tensor.cpu()[at].double() for name, tensor in own.items()}
    return Gap(letter.sender, at, values, told(theirs))


# Push-sum: averages on directed graphs


def offered(agent: Present) -> Tensor:
    """The part of its mass that an agent sends to each of those it sends to, [units]."""
    return agent.kept["mass"] / (1 + len(agent.neighbours))


def pushed(agent: Present, own: Tensors, letters: Sequence[Received]) -> Tensors:
    """Push-sum (Kempe et al. 2003): everybody keeps a part of its mass and sends the others away; a weight becomes the
    mean of one's own and those that came, by their masses. The sum of all masses stays, and so does the mean of all
    weights by mass, whichever way edges lead; what was not let out, a sender keeps."""
    mass, found = agent.kept["mass"].clone(), {}
    for sent in agent.sent("model").values():
        mass[sent.tensors["modules"].long()] -= sent.tensors["mass"]
    letters = sorted(letters, key=lambda one: one.sender)
    for letter in letters:
        mass.index_add_(0, letter["modules"].long(), letter["mass"])
    for name, tensor in own.items() if letters else ():
        before = tensor.cpu().double()
        total = torch.zeros_like(before)
        for letter in letters:
            at = letter["modules"].long()
            share = (letter["mass"] / mass[at]).view(-1, *[1] * (tensor.ndim - 1))
            total[at] += share * (letter[name].double() - before[at])
        found[name] = (before + total).float().to(agent.device)
    agent.keep(mass=mass)
    return found


def turn_of(agent: Present, to: int) -> int:
    """With which module an agent goes on to a neighbour to which not all modules went: that after the last one that has
    left or, if receivers confirm what they accept, after the last one confirmed."""
    if to in agent.told:
        return after(agent, agent.told[to])
    kept = agent.kept
    return int(kept["turn"][agent.slot(to)]) if "turn" in kept else 0


def after(agent: Present, receipt: Received) -> int:
    return (int(receipt["last"]) + 1) % body_units(agent.model)


def remember_turns(agent: Present, letters: Sequence[Received], confirmed: bool) -> None:
    """Remember with which module every edge goes on and, if receipts are wanted, what is to be confirmed."""
    count, kept = body_units(agent.model), agent.kept
    if confirmed:
        turns = {other: after(agent, receipt) for other, receipt in agent.told.items()}
    else:
        sent = agent.sent("model").items()
        left = {other: one.tensors["modules"] for other, one in sent if "modules" in one.tensors}
        turns = {other: (int(some[-1]) + 1) % count for other, some in left.items() if 0 < len(some) < count}
    if turns:
        every = kept["turn"].clone() if "turn" in kept else torch.zeros(agent.slots, dtype=torch.int64)
        for other, turn in turns.items():
            every[agent.slot(other)] = turn
        agent.keep(turn=every)
    if confirmed:
        owed = kept["owed"].clone() if "owed" in kept else torch.zeros(agent.slots, dtype=torch.int64)
        for other in agent.sent("receipt"):
            owed[agent.slot(other)] = 0
        for letter in letters:
            owed[agent.slot(letter.sender)] = 1 + int(letter["modules"][-1])
        agent.keep(owed=owed)


def receipts_owed(agent: Present) -> dict[int, Draft]:
    """Receipts for what has come at earlier exchanges: the last module of each letter that was accepted."""
    owed = agent.kept.get("owed")
    if owed is None:
        return {}
    last = {other: int(owed[agent.slot(other)]) - 1 for other in agent.neighbours}
    return {other: {"last": torch.tensor([module])} for other, module in last.items() if module >= 0}
