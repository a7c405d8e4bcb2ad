"""How far an agent goes towards each of its neighbours: x_i + gamma sum_j w_ij (x_j - x_i), and its forms.

What a pair of agents differs in comes as a `Gap`, however it was learned: from whole models, from coded ones, from
copies that both keep, or as a product of low rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.learners.step import Tensors
from shoal.letters.mail import Mail, by_receiver
from shoal.mail.post import Post
from shoal.models.contract import body_units

MEAN, METROPOLIS, PUSH_SUM = "mean", "metropolis", "push-sum"


@dataclass(frozen=True)
class Gap:
    """What an agent would add to some of its modules to be where a neighbour is."""

    sender: Lane
    modules: Tensor  # int64 [m]
    values: Tensors  # [m, ...] by name, in double precision
    degree: int | None = None  # how many the neighbour sends to; None: all weigh the same


def degree(post: Post, lane: Lane) -> int:
    """How many a lane sends to now."""
    return len(post.out(lane))


def told(mail: Mail) -> int | None:
    """How many the sender of a mail sends to, if it says so."""
    return int(mail.payload["degree"]) if "degree" in mail.payload else None


def mixed(
    post: Post, gaps: Mapping[Lane, Sequence[Gap]], gamma: float, values: Tensors | None = None
) -> tuple[Tensor, Tensors]:
    """Where the rows to which something has come go, [R, units, ...]: their own weights (or other `values`) and, in the
    order of agents and in double precision, a part of each gap: 1 / (1 + as many as came), or Metropolis' 1 / (1 + the
    larger degree)."""
    world, stack, count = post.world, post.stack, body_units(post.world.model)
    names = tuple(world.model.body)
    rows: list[int] = []
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for lane, mine in gaps.items():
        row = world.row[lane]
        rows.append(row)
        heard = torch.zeros(count, dtype=torch.float64)
        for gap in mine:
            heard[gap.modules] += 1
        for name in names:
            own = (stack.params if values is None else values)[name][row, :count].cpu()
            total = torch.zeros_like(own, dtype=torch.float64)
            for gap in sorted(mine, key=lambda one: one.sender):
                if gap.degree is None:
                    weight = 1 / (1 + heard[gap.modules])
                else:
                    weight = torch.full(gap.modules.shape, 1 / (1 + max(gap.degree, degree(post, lane)))).double()
                total[gap.modules] += weight.view(-1, *[1] * (own.ndim - 1)) * gap.values[name]
            found[name].append((own.double() + gamma * total).float())
    now = {name: stack.params[name][:0, :count] for name in names}
    stacked = {name: torch.stack(one).to(world.device) if one else now[name] for name, one in found.items()}
    return torch.tensor(rows, dtype=torch.int64), stacked


def plain_gaps(
    post: Post, answers: Sequence[Mail], own: Tensors | None = None, prefix: str = ""
) -> dict[Lane, list[Gap]]:
    """The gaps to models that have come whole, from one's weights or from what one has sent of them, `own`."""
    world, count = post.world, body_units(post.world.model)
    found: dict[Lane, list[Gap]] = {}
    for lane, mails in by_receiver(answers).items():
        row = world.row[lane]
        for mail in mails:
            at = mail.payload["modules"].long()
            values = {}
            for name in world.model.body:
                here = (post.stack.params[name][:, :count] if own is None else own[name])[row].cpu()
                values[name] = mail.payload[prefix + name].double() - here[at].double()
            found.setdefault(lane, []).append(Gap(mail.sender, at, values, told(mail)))
    return found


# Push-sum: averages on directed graphs


def shares(post: Post) -> Tensor:
    """What each module of each lane weighs, [L, units], in double precision: one, until something was sent."""
    state = post.stack.of(post.mode.owner)
    if "mass" in state:
        return state["mass"]
    return torch.ones(len(post.stack.lanes), body_units(post.world.model), dtype=torch.float64)


def offered(post: Post, row: int, lane: Lane) -> Tensor:
    """The part of its mass that a lane sends to each of those it sends to, [units]."""
    return shares(post)[row] / (1 + degree(post, lane))


def pushed(post: Post, answers: Sequence[Mail]) -> tuple[Tensor, Tensors]:
    """Push-sum (Kempe et al. 2003): everybody keeps a part of its mass and sends the others away; a weight becomes the
    mean of one's own and those that came, by their masses. The sum of all masses stays, and so does the mean of all
    weights by mass, whichever way edges lead; what was not let out, a sender keeps."""
    world, stack, count = post.world, post.stack, body_units(post.world.model)
    names = tuple(world.model.body)
    mass = shares(post).clone()
    for mail in post.sent.values():
        if mail.kind == "model":
            mass[world.row[mail.sender], mail.payload["modules"].long()] -= mail.payload["mass"]
    rows: list[int] = []
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for lane, mails in by_receiver(answers).items():
        row = world.row[lane]
        rows.append(row)
        for mail in sorted(mails, key=lambda one: one.sender):
            mass[row].index_add_(0, mail.payload["modules"].long(), mail.payload["mass"])
        for name in names:
            own = stack.params[name][row, :count].cpu().double()
            total = torch.zeros_like(own)
            for mail in sorted(mails, key=lambda one: one.sender):
                at = mail.payload["modules"].long()
                share = (mail.payload["mass"] / mass[row, at]).view(-1, *[1] * (own.ndim - 1))
                total[at] += share * (mail.payload[name].double() - own[at])
            found[name].append((own + total).float())
    stack.of(post.mode.owner)["mass"] = mass
    now = {name: stack.params[name][:0, :count] for name in names}
    stacked = {name: torch.stack(one).to(world.device) if one else now[name] for name, one in found.items()}
    return torch.tensor(rows, dtype=torch.int64), stacked
