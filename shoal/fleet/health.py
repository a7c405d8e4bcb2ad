"""Health: a lane that diverges ends alone, and what tells that a lane has learned nothing.

A lane has ended when its weights, Adam's moments or its training loss are no finite numbers any more. Its record says
when and why. From there on it is silent: it sends nothing, takes nothing, is measured no more, and its weights and
moments are zero, so that what is no number is never saved. Its row stays where it is and goes through the same kernels,
because a stack of another shape could give other lanes other bits; what that comes to is forgotten after every epoch.
All other lanes go on as if it had fallen silent. What means over agents make of it is said in `shoal.agents.ends`.
"""

from collections.abc import Iterable, Sequence
from math import isfinite

import torch
from torch import Tensor

from shoal.agents.ends import CAUSES, End, ended
from shoal.agents.engine import crew
from shoal.agents.evaluate import nets
from shoal.agents.stack import MEAN, PARAMS, RECORD, STEPS, VAR, Stack
from shoal.agents.world import World
from shoal.errors import UserError
from shoal.learners.loss import errors
from shoal.settings.groups import Settings

ENDED = "receiver has ended"  # the verdict on mail for a lane that has
WORDS = ("", *CAUSES)  # the causes by their number in the record
WEIGHTS, MOMENTS, LOSS = (WORDS.index(word) for word in ("weights", "moments", "loss"))


class DivergedError(UserError):
    """All lanes have ended, and the run with them. `stacks` are as they were then."""

    stacks: tuple[Stack, ...] = ()


def ends(stack: Stack) -> list[End]:
    """Which lanes have ended, when and why."""
    found = zip(stack.lanes, stack.ended.tolist(), strict=True)
    return [End(*lane, task, epoch, WORDS[why]) for lane, (task, epoch, why) in found if task]


def told(stack: Stack, sites: Sequence[str] = ()) -> list[str]:
    """Which lanes have ended, when and why, in sentences."""
    return ended(ends(stack), sites)


def examine(stack: Stack, whole: bool = False) -> None:
    """End lanes whose weights are no finite numbers, and silence those that have ended; `whole` looks at Adam's moments
    too, which costs as much again: one that is infinite only keeps a weight from moving."""
    conclude(stack, unfit(stack, (PARAMS,)), WEIGHTS)
    if whole:
        conclude(stack, unfit(stack, (MEAN, VAR)), MOMENTS)
    silence(stack)


def unfit(stack: Stack, owners: Sequence[str]) -> Tensor:
    """Which lanes have a number that is not finite in what some owners keep: bool [L], on the host."""
    tensors = [tensor for owner in owners for tensor in stack.states[owner].values() if tensor.is_floating_point()]
    # A sum is quick, and not finite if anything in it is not; if large numbers have made it so, a second look tells.
    bad = torch.zeros(len(stack.lanes), dtype=torch.bool)
    if all(isfinite(tensor.sum().item()) for tensor in tensors):
        return bad
    for row in range(len(bad)):
        bad[row] = not all(bool(tensor[row].isfinite().all()) for tensor in tensors)
    return bad


def conclude(stack: Stack, bad: Tensor, why: int) -> None:
    """Write into the records of lanes [L] that they have ended now, if they had not before."""
    if bad.any() and (new := bad & ~stack.gone).any():
        record = stack.ended.clone()
        record[new] = torch.tensor([stack.task + 1, stack.epoch, why])
        stack.of(RECORD)["ended"] = record


def silence(stack: Stack) -> None:
    """Forget what lanes that have ended learned and received."""
    gone = stack.gone
    if not gone.any():
        return
    for owner in (PARAMS, MEAN, VAR, STEPS):
        for tensor in stack.states[owner].values():
            tensor[gone.to(tensor.device)] = 0
    stack.inbox.forget(stack.silent)


def judge(world: World, stack: Stack) -> None:
    """Note, at the end of a task, the loss that each lane has on its training images, that of guessing, and the norm of
    its weights, and end lanes whose loss is no finite number. The initial tasks are learned, and judged, together."""
    initial, task = world.settings.tasks.initial, stack.task
    if task < initial - 1:
        return
    tasks = list(range(initial)) if task == initial - 1 else [task]
    told = stack.of(RECORD)["training"]
    work = stack.pieces(world)
    told[:, tasks, :2] = torch.cat(crew(work, lambda piece: losses(*piece, tasks)))
    told[:, tasks, 2] = norms(stack)[:, None]
    there = world.ends[:, None] > torch.tensor(tasks)
    unsaid = ~there | stack.gone[:, None]
    told[:, tasks] = told[:, tasks].masked_fill(unsaid[:, :, None], torch.nan)
    conclude(stack, (~told[:, tasks, 0].isfinite() & ~unsaid).any(1), LOSS)


@torch.inference_mode()
def losses(world: World, stack: Stack, tasks: Sequence[int]) -> Tensor:
    """The mean loss of every lane of a piece on the training images of some tasks, without dropout, and that of
    guessing: [L, len(tasks), 2]. Who guesses takes all classes for equally likely, or says the mean of all numbers."""
    split, classes = world.train, stack.of(RECORD)["classes"]
    found = torch.full((len(stack.lanes), len(tasks), 2), torch.nan)
    for lane, net in enumerate(nets(world, stack)):
        for column, task in enumerate(tasks):
            size = int(split.sizes[lane, task])
            if not size:
                continue
            rows, wanted = split.rows[lane, task, :size], split.labels[lane, task, :size]
            found[lane, column, 0] = errors(net.logits(rows, task), wanted).double().mean()
            if wanted.is_floating_point():
                found[lane, column, 1] = errors(wanted.double().mean(0), wanted.double()).mean()
            else:
                found[lane, column, 1] = classes[lane, task].double().log()
    return found


def norms(stack: Stack) -> Tensor:
    """The norm of all weights of every lane: [L], on the host."""
    squares = [torch.linalg.vector_norm(one.flatten(1), dim=1).double().square() for one in stack.params.values()]
    return torch.stack(squares).sum(0).sqrt().float().cpu()


def gone_all(found: Iterable[End], settings: Settings, sites: Sequence[str] = ()) -> DivergedError:
    """What is said when no lane is left."""
    last = ended([max(found, key=lambda end: (end.task, end.epoch))], sites)[0]
    who = "all agents have diverged" if settings.agents * settings.seeds > 1 else "the agent has diverged"
    rates = sorted({settings.of(name).learner.rate for name in settings.members()})
    advice = f"learner.rate ({' or '.join(map(repr, rates))}) may be too high, or the data badly scaled"
    more = ", or what they sent each other too large" if settings.sharing else ""
    return DivergedError(f"{who}, and the run ends; the last: {last}; {advice}{more}")
