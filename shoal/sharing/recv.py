"""Recv: receivers ask for images like those they find hard; senders answer with their nearest
(docs/protocol.md, section 6)."""

from collections.abc import Mapping, Sequence
from functools import partial
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
from shoal.learners.received import Arrived, digest
from shoal.mail.bundle import Bundle
from shoal.mail.mail import ACCEPTED, EXPIRED, OUT_OF_RANGE, TOO_MANY, Expected, Mail, by_receiver, identify
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.models import dropout
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.settings.part import LATER
from shoal.sharing.accept import NO_HELP, Accept, accepting, helps
from shoal.sharing.contract import Carries, Late, Sharing
from shoal.sharing.images import Held, classes_of, classes_only, held, ids, images_of, per_lane, put, replies, store
from shoal.sharing.search import NOTHING_NEAR, Near, Queries, at_once, closest, joined, ranked

Scorer = Literal["cross-entropy", "confidence", "margin", "entropy", "random"]


class Hard(NamedTuple):
    """The validation images that a lane finds hard, the hardest first: int64 [n] each."""

    rows: np.ndarray  # in the bank
    labels: np.ndarray  # global
    task: np.ndarray
    local: np.ndarray  # the label in that task


ASKED = 4  # exchanges for which a lane remembers what it has asked
NONE = Hard(*np.zeros((4, 0), np.int64))


