"""Push: senders decide what each neighbour should see, and learn it from the neighbours' votes (Geng et al. 2021; the
paper's authors left such a sender unfinished)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.evaluate import Trained, nets
from shoal.agents.slots import slots
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.learners import received
from shoal.learners.received import digest
from shoal.letters.mail import Expected, Mail, by_receiver, identify
from shoal.letters.quote import Quote, Room, fitting, numbers
from shoal.mail.post import Post
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.settings.policies import Carries
from shoal.sharing.accept import NO_HELP, Accept, accepting, helps
from shoal.sharing.by_class import sorted_in
from shoal.sharing.choices import greedy, herd, in_turn, levelled, spread
from shoal.sharing.contract import Late, Sharing
from shoal.sharing.images import Held, classes_of, classes_only, held, ids, images_of, per_lane, store

HIGHEST = 5.0  # a loss counts no more than this
MANY = 2**31 - 1


class Seen(NamedTuple):
    """A sender's own images as it describes them to itself."""

    own: Held
    place: np.ndarray  # [n]: where in the training set of its task each is
    features: Tensor  # [n, F], of length one
    z: Tensor  # [n, D]: features, class, loss and one


class Choice(NamedTuple):
    """What a sender has found for a neighbour, to be written when all have answered."""

    chosen: np.ndarray  # places among its images
    gram: Tensor  # [D, D]
    moment: Tensor  # [D]
    chance: float


