"""modmod: agents share modules that they grew for tasks like the one a neighbour is about to learn
(docs/protocol.md, section 6).

Everybody describes its coming task to its neighbours; they answer with their modules that promise to transfer best, and
what is needed to use them; the best of all becomes the candidate of the task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite, prod
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.evaluate import Trained, nets
from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError, UserError
from shoal.learners.candidates import (
    ORIGIN,
    Offer,
    beside_fresh,
    came,
    grown,
    grown_all,
    modular,
    settle,
    settle_all,
    try_out,
)
from shoal.learners.candidates import OWNER as GROWTH
from shoal.letters.bundle import Bundle
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected, Mail, by_receiver
from shoal.letters.quote import Quote, Room, fitting, numbers
from shoal.mail.post import Post
from shoal.models import dropout
from shoal.models.contract import body_shapes
from shoal.models.families import block_of, is_modular
from shoal.models.modular import STRUCTURE
from shoal.models.params import whole
from shoal.models.table import modular_form
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.settings.part import LATER
from shoal.settings.policies import Carries
from shoal.sharing.accept import Accept, accepting
from shoal.sharing.anchors import anchor_layout, anchor_of, own_anchor, stacked
from shoal.sharing.bounds import largest, size, too_large
from shoal.sharing.codecs import in_bytes, in_numbers, int8_layout
from shoal.sharing.contract import Late, Sharing
from shoal.sharing.images import classes_of, held, ids, images_of, per_lane, replies
from shoal.sharing.scores import BUILT_IN, SCORES, Pair, iou


class ModMod(Sharing):
    """Sharing of modules (Le et al. 2024)."""

    between: ClassVar[str] = "agents of modular nets of the same kind of module and net.width"
    both_ways: ClassVar[bool] = True
    # A question describes the task that comes next, and the answer is for that task: once it has begun, both are of no
    # use any more.
    late: ClassVar[Mapping[str, Late]] = {"question": "never", "modules": "never"}
    writes: ClassVar[tuple[str, ...]] = (MODEL, GROWTH, dropout.OWNER)
    offers: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {"min_similarity": -1.0}
    mode: Literal["modmod"] = "modmod"
    every: Literal["task"] = Field("task", description="once, before a task")
    when: Literal["before"] = Field("before", description="before the task")
    start: NonNegativeInt | Literal["grown"] = Field(
        "grown", description="the first task with exchanges; grown: when the first agents can have grown a module"
    )
    metric: str = Field(
        "iou",
        description="how well a module promises to transfer: by classes (iou), by what rows are like (anchors), or by "
        f"images of the coming task ({', '.join(BUILT_IN)})",
    )
    examples: PositiveInt = Field(
        40, description="validation images per class that describe a task (not for iou and anchors)"
    )
    modules: PositiveInt = Field(1, description="modules that a neighbour sends at most")
    min_similarity: float | Literal["metric"] = Field(
        "metric",
        description="a module is sent if its score is above; metric: 0 for iou, -0.25 for anchors, else no limit",
    )
    choose: Literal["trust", "tryout"] = Field(
        "trust", description="take the module with the highest score, or the best of all on validation data in a tryout"
    )
    tryout: PositiveInt = Field(20, description="epochs of a tryout")
    accept: Accept = accepting("a module that after a tryout is not behind a fresh one")
    transfer_head: bool = Field(True, description="a module comes with the head of its task, for classes in common?")
    transfer_structure: bool = Field(True, description="a module comes with the structure of its task?")
    frozen: bool = Field(False, description="does a received module stay as it is until the end of the task?")
    extra_random: bool = Field(False, description="try a fresh module beside a received one?")
    compress: Literal["none", "int8"] = Field(
        "none",
        description="the weights of a module go as they are, or as a byte each, rounded at random; a module is sent "
        "once, so that no codec with a memory serves",
        json_schema_extra=LATER,
    )
    leak: bool = Field(
        False, description="after looking at images once, train without dropout for good (the paper's code did)"
    )

    @property
    def spare(self) -> int:
        """Candidates of a task beyond the first."""
        return int(self.extra_random)

    def init(self, world: World) -> dict[str, Tensor]:
        """Every module that lanes were offered for each task, [L, T, most, 5]: the sender, the sender's task that it
        was grown for, how well it promises to transfer, its accuracy on validation data in a tryout (NaN: it was not
        tried), chosen. NaN where there were fewer."""
        most = self.modules * world.most_heard
        return {"offers": torch.full((len(world.lanes), world.settings.tasks.count, most, 5), torch.nan).double()}

    def suits(self, settings: Settings) -> None:
        if settings.tasks.classes == 1 and SCORES.find(self.metric).asks not in ("classes", "anchor"):
            raise SettingsError(
                f'sharing.modmod.metric = "{self.metric}" compares classes, and with tasks.classes = 1 numbers are '
                'predicted; use metric = "anchors", or "iou", which then takes all modules for alike'
            )
        if not is_modular(settings):
            raise SettingsError(
                f"mode `modmod` needs a modular model, got `{settings.model}`; use model = "
                f"{modular_form(settings.model)} or drop the mode"
            )
        if SCORES.find(self.metric).compares and settings.learner.memory == 0:
            raise SettingsError(
                f'sharing.modmod.metric = "{self.metric}" compares images of a task with those that the sender kept of '
                "its own, but learner.memory = 0 keeps none; raise learner.memory or use another metric"
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """A module fits wherever it has the same shape, in nets of whatever depth."""
        alike = [(block_of(one), one.net.width, one.net.rank, one.net.factors) for one in (sender, receiver)]
        return super().fits(sender, receiver) and alike[0] == alike[1]

    def carries(self, kind: str) -> Carries | None:
        """A question names classes, or has images of the coming task; modules say of which classes they are where their
        heads come with them."""
        if kind == "question":
            what = {"classes": Carries(("questions",), "classes"), "anchor": Carries(("prototypes",))}
            return what.get(self.asks, Carries(("images",)))
        return Carries(("modules",), "classes" if self.transfer_head else "") if kind == "modules" else None

    def ask(self, post: Post) -> Sequence[Mail]:
        """Everybody's coming task, to all its neighbours."""
        world, mails = post.world, []
        if post.free:
            return self.ask_all(post)
        for lane in world.lanes:
            others = post.out(lane)
            whole = self.describe(world, lane, post.stack.task) if others else {}
            for other in others:
                count = len(next(iter(whole.values())))
                if self.by_images:
                    layout, parts = self.expects(world, "question", other), self.parts(world, self.alike(world, other))
                    count = fitting(count, layout, self.rest(post.left(lane, other), parts))
                payload = {name: tensor[:count] for name, tensor in whole.items()}
                mails.append(post.mail(lane, other, "question", payload, count))
        return mails

    def ask_all(self, post: Post) -> Sequence[Mail]:
        """The questions of all lanes where no link has a limit."""
        who, world = post.rows(post.links.senders), post.world
        asking = np.unique(who)
        wholes = [self.describe(world, world.lanes[row], post.stack.task) for row in asking.tolist()]
        if not wholes:
            return []
        items, first = np.zeros((2, len(world.lanes)), np.int64)
        items[asking] = [len(next(iter(one.values()))) for one in wholes]
        first[asking] = items[asking].cumsum() - items[asking]
        content = {name: torch.cat([one[name] for one in wholes]) for name in wholes[0]}
        return post.bundle("question", content, first[who], items[who])

    def rest(self, room: Room, parts: Mapping[str, Expected]) -> Room:
        """What a question may take of an edge's room: a module for a question in the other direction must fit too."""
        return Room(*(None if one is None else max(0, one) for one in room.less(parts, 1)))

    def describe(self, world: World, lane: Lane, task: int) -> dict[str, Tensor]:
        """What a lane says about a task of its own: its classes, or some validation images of each."""
        row = world.row[lane]
        stream = world.streams[row]
        if self.asks == "classes":
            return {"classes": ids(stream[task].classes)}
        if self.asks == "anchor":
            return anchor_of(world, row, task)
        rows = key(*lane, "modmod", task).permutation(stream[task].validation)
        labels = stream[task].labels(world.bank, rows)
        some = [rows[labels == one][: self.examples] for one in np.unique(labels)]
        # One of each class in turn: if not all fits the budget, all classes are still there.
        turns = np.concatenate([np.arange(len(one)) for one in some])
        chosen = np.concatenate(some)[np.argsort(turns, kind="stable")]
        payload = {"images": world.images(chosen)}
        return payload | ({"labels": ids(stream[task].labels(world.bank, chosen))} if self.asks == "labelled" else {})

    def objects(self, post: Post, mail: Mail) -> str:
        """A question says something; labels are of two classes at least; offers are of tasks that could be, each once,
        of weights not far larger than the receiver's own."""
        if mail.kind == "modules":
            tasks = mail.payload["sources"].tolist()
            known = post.world.settings.tasks.initial <= min(tasks, default=-1) and max(tasks) < mail.task
            if not known or len(set(tasks)) < len(tasks):
                return OUT_OF_RANGE
            return TOO_LARGE if too_large(post, self.opened(post, mail), post.world.model.body) else ACCEPTED
        if self.asks == "labelled" and len(mail.payload["labels"].unique()) < 2:
            return OUT_OF_RANGE
        items = len(next(iter(mail.payload.values())))
        return ACCEPTED if (items == 1 if self.asks == "anchor" else items) else OUT_OF_RANGE

    def welcomes(self, post: Post, bundle: Bundle) -> bool:
        """What `objects` would say of each."""
        if type(self).objects is not ModMod.objects or (bundle.items == 0).any():
            return False
        if bundle.kind == "question" and self.asks == "anchor":
            return bool((bundle.items == 1).all())
        if bundle.kind == "question":
            known = {(first, first + count) for first, count in zip(bundle.first, bundle.items, strict=True)}
            labels = bundle.content["labels"] if self.asks == "labelled" else None
            return labels is None or all(len(labels[first:last].unique()) > 1 for first, last in known)
        one, which = bundle.spread
        tasks = bundle.content["sources"].numpy()[which]
        if tasks.min() < post.world.settings.tasks.initial or tasks.max() >= post.stack.task:
            return False
        if len(np.unique(one * post.world.settings.tasks.count + tasks)) < len(one):
            return False
        content = in_numbers(body_shapes(post.world.model), bundle.content)
        found = size({name: content[name] for name in post.world.model.body}).numpy()
        most = largest(post).numpy()[post.rows(bundle.links.receivers)]
        return bool((found[which] <= most[one]).all())

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        """To every question the sender's modules that promise to transfer best."""
        net = nets(post.world, post.stack) if self.by_images else []
        back = questions.answered(post.links) if isinstance(questions, Bundle) and post.free else None
        if isinstance(questions, Bundle) and back is not None:
            return self.answer_all(post, questions, *back, net)
        return replies(post.world, questions, lambda lane, mine: self.offer(post, lane, mine, net))

    def offer(self, post: Post, lane: Lane, questions: Sequence[Mail], net: Sequence[Trained]) -> list[Mail]:
        """One lane's answers to all that have asked it. A sender that has nothing to offer does not answer."""
        world, stack, row = post.world, post.stack, post.world.row[lane]
        mails: list[Mail] = []
        kept = grown(world, stack, row)
        if not kept:
            return []
        for question, scores in zip(questions, self.scored(post, lane, kept, questions, net), strict=True):
            wanted = self.best(self.sendable(post, lane, question.sender, scores))
            if not wanted:
                continue
            alike = self.alike(world, question.sender)
            count = fitting(len(wanted), self.parts(world, alike), post.left(lane, question.sender))
            payload = self.pack(world, stack, row, wanted[:count], scores, alike)
            mails.append(post.reply(question, "modules", payload, count))
        return mails

    def sendable(self, post: Post, lane: Lane, other: Lane, scores: Mapping[int, float]) -> dict[int, float]:
        """The scores of modules that may go to a neighbour, by the policy of a lane's site."""
        stream, ranked = post.world.streams[post.world.row[lane]], sorted(scores, key=lambda u: (-scores[u], u))
        most = post.world.settings.tasks.classes  # a task with fewer says its last one again
        classes = np.array([[*own, *[own[-1]] * (most - len(own))] for own in (stream[u].classes for u in ranked)])
        may = post.permitted(lane, [other], "modules", classes)
        return {u: scores[u] for u, fine in zip(ranked, may, strict=True) if fine}

    def scored(
        self, post: Post, lane: Lane, kept: Sequence[int], questions: Sequence[Mail], net: Sequence[Trained]
    ) -> list[dict[int, float]]:
        """How well a lane's modules for some of its tasks promise to transfer to what each question says is coming."""
        own = {u: self.own(post, lane, u, net) for u in kept}  # the same whoever asks
        if SCORES.find(self.metric).score is iou:
            known = len(post.world.bank.classes)
            theirs, mine = np.zeros((len(questions), known), np.int64), np.zeros((len(kept), known), np.int64)
            for at, question in enumerate(questions):
                theirs[at, question.payload["classes"].numpy()] = 1
            for at, u in enumerate(kept):
                mine[at, own[u].mine.numpy()] = 1
            both = theirs @ mine.T
            found = both / (theirs.sum(1)[:, None] + mine.sum(1) - both)
            return [dict(zip(kept, row, strict=True)) for row in found.tolist()]
        return [{u: self.score(self.pair(post, lane, one, u, net, own[u])) for u in kept} for one in questions]

    def best(self, scores: Mapping[int, float]) -> list[int]:
        """The tasks whose modules are sent, the best first."""
        ranked = sorted((u for u in scores if self.enough(scores[u])), key=lambda u: (-scores[u], u))
        return ranked[: self.modules]

    def answer_all(
        self, post: Post, questions: Bundle, links: np.ndarray, order: np.ndarray, net: Sequence[Trained]
    ) -> Sequence[Mail]:
        """The answers of all lanes that were asked, where no link has a limit: over which links, and to which question
        each."""
        world, stack = post.world, post.stack
        senders = post.rows(post.links.senders[links])
        if SCORES.find(self.metric).score is iou:
            items, tasks, scores = self.by_classes(post, questions, senders, order)
        else:
            items, tasks, scores = self.by_scores(post, questions, senders, order, net)
        if not items.any():
            return []
        rows = np.repeat(senders, items)
        alike = self.alike(world, world.lanes[0])
        at = np.flatnonzero(items)
        content = self.packed(world, stack, rows, tasks, scores, alike)
        return post.bundle("modules", content, (items.cumsum() - items)[at], items[at], "question", links[at])

    def by_scores(
        self, post: Post, questions: Bundle, senders: np.ndarray, order: np.ndarray, net: Sequence[Trained]
    ) -> tuple[np.ndarray, np.ndarray, Sequence[float]]:
        """For each of some questions in some order, put to lanes in the rows `senders`, how many modules answer it; and
        of these, one after the other, the tasks and scores."""
        world, stack = post.world, post.stack
        bounds = np.searchsorted(senders, np.arange(len(world.lanes) + 1))

        def mine(lane: Lane) -> list[list[tuple[int, float]]]:
            here, kept = order[slice(*bounds[world.row[lane] :][:2])], grown(world, stack, world.row[lane])
            if not kept or not len(here):
                return [[] for _ in here]
            found = self.scored(post, lane, kept, [questions[at] for at in here.tolist()], net)
            return [[(u, scores[u]) for u in self.best(scores)] for scores in found]

        found = per_lane(world, mine)
        offers = [offered for lane in world.lanes for offered in found[lane]]  # one for each link
        items = np.array([len(one) for one in offers], np.int64)
        tasks = np.array([u for one in offers for u, _ in one], np.int64)
        return items, tasks, [score for one in offers for _, score in one]

    def by_classes(
        self, post: Post, questions: Bundle, senders: np.ndarray, order: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Sequence[float]]:
        """`by_scores`, where classes are all that counts."""
        world, first = post.world, post.world.settings.tasks.initial
        one, which = questions.spread
        theirs = np.zeros((len(questions), len(world.bank.classes)), bool)
        theirs[one, questions.content["classes"].numpy()[which]] = True
        theirs, mine = theirs[order], (world.outputs[:, first : post.stack.task] >= 0)[senders]
        both = (mine & theirs[:, None]).sum(2)
        found = both / (theirs.sum(1)[:, None] + mine.sum(2) - both)
        fine = grown_all(world, post.stack)[senders] & np.isfinite(found)
        if self.least is not None:
            fine &= found > self.least
        ranked = np.argsort(np.where(fine, -found, np.inf), axis=1, kind="stable")[:, : self.modules]
        fine, found = (np.take_along_axis(one, ranked, 1) for one in (fine, found))
        return fine.sum(1), first + ranked[fine], found[fine].tolist()

    def score(self, pair: Pair) -> float:
        """How well a module promises to transfer; NaN, where that cannot be said of what was asked: it is not sent."""
        try:
            return SCORES.find(self.metric).score(pair)
        except UserError:
            return np.nan

    def own(self, post: Post, lane: Lane, task: int, net: Sequence[Trained]) -> Pair:
        """What a lane knows of one of its own tasks, as far as the metric reads it."""
        world, row = post.world, post.world.row[lane]
        known = Pair(mine=torch.tensor(world.streams[row][task].classes))
        if self.asks == "anchor":
            return known._replace(
                own_anchor=post.once(("anchor", lane, task), post, partial(own_anchor, world, row, task))
            )
        if not SCORES.find(self.metric).compares:
            return known
        images = held(world, post.stack, row)
        here = images.task == task
        labels = torch.from_numpy(world.streams[row][task].labels(world.bank, images.rows[here]))
        return known._replace(own=net[row].features(images.x[here], task), own_labels=labels)

    def pair(self, post: Post, lane: Lane, question: Mail, task: int, net: Sequence[Trained], own: Pair) -> Pair:
        """The coming task of a neighbour seen through one of a lane's own, of which it knows `own`."""
        if self.asks == "classes":
            return own._replace(theirs=question.payload["classes"].long())
        if self.asks == "anchor":
            return own._replace(anchor=stacked(question.payload))
        trained = net[post.world.row[lane]]
        features = trained.features(post.world.encode(question.payload["images"], lane), task)
        classes = len(own.mine)  # of a head's outputs, the first so many; a task can have fewer than others
        weight, bias = (whole(trained.params[name])[task][:classes] for name in modular(post.world).heads)
        logits = F.linear(features, weight, bias)
        seen = own._replace(logits=logits, features=features)
        return seen._replace(labels=question.payload["labels"].long()) if self.asks == "labelled" else seen

    def alike(self, world: World, other: Lane) -> bool:
        """Has an agent elsewhere begun with the same basis? Heads and structures mean nothing to others."""
        return world.settings.tasks.common and world.of(other) == world.settings

    def pack(
        self, world: World, stack: Stack, row: int, tasks: Sequence[int], scores: Mapping[int, float], alike: bool
    ) -> dict[str, Tensor]:
        """What a lane sends of its modules for some of its tasks, to one that is alike or not."""
        rows = np.full(len(tasks), row)
        return self.packed(world, stack, rows, np.array(tasks, np.int64), [scores[u] for u in tasks], alike)

    def packed(
        self, world: World, stack: Stack, rows: np.ndarray, tasks: np.ndarray, scores: Sequence[float], alike: bool
    ) -> dict[str, Tensor]:
        """What lanes in some rows send of their modules, each for a task and with a score."""
        model, row, at = modular(world), torch.from_numpy(rows), torch.from_numpy(tasks)
        slots = torch.tensor([model.slot(u) for u in tasks.tolist()])

        def taken(name: str, place: Tensor) -> Tensor:
            tensor = stack.params[name]
            return tensor[row.to(tensor.device), place.to(tensor.device)].cpu()

        payload = {name: taken(name, slots) for name in model.block.names}
        if self.compress != "none":
            who = [(*world.lanes[one], self.mode, u) for one, u in zip(rows.tolist(), tasks.tolist(), strict=True)]
            payload = in_bytes(payload, who)
        payload["sources"] = ids(tasks)
        payload["scores"] = torch.tensor(scores, dtype=torch.float32)
        if self.transfer_head and alike:
            payload |= {name: taken(name, at) for name in model.heads}
            said = [world.streams[one][u].classes for one, u in zip(rows.tolist(), tasks.tolist(), strict=True)]
            most = world.settings.tasks.classes  # a task with fewer says its last one again
            payload["classes"] = ids(np.array([[*own, *[own[-1]] * (most - len(own))] for own in said]))
        if self.transfer_structure and alike:
            structure = taken(STRUCTURE, at)
            own_slot = structure[torch.arange(len(at)), slots]
            payload[STRUCTURE] = torch.cat([structure[:, : model.basis], own_slot[:, None]], 1)
        return payload

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The best offer becomes the candidate of the coming task, with its head and structure; where modules have to
        help, the best of those that do, or none."""
        world, stack = post.world, post.stack
        if isinstance(answers, Bundle) and self.choose == "trust" and self.accept == "all":
            self.absorb_all(post, answers)
            answers = []
        boxes = by_receiver(self.opened(post, mail) for mail in answers)
        offered = {world.row[lane]: sorted_offers(mails) for lane, mails in boxes.items()}
        tried = try_out(world, stack, offered, self.tryout, self.frozen) if self.choose == "tryout" else {}
        if self.accept == "helps":
            for row, results in tried.items():
                ranked = sorted(range(len(results)), key=lambda at, results=results: -results[at])  # type: ignore[misc]
                offered[row] = [offered[row][at] for at in ranked]
            helping = beside_fresh(world, stack, offered, self.tryout, self.frozen)
        for row, offers in sorted(offered.items()):
            results = tried.get(row, [np.nan] * len(offers))
            chosen: int | None = int(np.nanargmax(results)) if row in tried else 0
            if self.accept == "helps":
                chosen, results = helping[row]
            told = [(one.sender, one.source, one.score, results[at], at == chosen) for at, one in enumerate(offers)]
            stack.of(self.mode)["offers"][row, stack.task, : len(told)] = torch.tensor(told, dtype=torch.float64)
            if chosen is not None:
                settle(world, stack, row, [offers[chosen]], self.frozen)
                came(stack, row, offers[chosen])
        if self.leak:
            for question in questions:
                dropout.switch_off(stack.of(dropout.OWNER)["off"], [world.row[question.receiver]])

    def absorb_all(self, post: Post, answers: Bundle) -> None:
        """`absorb` of a bundle, where the best by its score is taken."""
        stack, (one, which) = post.stack, answers.spread
        content = in_numbers(body_shapes(post.world.model), answers.content)
        score = content["scores"].double().numpy()[which]
        source = content["sources"].numpy()[which]
        sender = answers.links.lanes[answers.links.senders, 1][one]
        row = post.rows(answers.links.receivers)[one]
        order = np.lexsort([sender, source, -score, row])  # as `Offer.order` has it
        rows, starts = np.unique(row[order], return_index=True)
        place = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        told = np.stack([sender, source, score, np.full(len(row), np.nan), np.zeros(len(row))], 1)[order]
        told[:, -1] = place == 0
        stack.of(self.mode)["offers"][row[order], stack.task, place] = torch.from_numpy(told)
        best = order[starts]
        parts = {name: tensor[torch.from_numpy(which[best])] for name, tensor in content.items()}
        settle_all(post.world, stack, rows, parts, self.frozen)
        origin = torch.from_numpy(np.stack([sender[best], source[best]], 1).astype(np.int64))
        stack.of(GROWTH)[ORIGIN][torch.from_numpy(rows), stack.task] = origin

    def opened(self, post: Post, mail: Mail) -> Mail:
        """Mail as if it had come whole."""
        if self.compress == "none":
            return mail
        content = post.once(("opened",), mail.payload, lambda: in_numbers(body_shapes(post.world.model), mail.payload))
        return replace(mail, payload=content)

    @property
    def asks(self) -> str:
        return SCORES.find(self.metric).asks

    @property
    def by_images(self) -> bool:
        """Does a question hold images?"""
        return self.asks in ("images", "labelled")

    @property
    def least(self) -> float | None:
        """The score that a module must be above to be sent; None: any will do."""
        return SCORES.find(self.metric).floor if self.min_similarity == "metric" else self.min_similarity

    def enough(self, score: float) -> bool:
        """Is a module with this score worth sending?"""
        return isfinite(score) and (self.least is None or score > self.least)

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        tasks = world.settings.tasks
        if kind == "question":
            if self.asks == "classes":
                return {"classes": classes_of(world)}
            if self.asks == "anchor":
                return anchor_layout()
            labels = {"labels": Expected(torch.int32, (None,), tasks.classes)}
            return {"images": images_of(world)} | (labels if self.asks == "labelled" else {})
        return self.parts(world, self.alike(world, sender))

    def parts(self, world: World, alike: bool) -> dict[str, Expected]:
        """What an offer consists of, from agents that are alike or not."""
        tasks, model = world.settings.tasks, modular(world)
        found = {name: Expected(torch.float32, (None, *shape)) for name, shape in body_shapes(model).items()}
        for name, shape in body_shapes(model).items() if self.compress != "none" else ():
            if len(shape) > 1:
                del found[name]
                found |= {f"{name}.{part}": one for part, one in int8_layout(prod(shape), 1.0).items()}
        found["sources"] = Expected(torch.int32, (None,), tasks.count)
        least, most = SCORES.find(self.metric).range
        found["scores"] = Expected(torch.float32, (None,), least=least, most=most)
        if self.transfer_head and alike:
            weight, bias = model.heads
            found[weight] = Expected(torch.float32, (None, tasks.classes, model.read))
            found[bias] = Expected(torch.float32, (None, tasks.classes))
            found["classes"] = Expected(torch.int32, (None, tasks.classes), len(world.bank.classes))
        if self.transfer_structure and alike:
            found[STRUCTURE] = Expected(torch.float32, (None, model.basis + 1, model.depth))
        return found

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        alike = world.settings.tasks.common and (other is None or other.settings == world.settings)
        tasks, parts = world.settings.tasks, self.parts(world, alike)
        question, asked = self.expects(world, "question", world.lanes[0]), tasks.classes
        if self.asks == "anchor":
            asked = 1
        elif self.by_images:
            asked = fitting(tasks.classes * self.examples, question, self.rest(room, parts))
        most = min(self.modules, max(1, tasks.count - tasks.initial - 1))
        # A question of few images leaves more to the answer: at least one is asked about.
        count = fitting(most, parts, room.less(question, 1 if self.by_images else asked))
        return [Quote("question", asked, numbers(question, asked)), Quote("modules", count, numbers(parts, count))]


def sorted_offers(mails: Sequence[Mail]) -> list[Offer]:
    """All modules in some mails, the best first."""
    offers = [
        Offer(float(mail.payload["scores"][at]), int(mail.payload["sources"][at]), mail.sender.agent, parts)
        for mail in mails
        for at in range(len(mail.payload["sources"]))
        for parts in [{name: tensor[at] for name, tensor in mail.payload.items()}]
    ]
    return sorted(offers, key=lambda one: one.order)