class Recv(Sharing):
    """Receiver-initiated sharing of images."""

    both_ways: ClassVar[bool] = True
    late: ClassVar[Mapping[str, Late]] = {"answer": "all"}
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
    accept: Accept = accepting("the images of a sender that help")
    leak: bool = Field(False, description="after answering once, train without dropout for good (the paper's code did)")
    own_validation: Literal["keep", "drop"] = Field(
        "keep",
        description="received images that are among the receiver's own validation images are learned, or left out",
        json_schema_extra=LATER,
    )

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

    def carries(self, kind: str) -> Carries | None:
        said = {"question": self.prefilter == "label", "answer": self.receive == "class"}
        return Carries(("images",), "labels" if said[kind] else "") if kind in said else None

    def objects(self, post: Post, mail: Mail) -> str:
        """An answer is to images that its receiver has asked about, and has so many for each."""
        if mail.kind == "question":
            return ACCEPTED
        asked, earlier = post.asked(mail), remembered(post, mail)
        if asked is None and post.was_late(mail) and earlier is None:
            return EXPIRED
        count = mail.payload["queries"].bincount()
        known = len(asked.payload["images"]) if asked is not None else len(earlier.task) if earlier is not None else 0
        if len(count) > known:
            return OUT_OF_RANGE
        if len(count) and int(count.max()) > self.nearest:
            return TOO_MANY
        unwanted = self.accept == "helps" and not helps(post, mail.receiver, self.sorted_in(post, mail))
        return NO_HELP if unwanted else ACCEPTED

    def welcomes(self, post: Post, bundle: Bundle) -> bool:
        """Of answers, each is to a question of its receiver, and has so many images for each that was asked about."""
        if type(self).objects is not Recv.objects or bundle.kind == "question":
            return type(self).objects is Recv.objects
        asked, root = post.lots.get("question"), bundle.links.root
        if self.accept != "all" or asked is None or asked.links.root is not root:
            return False
        back = root.back[bundle.links.places]
        if (back < 0).any():
            return False
        count = np.zeros(len(root), np.int64)
        count[asked.links.places] = asked.items
        one, which = bundle.spread
        queries = bundle.content["queries"].numpy()[which]
        if (queries >= count[back][one]).any():
            return False
        return int(np.bincount(one * self.queries + queries, minlength=1).max()) <= self.nearest

    def ask(self, post: Post) -> Sequence[Mail]:
        """Every lane's hardest validation images, to all its neighbours."""
        world = post.world
        if at_once(world) and self.scorer != "random":
            found = hardest_all(self, post)
        else:
            net = nets(world, post.stack)
            found = per_lane(world, lambda lane: hardest(self, post, lane, net) if post.out(lane) else NONE)
        post.notes.update(found)
        if post.free:
            return self.ask_all(post, [found[lane] for lane in world.lanes])
        mails = []
        for lane in world.lanes:
            images, labels = world.images(found[lane].rows), ids(found[lane].labels)
            for other in post.out(lane):
                layout = self.expects(world, "question", other)
                count = fitting(self.queries, layout, self.part(post.left(lane, other)))
                payload = {"images": images[:count]}
                if self.prefilter == "label":
                    payload["labels"] = labels[:count]
                mails.append(post.mail(lane, other, "question", payload, len(payload["images"])))
        return mails

    def ask_all(self, post: Post, found: Sequence[Hard]) -> Bundle:
        """The questions of all lanes where no link has a limit."""
        content = {"images": post.world.images(np.concatenate([one.rows for one in found]))}
        if self.prefilter == "label":
            content["labels"] = ids(np.concatenate([one.labels for one in found]))
        items, who = np.array([len(one.rows) for one in found]), post.rows(post.links.senders)
        return post.bundle("question", content, (items.cumsum() - items)[who], items[who])

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        """For every question the sender's own images that are nearest to its images."""
        net = [] if at_once(post.world) else nets(post.world, post.stack)
        back = questions.answered(post.links) if isinstance(questions, Bundle) and post.free else None
        if isinstance(questions, Bundle) and back is not None:
            return self.answer_all(post, questions, *back, net)
        return replies(post.world, questions, lambda lane, mine: self.search(post, lane, mine, net))

    def search(self, post: Post, lane: Lane, questions: Sequence[Mail], net: Sequence[Trained]) -> list[Mail]:
        """One lane's answers to all that have asked it."""
        world = post.world
        counts = np.array([len(question.payload["images"]) for question in questions])
        asked = {name: torch.cat([one.payload[name] for one in questions]) for name in questions[0].payload}
        found = self.nearest_to(post, lane, asked, counts, net)
        mails = []
        for question, (rows, labels, query) in zip(questions, found.parts(), strict=True):
            may = post.permitted(lane, [question.sender], "answer", labels)
            rows, labels, query = rows[may], labels[may], query[may]
            layout = self.expects(world, "answer", question.sender)
            fits = fitting(len(query), layout, post.left(lane, question.sender))
            payload = {"images": world.images(rows[:fits]), "queries": ids(query[:fits])}
            if self.receive == "class":
                payload["labels"] = ids(labels[:fits])
            mails.append(post.reply(question, "answer", payload, min(fits, len(rows))))
        return mails

    def answer_all(
        self, post: Post, questions: Bundle, at: np.ndarray, order: np.ndarray, net: Sequence[Trained]
    ) -> Bundle:
        """The answers of all lanes that were asked, where no link has a limit: over which links, and to which question
        each."""
        world, who = post.world, post.rows(post.links.senders[at])
        bounds = np.searchsorted(who, np.arange(len(world.lanes) + 1))

        def mine(lane: Lane) -> Near:
            here = order[slice(*bounds[world.row[lane] :][:2])]
            if not len(here):
                return NOTHING_NEAR
            held = np.concatenate(
                [np.arange(questions.first[one], questions.first[one] + questions.items[one]) for one in here]
            )
            asked = {name: tensor[torch.from_numpy(held)] for name, tensor in questions.content.items()}
            return self.nearest_to(post, lane, asked, questions.items[here], net)

        if at_once(world):
            asked = Queries(who, questions.first[order], questions.items[order])
            near = closest(world, post.stack, questions.content, asked, self.oldest, self.nearest)
        else:
            found = per_lane(world, mine)
            near = joined([found[lane] for lane in world.lanes])
        content = {"images": world.images(near.rows), "queries": ids(near.query)}
        if self.receive == "class":
            content["labels"] = ids(near.labels)
        first = near.counts.cumsum() - near.counts
        return post.bundle("answer", content, first, near.counts, "question", at)

    def nearest_to(
        self, post: Post, lane: Lane, asked: Mapping[str, Tensor], counts: np.ndarray, net: Sequence[Trained]
    ) -> Near:
        """A lane's own images that are nearest to what questions with so many images ask for, one after the other."""
        world, stack, row = post.world, post.stack, post.world.row[lane]
        if at_once(world):
            mine = Queries(np.full(len(counts), row), counts.cumsum() - counts, counts)
            return closest(world, stack, asked, mine, self.oldest, self.nearest)
        own = held(world, stack, row)
        x = world.encode(asked["images"], lane)
        admissible = self.admissible(world, row, stack.task, len(x), asked.get("labels"))
        near, place = nearness(self.nearest, net[row], x, own, admissible)
        query, rank = (one.numpy() for one in near.isfinite().nonzero(as_tuple=True))
        whose = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(whose)) - np.repeat(counts.cumsum() - counts, counts)
        order = np.lexsort([number[query], rank, whose[query]])
        query, rank = query[order], rank[order]
        at = place.numpy()[query, rank]
        return Near(own.rows[at], own.labels[at], number[query], np.bincount(whose[query], minlength=len(counts)))

    def admissible(self, world: World, row: int, task: int, count: int, labels: Tensor | None) -> Tensor:
        """Which of the lane's tasks are searched for which of so many queries: bool [queries, task + 1]."""
        searched = (torch.arange(task + 1) >= self.oldest).expand(count, -1)
        if labels is None:
            return searched
        has = torch.zeros(len(world.bank.classes), task + 1, dtype=torch.bool)
        for own, one in enumerate(world.streams[row][: task + 1]):
            has[list(one.classes), own] = True
        return searched & has[labels.long()]

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Keep what fits a task in that task's buffer, and remember what was asked where answers can be late."""
        world = post.world
        if isinstance(answers, Bundle):
            self.absorb_all(post, answers)
        for lane, mails in {} if isinstance(answers, Bundle) else by_receiver(answers).items():
            arrived = [one for mail in mails for one in self.sorted_in(post, mail)]
            store(post, lane, arrived, self.buffer, once=False)
        if not post.prompt:
            remember(post)
        if self.leak:
            for question in questions:
                dropout.switch_off(post.stack.of(dropout.OWNER)["off"], [world.row[question.receiver]])

    def sorted_in(self, post: Post, mail: Mail) -> list[Arrived]:
        """What of an answer fits the tasks that its receiver has asked for."""
        world, lane = post.world, mail.receiver
        queries = post.notes[lane] if post.asked(mail) is not None else remembered(post, mail) or NONE
        images, origin = mail.payload["images"], mail.payload["queries"].tolist()
        labels = mail.payload["labels"].tolist() if "labels" in mail.payload else [None] * len(origin)
        usable = self.usable(post, lane, images).tolist()
        arrived = []
        for image, at, label, new in zip(images, origin, labels, usable, strict=True):
            task = int(queries.task[at])
            wanted = world.streams[world.row[lane]][task]
            if not new or (label is not None and label not in wanted.classes):
                continue
            local = int(queries.local[at]) if self.labels == "query" else wanted.outputs.index(label)
            arrived.append(Arrived(image, local, task))
        return arrived

    def usable(self, post: Post, lane: Lane, images: Tensor) -> np.ndarray:
        """Which of some received images a lane may learn: all, or those that it does not validate on."""
        if self.own_validation == "keep":
            return np.ones(len(images), bool)
        stream = post.world.streams[post.world.row[lane]]
        own = post.world.images(np.concatenate([one.validation for one in stream[: post.stack.task + 1]]))
        held_out = {digest(image) for image in own}
        return np.array([digest(image) not in held_out for image in images], bool)

    def absorb_all(self, post: Post, answers: Bundle) -> None:
        """`absorb` of a bundle of answers to what was asked just now."""
        world = post.world
        one, which = answers.spread
        receivers = post.rows(answers.links.receivers)[one]
        order = np.argsort(receivers, kind="stable")  # whose mail came first comes first
        rows, which = receivers[order], which[order]
        hard = [post.notes[lane] for lane in world.lanes]
        starts = np.cumsum([0, *(len(asked.task) for asked in hard)])[rows]
        asked = starts + answers.content["queries"].numpy()[which]
        task, local = (np.concatenate(one)[asked] for one in ([one.task for one in hard], [one.local for one in hard]))
        if "labels" in answers.content:
            true = world.outputs[rows, task, answers.content["labels"].numpy()[which]]
            local = local if self.labels == "query" else true.astype(np.int64)
            rows, which, task, local = (column[true >= 0] for column in (rows, which, task, local))
        if self.own_validation == "drop":
            new = np.ones(len(rows), bool)
            for row in np.unique(rows):
                mine = rows == row
                new[mine] = self.usable(
                    post, world.lanes[row], answers.content["images"][torch.from_numpy(which[mine])]
                )
            rows, which, task, local = (column[new] for column in (rows, which, task, local))
        put(post, answers.content["images"], which, rows, task, local, self.buffer)

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