class Push(Sharing):
    """Sharing of images that senders choose, by what neighbours have voted for.

    A sender has a linear model of each neighbour's votes, of features, class and loss of an image, and sends what it
    expects to be worth most, or with some chance anything. A vote is 0 for what a receiver has no task for or holds
    already, else how far its loss lies above those of its validation images. No image is sent twice to one neighbour.
    """

    late: ClassVar[Mapping[str, Late]] = {"images": "all"}
    writes: ClassVar[tuple[str, ...]] = (received.OWNER,)
    asking: ClassVar[tuple[str, ...]] = ("votes", "histogram")
    writes_weights: ClassVar[bool] = False
    example: ClassVar[Mapping[str, Any]] = {"every": 1, "images": 3, "memory": 12}
    mode: Literal["push"] = "push"
    every: PositiveInt = Field(16, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("after", description="exchange before or after every so many epochs")
    images: PositiveInt = Field(20, description="images sent to every neighbour")
    memory: PositiveInt = Field(160, description="received images kept per task")
    choose: Literal["votes", "herding", "spread", "coverage"] = Field(
        "votes",
        description="what to send: what votes are expected for; images near the mean of their class; images far from "
        "all that was sent; or what makes the receiver's classes, which it tells, as many of each",
    )
    vote: Literal["surprise", "kept"] = Field(
        "surprise", description="votes are by the receiver's loss, or 1 for images that it has kept"
    )
    decay: float = Field(0.9, gt=0, le=1, description="the chance of a random image is multiplied by it with each vote")
    least: float = Field(0.1, ge=0, le=1, description="the least chance of a random image")
    forget: float = Field(0.9, gt=0, le=1, description="how much earlier votes count after new ones")
    ridge: PositiveFloat = Field(1.0, description="the penalty of the linear model")
    buffer: Literal["reservoir", "replace"] = Field(
        "reservoir", description="a full buffer keeps all with equal chance, or always takes the new image"
    )
    accept: Accept = accepting("the images of a sender that help")

    @property
    def room(self) -> int:
        return self.memory

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings)

    def objects(self, post: Post, mail: Mail) -> str:
        """Images may have to help."""
        if self.accept == "all" or mail.kind != "images":
            return ""
        return "" if helps(post, mail.receiver, self.sorted_in(post, mail.receiver, [mail])) else NO_HELP

    def sorted_in(self, post: Post, lane: Lane, mails: Sequence[Mail]) -> list[received.Arrived]:
        """Received images with each of the lane's tasks so far that has their class."""
        return sorted_in(
            post.world.streams[post.world.row[lane]][: post.stack.task + 1], [one.payload for one in mails]
        )

    def carries(self, kind: str) -> Carries | None:
        """How many images of each class there are says what an agent has: it is as good as labels."""
        told = {"votes": Carries(("questions",)), "histogram": Carries(("labels",))}
        return Carries(("images",), "labels") if kind == "images" else told.get(kind)

    def init(self, world: World) -> dict[str, Tensor]:
        """For every neighbour: which images have `gone` to it and, where it votes, what the last ones were (`z`, when
        they left and how many), the linear model, the chance of a random image, and one's own votes, due next time."""
        lanes, near, most = len(world.lanes), slots(world).most, self.images
        split = world.train.rows.shape
        found = {"gone": torch.zeros(lanes, near, *split[1:], dtype=torch.bool)}
        if self.choose != "votes":
            return found
        size = world.model.read + len(world.bank.classes) + 2
        return found | {
            "z": torch.zeros(lanes, near, most, size),
            "left": torch.full((lanes, near, 3), -1),
            "gram": torch.zeros(lanes, near, size, size),
            "moment": torch.zeros(lanes, near, size),
            "chance": torch.ones(lanes, near),
            "votes": torch.zeros(lanes, near, most),
            "due": torch.full((lanes, near, 3), -1),
        }

    def ask(self, post: Post) -> list[Mail]:
        """Votes on the last delivery, or how many images of every class there are."""
        if self.choose == "votes":
            return self.voted(post)
        if self.choose != "coverage":
            return []
        have = {lane: ids(histogram(post, lane)) for lane in post.world.lanes if post.out(lane)}
        return [
            post.mail(lane, other, "histogram", {"have": counts}, 1)
            for lane, counts in have.items()
            for other in post.out(lane)
        ]

    def voted(self, post: Post) -> list[Mail]:
        state, mails = post.stack.of(self.owner), []
        for row, lane in enumerate(post.world.lanes):
            for other in post.out(lane):
                slot = slots(post.world).of(lane, other)
                task, epoch, count = state["due"][row, slot].tolist()
                if count > 0:
                    layout = self.expects(post.world, "votes", other)
                    fits = fitting(count, layout, post.left(lane, other))
                    payload = {"place": ids(range(fits)), "vote": state["votes"][row, slot, :fits].clone()}
                    about = identify(other, lane, self.mode, "images", task, epoch)
                    mails.append(post.mail(lane, other, "votes", payload, fits, about))
        return mails

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """What each neighbour is expected to want most, of all that has not gone to it."""
        world, net, heard = post.world, nets(post.world, post.stack), {}
        for mail in questions:
            heard[mail.receiver, mail.sender] = mail
        found = per_lane(world, lambda lane: self.choices(post, lane, net, heard) if post.out(lane) else (None, {}))
        mails = []
        for lane in world.lanes:
            seen, choices = post.notes[lane] = found[lane]
            for other, choice in choices.items():
                if len(choice.chosen):
                    own = seen.own
                    rows, labels = own.rows[choice.chosen], own.labels[choice.chosen]
                    payload = {"images": world.images(rows), "labels": ids(labels)}
                    mails.append(post.mail(lane, other, "images", payload, len(rows)))
        return mails

    def choices(
        self, post: Post, lane: Lane, net: Sequence[Trained], heard: Mapping[tuple[Lane, Lane], Mail]
    ) -> tuple[Seen, dict[Lane, Choice]]:
        """What a lane has, and what of it goes to each neighbour."""
        seen = described(post, lane, net[post.world.row[lane]])
        found = {other: self.choice(post, lane, other, seen, heard.get((lane, other))) for other in post.out(lane)}
        for other, one in found.items():
            may = post.permitted(lane, [other], "images", seen.own.labels[one.chosen])
            found[other] = one._replace(chosen=one.chosen[may])
        return seen, found

    def choice(self, post: Post, lane: Lane, other: Lane, seen: Seen, told: Mail | None) -> Choice:
        world, row, slot = post.world, post.world.row[lane], slots(post.world).of(lane, other)
        state = post.stack.of(self.owner)
        # An image may be of two tasks: it is sent as one of them.
        rows, again = seen.own.rows, np.ones(len(seen.place), bool)
        again[np.unique(rows, return_index=True)[1]] = False
        gone = np.isin(rows, rows[state["gone"][row, slot].numpy()[seen.own.task, seen.place]]) | again
        known = np.unique(seen.own.labels)
        gone |= ~np.isin(seen.own.labels, known[post.permitted(lane, [other], "images", known)])
        free = np.flatnonzero(~gone)
        most = min(fitting(self.images, self.expects(world, "images", other), post.left(lane, other)), len(free))
        if self.choose == "votes":
            gram, moment, chance = self.fitted(state, row, slot, told, world)
            eye = torch.eye(len(moment), dtype=torch.float64)
            weights = torch.linalg.solve(gram.double() + self.ridge * eye, moment.double())
            # Before any vote: what was hard for oneself.
            scores = (seen.z.double() @ weights if bool(moment.any()) else seen.z[:, -2]).numpy()
            rng = key(*lane, "push", post.stack.task, post.stack.epoch, other.agent)
            return Choice(greedy(scores, free, most, chance, rng), gram, moment, chance)
        if self.choose == "spread":
            chosen = spread(seen.features, seen.features[gone], torch.from_numpy(~gone), most)
        else:
            classes = np.unique(seen.own.labels[free]).tolist()
            places = [free[seen.own.labels[free] == one] for one in classes]
            counts = [most] * len(classes)
            if self.choose == "coverage":
                have = told.payload["have"].tolist() if told is not None else [0] * len(world.bank.classes)
                counts = levelled([have[one] for one in classes], [len(one) for one in places], most)
            orders = [at[herd(seen.features[at], count)] for at, count in zip(places, counts, strict=True)]
            chosen = in_turn([one.tolist() for one in orders], most)
        nothing = torch.zeros(0)
        return Choice(np.array(chosen, np.int64), nothing, nothing, 0.0)

    def fitted(
        self, state: Mapping[str, Tensor], row: int, slot: int, told: Mail | None, world: World
    ) -> tuple[Tensor, Tensor, float]:
        """The sums of z z' and z v, and the chance of a random image, after the votes that have come; those on anything
        but what was last sent say nothing."""
        gram, moment, chance = state["gram"][row, slot], state["moment"][row, slot], float(state["chance"][row, slot])
        if told is None:
            return gram, moment, chance
        task, epoch, count = state["left"][row, slot].tolist()
        about = identify(told.receiver, told.sender, self.mode, "images", task, epoch)
        place = told.payload["place"].long()
        if told.reply != about or not len(place) or int(place.max()) >= count:
            return gram, moment, chance
        z = state["z"][row, slot, place]
        new = gram * self.forget + z.T @ z, moment * self.forget + z.T @ told.payload["vote"]
        return *new, max(self.least, chance * self.decay)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Remember what has gone, keep every image in the buffers of all tasks so far that have its class, and vote."""
        self.remember(post)
        net = nets(post.world, post.stack) if answers else []
        for lane, mails in by_receiver(answers).items():
            before = marks(post, lane)
            with torch.inference_mode():
                votes = [surprise(post, lane, net[post.world.row[lane]], mail) for mail in mails]
            store(post, lane, self.sorted_in(post, lane, mails), self.buffer, once=True)
            after = marks(post, lane)
            for mail, surprised in zip(mails, votes, strict=True):
                if self.choose == "votes":
                    names = [digest(image) for image in mail.payload["images"]]
                    new = torch.tensor([name not in before for name in names])
                    kept = torch.tensor([name in after for name in names])
                    self.vote_on(post, mail, new * (kept.float() if self.vote == "kept" else surprised))

    def remember(self, post: Post) -> None:
        """What has left, and to whom."""
        state, world = post.stack.of(self.owner), post.world
        for lane, other, kind in sorted(post.gone):
            row, slot = world.row[lane], slots(world).of(lane, other)
            if kind == "votes":
                state["due"][row, slot] = -1
            if kind != "images":
                continue
            seen, choices = post.notes[lane]
            chosen = choices[other].chosen
            state["gone"][row, slot, seen.own.task[chosen], seen.place[chosen]] = True
            if self.choose == "votes":
                state["z"][row, slot, : len(chosen)] = seen.z[chosen]
                state["left"][row, slot] = torch.tensor([post.stack.task, post.stack.epoch, len(chosen)])
        for row, lane in enumerate(world.lanes):
            for other, choice in (post.notes.get(lane) or (None, {}))[1].items() if self.choose == "votes" else ():
                slot = slots(world).of(lane, other)
                state["gram"][row, slot], state["moment"][row, slot] = choice.gram, choice.moment
                state["chance"][row, slot] = choice.chance

    def vote_on(self, post: Post, mail: Mail, votes: Tensor) -> None:
        state, row = post.stack.of(self.owner), post.world.row[mail.receiver]
        slot = slots(post.world).of(mail.receiver, mail.sender)
        state["votes"][row, slot, : len(votes)] = votes
        state["due"][row, slot] = torch.tensor([mail.task, mail.epoch, len(votes)])

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        if kind == "votes":
            vote = Expected(torch.float32, (None,), least=0.0, most=1.0)
            return {"place": Expected(torch.int32, (None,), self.images), "vote": vote}
        if kind == "histogram":
            return {"have": Expected(torch.int32, (len(world.bank.classes),), MANY)}
        return {"images": images_of(world), "labels": classes_of(world)}

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        kinds = {"votes": ["votes"], "coverage": ["histogram"]}.get(self.choose, [])
        found = []
        for kind in [*kinds, "images"]:
            layout = self.expects(world, kind, world.lanes[0])
            items = 1 if kind == "histogram" else fitting(self.images, layout, room)
            found.append(Quote(kind, items, numbers(layout, items)))
        return found


def described(post: Post, lane: Lane, net: Trained) -> Seen:
    """A lane's own images, with all that its model of others reads of them."""
    world, row = post.world, post.world.row[lane]
    own, stream = held(world, post.stack, row), world.streams[row]
    place = np.zeros(len(own.rows), np.int64)
    features, losses = torch.zeros(len(own.rows), world.model.read), torch.zeros(len(own.rows))
    for task in np.unique(own.task).tolist():
        here, train = np.flatnonzero(own.task == task), stream[task].train
        order = np.argsort(train, kind="stable")
        place[here] = order[np.searchsorted(train[order], own.rows[here])]
        labels = torch.from_numpy(stream[task].labels(world.bank, own.rows[here])).to(world.device)
        features[here] = F.normalize(net.features(own.x[here], task)).cpu()
        losses[here] = F.cross_entropy(net.read(own.x[here], task), labels, reduction="none").cpu()
    classes = F.one_hot(torch.from_numpy(own.labels).long(), len(world.bank.classes))
    z = torch.cat([features, classes, losses.clamp(max=HIGHEST)[:, None], torch.ones(len(place), 1)], 1)
    return Seen(own, place, features, z)


