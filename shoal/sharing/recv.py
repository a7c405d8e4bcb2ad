"""Recv: receivers ask for images like those they find hard; senders answer with their nearest
(docs/protocol.md, section 6)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.evaluate import Trained, nets
from shoal.fleet.world import World
from shoal.learners import received
from shoal.learners.received import Arrived
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, TOO_MANY, Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.models import dropout
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.contract import Sharing
from shoal.sharing.images import Held, classes_of, classes_only, held, ids, images_of, per_lane, replies, store
from shoal.sharing.simp import sorted_in

Scorer = Literal["cross-entropy", "confidence", "margin", "entropy", "random"]


class Query(NamedTuple):
    """A validation image that its lane finds hard."""

    row: int  # in the bank
    label: int  # global
    task: int
    local: int  # the label in that task


class Recv(Sharing):
    """Receiver-initiated sharing of images."""

    both_ways: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = (received.OWNER, dropout.OWNER)
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "queries": 6, "nearest": 3, "memory": 12}
    mode: Literal["recv"] = "recv"
    every: PositiveInt = Field(16, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("after", description="exchange before or after every so many epochs")
    queries: PositiveInt = Field(20, description="hard validation images sent to every neighbour")
    nearest: PositiveInt = Field(5, description="images that a neighbour returns for each")
    memory: PositiveInt = Field(32, description="received images kept per task")
    scorer: Scorer = Field(
        "cross-entropy",
        description="what is hard: loss, low confidence, small margin, high entropy; or any image at random",
    )
    scope: Literal["all", "current"] = Field("all", description="queries are from all tasks so far, or the current one")
    prefilter: Literal["label", "none"] = Field(
        "label", description="label: the query's class is sent too, and only tasks that have it are searched"
    )
    receive: Literal["class", "none"] = Field(
        "class", description="class: an image's class is sent too; it is kept if the query's task has that class"
    )
    labels: Literal["true", "query"] = Field("true", description="received images have their own label, or the query's")
    buffer: Literal["reservoir", "replace"] = Field(
        "reservoir", description="a full buffer keeps all with equal chance, or always takes the new image"
    )
    oldest: NonNegativeInt = Field(0, description="senders search their tasks from this one on")
    leak: bool = Field(False, description="after answering once, train without dropout for good (the paper's code did)")

    @property
    def room(self) -> int:
        return self.memory

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings)
        if self.labels == "true" and self.receive == "none":
            raise SettingsError(
                'sharing.recv.labels = "true" needs the labels that receive = "none" does not send; '
                'use labels = "query" or receive = "class"'
            )

    def objects(self, post: Post, mail: Mail) -> str:
        """An answer is to images that its receiver has asked about, and has so many for each."""
        if mail.kind == "question" or not len(mail.payload["queries"]):
            return ACCEPTED
        asked, count = post.asked(mail), mail.payload["queries"].bincount()
        if asked is None or len(count) > len(asked.payload["images"]):
            return OUT_OF_RANGE
        return ACCEPTED if int(count.max()) <= self.nearest else TOO_MANY

    def ask(self, post: Post) -> list[Mail]:
        """Every lane's hardest validation images, to all its neighbours."""
        world, net = post.world, nets(post.world, post.stack)
        found = per_lane(world, lambda lane: hardest(self, post, lane, net) if post.out(lane) else [])
        post.notes.update(found)
        mails = []
        for lane in world.lanes:
            images = world.images(np.array([query.row for query in found[lane]], np.int64))
            labels = ids([query.label for query in found[lane]])
            for other in post.out(lane):
                layout = self.expects(world, "question", other)
                count = fitting(self.queries, layout, self.part(post.left(lane, other)))
                payload = {"images": images[:count]}
                if self.prefilter == "label":
                    payload["labels"] = labels[:count]
                mails.append(post.mail(lane, other, "question", payload, len(payload["images"])))
        return mails

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """For every question the sender's own images that are nearest to its images."""
        net = nets(post.world, post.stack)
        return replies(post.world, questions, lambda lane, mine: self.search(post, lane, mine, net))

    def search(self, post: Post, lane: Lane, questions: Sequence[Mail], net: Sequence[Trained]) -> list[Mail]:
        """One lane's answers to all that have asked it."""
        world, stack, row = post.world, post.stack, post.world.row[lane]
        own = held(world, stack, row)
        asked = torch.cat([question.payload["images"] for question in questions])
        x = world.encode(asked, lane)
        admissible = self.admissible(world, row, stack.task, questions)
        near, place = nearness(self.nearest, net[row], x, own, admissible)
        mails, first = [], 0
        for question in questions:
            count = len(question.payload["images"])
            mine = slice(first, first + count)
            first += count
            # By rank, then by query: if not all fits the budget, every query still gets its nearest.
            rank, query = near[mine].T.isfinite().nonzero(as_tuple=True)
            layout = self.expects(world, "answer", question.sender)
            fits = fitting(len(query), layout, post.left(lane, question.sender))
            at = place[mine][query[:fits], rank[:fits]].numpy()
            payload = {"images": world.images(own.rows[at]), "queries": query[:fits].int()}
            if self.receive == "class":
                payload["labels"] = ids(own.labels[at])
            mails.append(post.reply(question, "answer", payload, len(at)))
        return mails

    def admissible(self, world: World, row: int, task: int, questions: Sequence[Mail]) -> Tensor:
        """Which of the lane's tasks are searched for which query: bool [queries, task + 1]."""
        count = sum(len(question.payload["images"]) for question in questions)
        searched = (torch.arange(task + 1) >= self.oldest).expand(count, -1)
        if self.prefilter == "none":
            return searched
        labels = torch.cat([question.payload["labels"] for question in questions])
        has = torch.zeros(len(world.bank.classes), task + 1, dtype=torch.bool)
        for own, one in enumerate(world.streams[row][: task + 1]):
            has[list(one.classes), own] = True
        return searched & has[labels.long()]

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Keep what fits a task in that task's buffer. Which images a late answer was asked for with is not remembered:
        it is sorted in by its classes, if they were sent."""
        world = post.world
        for lane, mails in by_receiver(answers).items():
            queries: list[Query] = post.notes[lane]
            arrived = []
            for mail in mails:
                if post.asked(mail) is None:
                    arrived += sorted_in(post, lane, [mail]) if "labels" in mail.payload else []
                    continue
                images, origin = mail.payload["images"], mail.payload["queries"].tolist()
                labels = mail.payload["labels"].tolist() if "labels" in mail.payload else [None] * len(origin)
                for image, at, label in zip(images, origin, labels, strict=True):
                    query = queries[at]
                    wanted = world.streams[world.row[lane]][query.task]
                    if label is not None and label not in wanted.classes:
                        continue
                    local = query.local if self.labels == "query" else wanted.outputs.index(label)
                    arrived.append(Arrived(image, local, query.task))
            store(post, lane, arrived, self.buffer, once=False)
        if self.leak:
            for question in questions:
                dropout.switch_off(post.stack.of(dropout.OWNER)["off"], [world.row[question.receiver]])

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        expected = {"images": images_of(world)}
        if kind == "question":
            return expected | ({"labels": classes_of(world)} if self.prefilter == "label" else {})
        expected["queries"] = Expected(torch.int32, (None,), self.queries)
        return expected | ({"labels": classes_of(world)} if self.receive == "class" else {})

    def part(self, room: Room) -> Room:
        """A question's part of an edge's room: the answer to a question in the other direction must fit too."""
        return room.part(self.nearest + 1)

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        question, answer = (self.expects(world, kind, world.lanes[0]) for kind in ("question", "answer"))
        queries = fitting(self.queries, question, self.part(room))
        # The answer is to a question in the other direction, which may have had more room; and the less there is for
        # one's own question, the more it leaves: at least one image is asked about.
        items = fitting(self.queries * self.nearest, answer, room.less(question, 1))
        return [Quote("question", queries, numbers(question, queries)), Quote("answer", items, numbers(answer, items))]


def hardest(mode: Recv, post: Post, lane: Lane, net: Sequence[Trained]) -> list[Query]:
    """A lane's hardest validation images, the hardest first."""
    world, stack, row = post.world, post.stack, post.world.row[lane]
    trained, split = net[row], world.validation
    scores, places = [], []
    for task in range(stack.task + 1) if mode.scope == "all" else [stack.task]:
        size = int(split.sizes[row, task])
        logits = trained.logits(split.rows[row, task, :size], task)
        rng = key(*lane, "recv", stack.task, stack.epoch, task)
        scores.append(score(mode.scorer, logits, split.labels[row, task, :size], rng).cpu())
        places += [(task, at) for at in range(size)]
    order = torch.cat(scores).argsort(dim=0, descending=True, stable=True)[: mode.queries].tolist()
    found = []
    for task, at in (places[one] for one in order):
        origin = int(world.streams[row][task].validation[at])
        found.append(
            Query(origin, int(world.bank.labels[world.bank.base(origin)]), task, int(split.labels[row, task, at]))
        )
    return found