def remember(post: Post) -> None:
    """Note what every lane has asked at this exchange, beside what it asked at the last few before: the clock then, how
    many images, and task and label of each."""
    state, lanes, mode = post.stack.of(post.mode.owner), len(post.stack.lanes), post.mode
    assert isinstance(mode, Recv)
    if "asked" not in state:
        state["asked"] = torch.full((lanes, ASKED, 3), -1)
        state["asked.images"] = torch.zeros(lanes, ASKED, mode.queries, 2, dtype=torch.int64)
    when, images = state["asked"], state["asked.images"]
    for row, lane in enumerate(post.world.lanes):
        hard = post.notes.get(lane, NONE)
        if len(hard.task):
            when[row], images[row] = when[row].roll(1, 0), images[row].roll(1, 0)
            when[row, 0] = torch.tensor([post.stack.task, post.stack.epoch, len(hard.task)])
            images[row, 0, : len(hard.task)] = torch.from_numpy(np.stack([hard.task, hard.local], 1))


def remembered(post: Post, answer: Mail) -> Hard | None:
    """What the receiver of an answer had asked at an earlier exchange, as far as it remembers."""
    state, row = post.stack.of(post.mode.owner), post.world.row[answer.receiver]
    if "asked" not in state:
        return None
    for at, (task, epoch, count) in enumerate(state["asked"][row].tolist()):
        own = identify(answer.receiver, answer.sender, post.mode.mode, "question", task, epoch)
        if count >= 0 and answer.reply == own:
            tasks, local = state["asked.images"][row, at, :count].numpy().T
            return Hard(NONE.rows, NONE.labels, tasks, local)
    return None


