"""Accuracy: test and validation images through every lane's net, in pieces that fit the cache."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.engine import crew, parted
from shoal.agents.lanes import Split, streams_of
from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.agents.worlds import reader
from shoal.compiled import answers
from shoal.compiled.answers import Asks
from shoal.data.tasks import Lane, Task
from shoal.models import heads
from shoal.models.contract import Usage
from shoal.rng import key

OTHERS = 200  # test images of each task that only others have met


class Trained:
    """One lane's net as it is now, without dropout. It computes what the lane uses and no more."""

    def __init__(self, world: World, stack: Stack, lane: int, usage: Usage) -> None:
        """`usage` is how this lane uses its net."""
        self.world = world
        self.params = {name: tensor[lane] for name, tensor in stack.params.items()}
        self.known, self.usage = heads.parted(usage)
        self.learner = world.settings.learner
        self.kept = {name: tensor[lane] for name, tensor in stack.of(self.learner.owner).items()}

    def logits(self, rows: Tensor, task: int) -> Tensor:
        """Logits [n, K] of input rows [n] by the head of `task`."""
        return heads.closed(self.answer("logits", self.world.inputs, rows, task), self.known, task)

    def read(self, x: Tensor, task: int) -> Tensor:
        """Logits [n, K] of inputs x[n, ...] by the head of `task`."""
        return heads.closed(self.answer("logits", x, None, task), self.known, task)

    def features(self, x: Tensor, task: int) -> Tensor:
        """What the head of `task` would read for inputs x[n, ...]: [n, F]."""
        return self.answer("features", x, None, task)

    def answer(self, what: str, x: Tensor, rows: Tensor | None, task: int) -> Tensor:
        """The `logits` or `features` of some rows of inputs, or of all, by the net that answers for a task."""
        model, own = self.world.model, self.learner.answering(self.params, self.kept, task)
        # The compiled kernel has no gradients, which some ask for (`sharing.accept.slope`).
        if not self.world.unread and not any(one.requires_grad for one in own.values()):
            return answers.of_one(model, own, self.usage, what, x, rows, task)
        params, usage = model.composed(own, self.usage, task)
        chunks = x.split(model.chunk) if rows is None else (x[at] for at in rows.split(model.chunk))
        return torch.cat([getattr(model, what)(params, one, task, **usage) for one in chunks])

    def alike(self, tasks: Sequence[int]) -> list[list[int]]:
        """Tasks in groups of which all heads read the same features."""
        if not self.world.model.agnostic:
            return [[task] for task in tasks]
        usual = [self.learner.answering(self.params, self.kept, task) is self.params for task in tasks]
        same = [task for task, plain in zip(tasks, usual, strict=True) if plain]
        return [*([same] if same else []), *([task] for task in tasks if task not in same)]

    def logits_of(self, rows: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Logits [n, K] of the input rows [n] of each task by its head; what heads have in common is computed once."""
        found = {}
        for tasks in self.alike([*rows]):
            if len(tasks) == 1:
                found[tasks[0]] = self.logits(rows[tasks[0]], tasks[0])
                continue
            h = self.features(self.world.inputs[torch.cat([rows[task] for task in tasks])], tasks[0])
            for task, part in zip(tasks, h.split([len(rows[task]) for task in tasks]), strict=True):
                found[task] = heads.closed(heads.read(self.params, part, task), self.known, task)
        return found


def nets(world: World, stack: Stack, usage: Usage | None = None) -> list[Trained]:
    """Every lane's net as it is now; `usage` is how all lanes use theirs, as usual if it is not given."""
    if usage is None:
        usage = world.usage(stack.of(MODEL), stack.task)
    count = len(stack.lanes)
    return [Trained(world, stack, row, own) for row, own in enumerate(parted(usage, [1] * count, single=True))]


def together(world: World) -> bool:
    """Can the nets of many lanes be read by one call? Those must answer with the parameters that lanes have."""
    return not world.unread and not world.settings.learner.answers_apart


@torch.inference_mode()
def read_all(world: World, stack: Stack, what: str, asks: Asks) -> Tensor:
    """The `logits` [N, K] or `features` [N, F] of the nets of many lanes as they are now, where they can be read
    `together`: what a net says of an image depends on no other."""
    known, usage = heads.parted(world.usage(stack.of(MODEL), stack.task))
    share = answers.shares_of(world.model, stack.params, usage)
    found = answers.answered(world.model, stack.params, share, what, asks)
    if known is None or what != "logits":
        return found
    counts = torch.from_numpy(asks.counts)
    return found.masked_fill(~known[asks.lane, asks.task].repeat_interleave(counts, 0), heads.CLOSED)


def accuracy(world: World, stack: Stack, name: str, tasks: Sequence[int], usage: Usage | None = None) -> Tensor:
    """The share of right answers [L, len(tasks)] in the split `name`, each task with its own head, or R2 where numbers
    are predicted; NaN where a lane has no such task. `usage` is how all lanes use their nets, as usual if it is not
    given."""
    if usage is None:
        usage = world.usage(stack.of(MODEL), stack.task)
    pieces = stack.pieces(world)
    own = parted(usage, [len(piece.lanes) for piece, _ in pieces])
    work = [(*piece, part) for piece, part in zip(pieces, own, strict=True)]
    return torch.cat(crew(work, lambda one: accuracy_of(one[0], one[1], name, tasks, one[2])))


@torch.inference_mode()
def accuracy_of(world: World, stack: Stack, name: str, tasks: Sequence[int], usage: Usage) -> Tensor:
    """`accuracy` of one piece, lane after lane whatever the engine: the test images of one lane fill a core."""
    split: Split = getattr(world, name)
    right = torch.zeros(len(stack.lanes), len(tasks), dtype=torch.float64, device=world.device)
    for lane, net in enumerate(nets(world, stack, usage)):
        for column, task in enumerate(tasks):
            size = int(split.sizes[lane, task])
            if size:
                rows, labels = split.rows[lane, task, :size], split.labels[lane, task, :size]
                right[lane, column] = correct(net.logits(rows, task), labels)
    return right.cpu() / split.sizes[:, list(tasks)]


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """How many answers are right; of n numbers, n times R2 = 1 - (sum of squared errors) / (sum of squares around the
    mean), the mean over what is predicted. Of a number that is the same in all rows R2 is 0, or 1 if it is met."""
    if not labels.is_floating_point():
        return (logits.argmax(1) == labels).sum()
    wanted = labels.double()
    wrong = (logits - wanted).square().sum(0)
    spread = (wanted - wanted.mean(0)).square().sum(0)
    same = (labels == labels[0]).all(0)
    return len(labels) * torch.where(same, (wrong == 0).double(), 1 - wrong / spread.where(~same, 1)).mean()


@torch.inference_mode()
def within(fleet: Sequence[tuple[World, Stack]]) -> np.ndarray | None:
    """The mean accuracy [L] over a lane's tasks, where one head grows and yet the task of an image is told: of the
    outputs, those of the task alone count. None, where no head grows."""
    if fleet[0][0].settings.tasks.heads != "grow" or fleet[0][0].bank.targets is not None:
        return None
    found = []
    for world, stack in fleet:
        tasks = range(world.settings.tasks.count)
        usage = {**world.usage(stack.of(MODEL), stack.task), heads.OPEN: world.open}
        found.append(accuracy(world, stack, "test", tasks, usage).nanmean(1).numpy())
    return np.concatenate(found)


@torch.inference_mode()
def squared_error(fleet: Sequence[tuple[World, Stack]]) -> float | None:
    """The mean squared error at the end, over outputs, test rows, tasks and lanes, where numbers are predicted: in
    units of the variance of what a lane was trained on, so that always saying the mean costs about 1. None for
    classes."""
    found = []
    for world, stack in fleet:
        if world.bank.targets is None:
            return None
        for lane, net in enumerate(nets(world, stack)):
            for task in range(int(world.ends[lane])):
                size = int(world.test.sizes[lane, task])
                rows, wanted = (one[lane, task, :size] for one in (world.test.rows, world.test.labels))
                found.append(float((net.logits(rows, task) - wanted).double().square().mean()))
    return float(np.mean(found))


class Foreign(NamedTuple):
    """The accuracy of a lane on a task of another agent of its seed."""

    lane: Lane
    other: int
    task: int
    accuracy: float


class Question(NamedTuple):
    """A task of some agent, as test images that others can be asked about."""

    other: Lane
    at: int
    task: Task
    rows: np.ndarray  # of the bank
    labels: Tensor  # int64 [n]: places in the task's classes


class Seen(NamedTuple):
    """The images of some questions as a lane reads them, each once: many questions are about the same."""

    x: Tensor  # [N, ...]
    places: Mapping[tuple[Lane, int], np.ndarray]  # where those of a question are, by its agent and task

    @classmethod
    def by(cls, world: World, lane: Lane, asked: Sequence[Question]) -> "Seen":
        """What a lane reads of questions."""
        if not asked:
            return cls(world.inputs[:0], {})
        rows, places = np.unique(np.concatenate([one.rows for one in asked]), return_inverse=True)
        parts = np.split(places, np.cumsum([len(one.rows) for one in asked])[:-1])
        names = ((one.other, one.at) for one in asked)
        return cls(world.encode(world.images(rows), lane), dict(zip(names, parts, strict=True)))

    def images(self, one: Question) -> Tensor:
        """Those of one question."""
        return self.x[torch.from_numpy(self.places[one.other, one.at])]


@torch.inference_mode()
def others(fleet: Sequence[tuple[World, Stack]]) -> list[Foreign]:
    """Every lane on the tasks that only other agents of its seed have met, of whatever kind they are: combinations of
    classes new to it; of more than `tasks.strangers` so many at random.

    It has no head for them. For each class it asks the last of its own tasks that has the class how likely it is, and
    takes the likeliest; a class it never met is as likely as chance. If it met none of them its accuracy is chance.
    """
    first = fleet[0][0]
    if first.bank.targets is not None:
        return []
    asked = questions([world for world, _ in fleet])
    found: dict[Lane, list[Foreign]] = {lane: [] for lane in first.peers}
    for world, stack in fleet:
        modes = [mode for mode in world.settings.sharing if mode.solves]
        seen: tuple[Lane | None, Seen] = None, Seen.by(world, first.peers[0], [])
        for row, (lane, net) in enumerate(zip(world.lanes, nets(world, stack), strict=True)):
            met = {frozenset(task.classes) for task in world.streams[row]}
            every = asked.get(lane.seed, {})
            new = [one for classes, one in every.items() if classes not in met]
            if len(new) > world.settings.tasks.strangers:
                some = key(*lane, "strangers").permutation(len(new))[: world.settings.tasks.strangers]
                new = [new[at] for at in np.sort(some)]
            eyes = reader(lane, world.scales[row])
            if eyes != seen[0]:
                seen = eyes, Seen.by(world, lane, new if eyes == lane else [*every.values()])
            right = foreign(world, net, row, new, seen[1])
            for mode in modes:
                for at, one in enumerate(new):
                    told = mode.knows(world, stack, row, one.task.classes, seen[1].images(one))
                    if told is not None:
                        right[at] = float((told.argmax(1).cpu() == one.labels).double().mean())
            found[lane] = [Foreign(lane, one.other.agent, one.at, share) for one, share in zip(new, right, strict=True)]
    return [one for lane in first.peers for one in found[lane]]


def questions(worlds: Sequence[World]) -> dict[int, dict[frozenset[int], Question]]:
    """By seed and classes, the first task in the fleet that has just these: the same classes at another agent are the
    same question."""
    bank, streams, found = worlds[0].bank, streams_of(worlds), dict[int, dict[frozenset[int], Question]]()
    for lane in worlds[0].peers:
        known = found.setdefault(lane.seed, {})
        for at, task in enumerate(streams[lane]):
            classes = frozenset(task.classes)
            if classes and classes not in known:
                rows = sample(task)
                labels = torch.from_numpy(replace(task, outputs=task.classes).labels(bank, rows))
                known[classes] = Question(lane, at, task, rows, labels)
    return found


def sample(task: Task) -> np.ndarray:
    """Test images of a task, as rows of the bank. They lie in the order of the file; a step through all of them meets
    every class."""
    steps = torch.linspace(0, len(task.test) - 1, min(OTHERS, len(task.test))).long()
    rows: np.ndarray = task.test[steps.numpy()]
    return rows


def foreign(world: World, net: Trained, row: int, asked: Sequence[Question], seen: Seen) -> list[float]:
    """The accuracy of the lane at `row` on the samples of other lanes' tasks. Every head reads once each image that it
    is asked about."""
    if not asked:
        return []
    heads_of, most = np.full(len(world.bank.classes), -1), max(len(one.task.classes) for one in asked)
    for at, own in enumerate(world.streams[row]):
        heads_of[list(own.classes)] = at  # for each class the last own task that has it
    classes = np.array([[*one.task.classes, *[-1] * (most - len(one.task.classes))] for one in asked])
    sizes = np.array([len(one.rows) for one in asked])
    counts, which = (classes >= 0).sum(1), np.repeat(np.arange(len(asked)), sizes)
    head = np.where(classes >= 0, heads_of[classes], -1)
    image = np.concatenate([seen.places[one.other, one.at] for one in asked])
    likely = np.where(classes >= 0, 1 / counts[:, None], -np.inf).astype(np.float32)[which]
    for own in np.unique(head[head >= 0]).tolist():
        questions, columns = (head == own).nonzero()
        here = np.zeros(len(seen.x), bool)
        here[image[np.isin(which, questions)]] = True
        place = here.cumsum() - 1
        said = net.read(seen.x[torch.from_numpy(here.nonzero()[0])], own).softmax(1).cpu().numpy()
        for column in np.unique(columns).tolist():
            mine = np.flatnonzero((head[:, column] == own)[which])
            known = world.outputs[row, own, classes[which[mine], column]]
            likely[mine, column] = said[place[image[mine]], known]
    right = torch.from_numpy(likely).argmax(1) == torch.cat([one.labels for one in asked])
    share = np.bincount(which, right.numpy(), len(asked)) / sizes
    found: list[float] = np.where((head >= 0).any(1), share, 1 / counts).tolist()
    return found
