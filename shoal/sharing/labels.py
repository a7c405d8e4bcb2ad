"""Labels: agents ask neighbours what images without a label show, and who is sure says so (CaPC, Choquette-Choo et al.
2021, without its cryptography; only those that are sure vote, as in PATE, Papernot et al. 2018)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.evaluate import Trained, nets
from shoal.fleet.world import World
from shoal.learners import received
from shoal.learners.received import Arrived
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.contract import Carries, Sharing
from shoal.sharing.images import classes_of, classes_only, ids, images_of, per_lane, replies, store
from shoal.sharing.recv import score

SCENARIOS = ("drawn", "split", "overlap")  # those that leave images that nobody has to learn from


class Labels(Sharing):
    """Asking for labels: images go out, and what comes back is a number for each.

    Beside its training images, a lane meets `pool` images per class of its task that have no label. It sends those that
    it is least sure of. A neighbour that knows all classes of the task, and gives one of them at least the share `sure`
    of what all of them get, answers with it. What most of those say is the label with which the image is learned.
    """

    both_ways: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = (received.OWNER,)
    example: ClassVar[Mapping[str, Any]] = {
        "every": 2, "queries": 6, "pool": 4, "memory": 12, "sure": 0.0, "cover": 0.1
    }  # fmt: skip
    mode: Literal["labels"] = "labels"
    every: PositiveInt = Field(16, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("after", description="exchange before or after every so many epochs")
    pool: PositiveInt = Field(32, description="images without a label that come with a task, per class")
    queries: PositiveInt = Field(20, description="images that are asked about at an exchange")
    memory: PositiveInt = Field(160, description="labelled images kept per task")
    scorer: Literal["confidence", "margin", "entropy", "random"] = Field(
        "entropy", description="what to ask about: low confidence, small margin, high entropy; or any at random"
    )
    sure: float = Field(0.9, ge=0, le=1, description="how sure a neighbour must be to answer")
    cover: float = Field(1.0, gt=0, le=1, description="the share of the task's classes that it must know to answer")
    agree: PositiveInt = Field(1, description="how many neighbours must say the same")

    @property
    def room(self) -> int:
        return self.memory

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings, "labels")
        tasks = settings.tasks
        if tasks.scenario not in SCENARIOS or tasks.train == "all":
            raise SettingsError(
                "mode `labels` asks about images that nobody learns from, and tasks.scenario = "
                f"{tasks.scenario!r} with tasks.train = {tasks.train!r} leaves none; use one of "
                f"{', '.join(SCENARIOS)} with a number of images, or share by another mode"
            )

    def init(self, world: World) -> dict[str, Tensor]:
        """Which images of the pool of each task have a label by now."""
        tasks = world.settings.tasks
        return {"known": torch.zeros(len(world.lanes), tasks.count, self.pool * tasks.classes, dtype=torch.bool)}

    def carries(self, kind: str) -> Carries | None:
        """Of which class an image without a label is nobody knows: it may be of any class of its task."""
        return {"question": Carries(("images",), "classes"), "answer": Carries(("labels",), "labels")}.get(kind)

    def objects(self, post: Post, mail: Mail) -> str:
        """An answer gives a label of the task to images that its receiver has asked about, each one once."""
        if mail.kind == "question":
            return ACCEPTED
        asked, queries, labels = post.asked(mail), *(mail.payload[name].tolist() for name in ("queries", "labels"))
        if asked is None:  # it is late, and says nothing
            return ACCEPTED
        fits = len(set(queries)) == len(queries) and max(queries, default=-1) < len(asked.payload["images"])
        return ACCEPTED if fits and set(labels) <= set(asked.payload["classes"].tolist()) else OUT_OF_RANGE

    def ask(self, post: Post) -> list[Mail]:
        """The images without a label that everybody is least sure of."""
        world, net, mails = post.world, nets(post.world, post.stack), []
        found = per_lane(world, lambda lane: self.chosen(post, lane, net) if post.out(lane) else np.zeros(0, np.int64))
        for row, lane in enumerate(world.lanes):
            at = post.notes[lane] = found[lane]
            classes = world.streams[row][post.stack.task].classes
            if not len(at) or len(classes) != world.settings.tasks.classes:
                continue
            images = world.images(self.unlabelled(world, row, post.stack.task)[at])
            for other in post.out(lane):
                count = min(len(at), self.fits_in(world, post.left(lane, other), other))
                payload = {"images": images[:count], "classes": ids(classes)}
                mails.append(post.mail(lane, other, "question", payload, count))
        return mails

    def unlabelled(self, world: World, row: int, task: int) -> np.ndarray:
        """The images without a label of a task, as rows of the bank: of its classes, none of which the lane learns from
        or validates on. Nobody looks at their labels."""
        bank, stream = world.bank, world.streams[row]
        own = np.concatenate([getattr(one, name) for one in stream for name in ("train", "validation")])
        free = np.flatnonzero(~bank.test & np.isin(bank.labels, stream[task].classes))
        rows = np.setdiff1d(free, own)
        found: np.ndarray = key(*world.lanes[row], "labels", "pool", task).permutation(rows)
        return found[: self.pool * world.settings.tasks.classes]

    def chosen(self, post: Post, lane: Lane, net: Sequence[Trained]) -> np.ndarray:
        """Places in the pool of the current task, the least sure first."""
        world, row, task = post.world, post.world.row[lane], post.stack.task
        if task >= int(world.ends[row]):
            return np.zeros(0, np.int64)
        rows = self.unlabelled(world, row, task)
        open_ = np.flatnonzero(~post.stack.of(self.owner)["known"][row, task, : len(rows)].numpy())
        if not len(open_):
            return open_
        logits = net[row].read(world.encode(world.images(rows[open_]), lane), task)
        rng = key(*lane, "labels", task, post.stack.epoch)
        hard = score(self.scorer, logits, torch.zeros(0), rng).cpu()
        found: np.ndarray = open_[hard.argsort(descending=True, stable=True)[: self.queries].numpy()]
        return found

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """What everybody is sure of."""
        net = nets(post.world, post.stack)

        def reply(lane: Lane, mine: Sequence[Mail]) -> list[Mail]:
            mails = []
            for question in mine:
                at, labels = self.told(post, lane, net[post.world.row[lane]], question)
                may = post.permitted(lane, [question.sender], "answer", labels)
                at, labels = at[may], labels[may]
                layout = self.expects(post.world, "answer", question.sender)
                fits = fitting(len(at), layout, post.left(lane, question.sender))
                if len(at):
                    payload = {"queries": ids(at[:fits]), "labels": ids(labels[:fits])}
                    mails.append(post.reply(question, "answer", payload, len(payload["labels"])))
            return mails

        return replies(post.world, questions, reply)

    def told(self, post: Post, lane: Lane, net: Trained, question: Mail) -> tuple[np.ndarray, np.ndarray]:
        """Which images a lane is sure about, and of which class it takes each for. What a class gets is the most that
        any head that has it gives it."""
        world, row, classes = post.world, post.world.row[lane], question.payload["classes"].tolist()
        met = world.streams[row][: post.stack.task + 1]
        know = [one for one in classes if any(one in task.classes for task in met)]
        if len(know) < self.cover * len(classes) or not know:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        x = world.encode(question.payload["images"], lane)
        gets = torch.zeros(len(x), len(classes))
        for at, task in enumerate(met):
            here = [place for place, one in enumerate(classes) if one in task.classes]
            if here:
                likely = net.read(x, at).softmax(1).cpu()
                own = likely[:, [task.outputs.index(classes[place]) for place in here]]
                gets[:, here] = torch.maximum(gets[:, here], own)
        share, best = (gets / gets.sum(1, keepdim=True).clamp(min=1e-12)).max(1)
        sure = (share >= self.sure).nonzero().squeeze(1).numpy()
        return sure, np.array(classes)[best.numpy()[sure]]

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Learn with the label that most of those that answered say; a tie says nothing. Which images a late answer is
        about is not remembered."""
        world, task, state = post.world, post.stack.task, post.stack.of(self.owner)
        for lane, mails in by_receiver(answers).items():
            row, at = world.row[lane], post.notes.get(lane, ())
            outputs = world.streams[row][task].outputs
            votes = np.zeros((len(at), len(outputs)), np.int64)
            for mail in mails:
                if post.asked(mail) is not None:
                    for query, label in zip(
                        *(mail.payload[name].tolist() for name in ("queries", "labels")), strict=True
                    ):
                        votes[query, outputs.index(label)] += 1
            most = votes.max(1, initial=0)
            clear = np.flatnonzero((most >= self.agree) & ((votes == most[:, None]).sum(1) == 1))
            if not len(clear):
                continue
            images = world.images(self.unlabelled(world, row, task)[at[clear]])
            said = votes[clear].argmax(1).tolist()
            arrived = [Arrived(image, label, task) for image, label in zip(images, said, strict=True)]
            store(post, lane, arrived, "reservoir", once=True)
            state["known"][row, task, torch.from_numpy(at[clear])] = True

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        if kind == "question":
            classes = Expected(torch.int32, (world.settings.tasks.classes,), len(world.bank.classes))
            return {"images": images_of(world), "classes": classes}
        return {"queries": Expected(torch.int32, (None,), self.queries), "labels": classes_of(world)}

    def fits_in(self, world: World, room: Room, other: Lane) -> int:
        """How many images fit a question: the answer to one in the other direction must fit too."""
        answer, question = (self.expects(world, kind, other) for kind in ("answer", "question"))
        return fitting(self.queries, question, room if room == Room() else room.less(answer, self.queries))

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        question, answer = (self.expects(world, kind, world.lanes[0]) for kind in ("question", "answer"))
        asked, told = self.fits_in(world, room, world.lanes[0]), fitting(self.queries, answer, room)
        return [Quote("question", asked, numbers(question, asked)), Quote("answer", told, numbers(answer, told))]