def score(scorer: str, logits: Tensor, labels: Tensor, rng: np.random.Generator) -> Tensor:
    """How hard images are, [n], by logits [n, K] and labels [n]; larger is harder (Settles 2009).

    cross-entropy -log p(y); confidence -max p; margin -(p1 - p2) of the two largest; entropy -sum p log p.
    """
    if scorer == "random":
        return torch.from_numpy(rng.random(len(logits)))
    if scorer == "cross-entropy":
        return F.cross_entropy(logits, labels, reduction="none")
    log = logits.log_softmax(1)
    if scorer == "entropy":
        return -(log.exp() * log).sum(1)
    top = log.exp().topk(2, 1).values
    return -top[:, 0] if scorer == "confidence" else top[:, 1] - top[:, 0]


def nearness(count: int, net: Trained, x: Tensor, own: Held, admissible: Tensor) -> tuple[Tensor, Tensor]:
    """For each query x[n] the `count` nearest of a lane's own images by the cosine of features, each task with its own:
    similarities [n, count], -inf where there is no admissible image, and places in `own` [n, count] (or fewer)."""
    similar = torch.full((len(x), len(own.rows)), -torch.inf)
    for task in range(admissible.shape[1]):
        asked, here = admissible[:, task].nonzero().squeeze(1), np.flatnonzero(own.task == task)
        if not len(asked) or not len(here):
            continue
        theirs, mine = F.normalize(net.features(x[asked], task)), F.normalize(net.features(own.x[here], task))
        similar[asked[:, None], torch.from_numpy(here)] = (theirs @ mine.T).cpu()
    best = similar.topk(min(count, similar.shape[1]), 1)
    return best.values, best.indices