def surprise(post: Post, lane: Lane, net: Trained, mail: Mail) -> Tensor:
    """A receiver's votes [n] on images: how far its loss lies above those of its validation images, squeezed to 0..1;
    the most over tasks so far that have the class, 0 where none has."""
    world, row, split = post.world, post.world.row[lane], post.world.validation
    labels = mail.payload["labels"].numpy()
    votes = torch.zeros(len(labels))
    for task, met in enumerate(world.streams[row][: post.stack.task + 1]):
        here = np.flatnonzero(np.isin(labels, met.classes))
        size = int(split.sizes[row, task])
        if not len(here) or not size:
            continue
        usual = F.cross_entropy(
            net.logits(split.rows[row, task, :size], task), split.labels[row, task, :size], reduction="none"
        )
        local = torch.tensor([met.outputs.index(int(one)) for one in labels[here]], device=world.device)
        x = world.encode(mail.payload["images"][torch.from_numpy(here)], lane)
        loss = F.cross_entropy(net.read(x, task), local, reduction="none")
        far = (loss - usual.mean()) / usual.std(correction=0).clamp(min=1e-6)
        votes[here] = torch.maximum(votes[here], far.sigmoid().cpu())
    return votes


def marks(post: Post, lane: Lane) -> set[int]:
    """What names the images in a lane's buffers."""
    state, row = post.stack.of(received.OWNER), post.world.row[lane]
    fill = state["fill"][row].tolist()
    return {mark for task, count in enumerate(fill) for mark in state["marks"][row, task, :count].tolist()}


def histogram(post: Post, lane: Lane) -> np.ndarray:
    """How many images of every class a lane has, its own and received."""
    world, row, state = post.world, post.world.row[lane], post.stack.of(received.OWNER)
    counts = np.bincount(held(world, post.stack, row).labels, minlength=len(world.bank.classes))
    for task, met in enumerate(world.streams[row][: post.stack.task + 1]):
        labels = state["y"][row, task, : int(state["fill"][row, task])].cpu().numpy()
        np.add.at(counts, np.array(met.outputs, np.int64)[labels], 1)
    return counts