def hardest_all(mode: Recv, post: Post) -> dict[Lane, Hard]:
    """`hardest` of all lanes at once, where their nets can be read together."""
    world, task, policy = post.world, post.stack.task, bool(post.world.fleet.policy)
    tasks = range(task + 1) if mode.scope == "all" else [task]
    rule = partial(score, mode.scorer, rng=None)
    with torch.inference_mode():
        found = ranked(world, post.stack, tasks, rule, None if policy else mode.queries)
    rows = world.validates[np.arange(len(world.lanes))[:, None], found.task, found.place]
    known = world.bank.labels[world.bank.base(rows)]
    hard = {}
    for row, (lane, count) in enumerate(zip(world.lanes, found.counts.tolist(), strict=True)):
        others = post.out(lane)
        mine = Hard(*(one[row, : count if others else 0] for one in (rows, known, found.task, found.local)))
        if policy and others:
            may = np.flatnonzero(post.permitted(lane, others, "question", mine.labels))[: mode.queries]
            mine = Hard(*(one[may] for one in mine))
        hard[lane] = mine
    return hard


def hardest(mode: Recv, post: Post, lane: Lane, net: Sequence[Trained]) -> Hard:
    """A lane's hardest validation images, the hardest first."""
    world, stack, row = post.world, post.stack, post.world.row[lane]
    trained, split = net[row], world.validation
    scores, origins, tasks, locals_ = [], [], [], []
    asked = range(stack.task + 1) if mode.scope == "all" else [stack.task]
    sizes = {task: int(split.sizes[row, task]) for task in asked}
    logits = trained.logits_of({task: split.rows[row, task, :size] for task, size in sizes.items()})
    for task, size in sizes.items():
        labels = split.labels[row, task, :size]
        rng = key(*lane, "recv", stack.task, stack.epoch, task) if mode.scorer == "random" else None
        scores.append(score(mode.scorer, logits[task], labels, rng).cpu())
        origins.append(world.streams[row][task].validation[:size])
        tasks.append(np.full(size, task))
        locals_.append(labels.cpu().numpy())
    order = torch.cat(scores).argsort(dim=0, descending=True, stable=True).numpy()
    rows = np.concatenate(origins)[order]
    known = world.bank.labels[world.bank.base(rows)]
    # A question is the same for all neighbours: it holds what may go to all of them.
    may = np.flatnonzero(post.permitted(lane, post.out(lane), "question", known))[: mode.queries]
    order, rows, known = order[may], rows[may], known[may]
    return Hard(rows, known, np.concatenate(tasks)[order], np.concatenate(locals_)[order])


def score(scorer: str, logits: Tensor, labels: Tensor, rng: np.random.Generator | None) -> Tensor:
    """How hard images are, [n], by logits [n, K] and labels [n]; larger is harder (Settles 2009).

    cross-entropy -log p(y); confidence -max p; margin -(p1 - p2) of the two largest; entropy -sum p log p.
    """
    if scorer == "random":
        assert rng is not None
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
    for tasks in net.alike(range(admissible.shape[1])):
        wanted = admissible[:, tasks]
        asked, here = wanted.any(1).nonzero().squeeze(1), np.flatnonzero(np.isin(own.task, tasks))
        if not len(asked) or not len(here):
            continue
        theirs, mine = (F.normalize(net.features(one, tasks[0])) for one in (x[asked], own.x[here]))
        found = (theirs @ mine.T).cpu()
        if len(tasks) > 1:
            column = torch.from_numpy(np.searchsorted(tasks, own.task[here]))
            found.masked_fill_(~wanted[asked][:, column], -torch.inf)
        similar[asked[:, None], torch.from_numpy(here)] = found
    best = similar.sort(dim=1, descending=True, stable=True)  # of images that are as near, the first
    return best.values[:, :count], best.indices[:, :count]
