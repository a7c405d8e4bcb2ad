"""modmod for all agents of a stack at once: what its definition says, on arrays where no link has a limit, and with one
tryout for all."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from shoal.data.tasks import Lane
from shoal.learners.candidates import ORIGIN, grown, grown_all, settle_all
from shoal.learners.candidates import OWNER as GROWTH
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.sharing import modules
from shoal.sharing.body import largest, size
from shoal.sharing.drafts import form_of, same_form, tabled, tensors_of
from shoal.sharing.images import per_lane
from shoal.sharing.mode import Draft, Mode, agent_of
from shoal.sharing.modmod import ModMod
from shoal.sharing.promises import promise
from shoal.sharing.scores import SCORES, iou

Offers = tuple[np.ndarray, np.ndarray, Sequence[float]]  # how many modules answer each question; their tasks and scores


def ask(mode: Mode, post: Post) -> Table | None:
    """The questions of all lanes."""
    assert isinstance(mode, ModMod)
    if not post.batched:
        return None
    who, world = post.rows(post.links.senders), post.world
    form = form_of(post, "question", world.lanes[0])
    asking = np.unique(who)
    if not len(asking):
        return Table.none(world.peers)
    if "classes" in form.look:
        drafts: list[Draft] = [{"classes": world.streams[row][post.stack.task].classes} for row in asking.tolist()]
    else:
        drafts = [mode.ask(agent_of(post, world.lanes[row])) for row in asking.tolist()]
    items, first = np.zeros((2, len(world.lanes)), np.int64)
    items[asking] = [len(draft[form.counted]) for draft in drafts]
    first[asking] = items[asking].cumsum() - items[asking]
    every = {name: np.concatenate([draft[name] for draft in drafts]) for name in form.look}
    content = tensors_of(world, form, every, int(items.sum()))
    return tabled(post, "question", content, first[who], items[who])


def answer(mode: Mode, post: Post, questions: Table) -> Table | None:
    """The answers of all lanes that were asked, where no link has a limit."""
    assert isinstance(mode, ModMod)
    back = questions.answered(post.links) if post.batched and questions.alike else None
    if back is None or not same_form(post, "modules", questions.links):
        return None
    links, order = back
    world, senders = post.world, post.rows(post.links.senders[links])
    find = by_classes if SCORES.find(mode.metric).score is iou else by_scores
    items, tasks, scores = find(mode, post, questions, senders, order)
    if not items.any():
        return Table.none(world.peers)
    at = np.flatnonzero(items)
    every = modules.packed(world, post.stack, mode.mode, mode.compress, np.repeat(senders, items), tasks, scores)
    content = {name: every[name] for name in form_of(post, "modules", world.lanes[0]).look}
    return tabled(
        post, "modules", content, (items.cumsum() - items)[at], items[at], links[at], questions.take(order[at])
    )


def by_scores(mode: ModMod, post: Post, questions: Table, senders: np.ndarray, order: np.ndarray) -> Offers:
    """For each of some questions in some order, put to lanes in the rows `senders`, how many modules answer it; and of
    these, one after the other, the tasks and scores."""
    world, most = post.world, mode.at_most(post.world)
    bounds = np.searchsorted(senders, np.arange(len(world.lanes) + 1))

    def mine(lane: Lane) -> list[list[tuple[int, float]]]:
        row = world.row[lane]
        agent, here, kept = agent_of(post, lane), order[slice(*bounds[row:][:2])], grown(world, post.stack, row)
        asked = [questions[at].payload for at in here.tolist()] if kept else []
        every = [{u: promise(agent, one, u, mode.metric) for u in kept} for one in asked]
        return [[(u, scores[u]) for u in mode.best(scores)[:most]] for scores in every] if kept else [[] for _ in here]

    found = per_lane(world, mine)
    offers = [offered for lane in world.lanes for offered in found[lane]]  # one for each link
    items = np.array([len(one) for one in offers], np.int64)
    tasks = np.array([u for one in offers for u, _ in one], np.int64)
    return items, tasks, [score for one in offers for _, score in one]


def by_classes(mode: ModMod, post: Post, questions: Table, senders: np.ndarray, order: np.ndarray) -> Offers:
    """`by_scores`, where classes are all that counts."""
    world, first = post.world, post.world.settings.tasks.initial
    one, which = questions.spread
    theirs = np.zeros((len(questions), len(world.bank.classes)), bool)
    theirs[one, questions.content["classes"].numpy()[which]] = True
    theirs, mine = theirs[order], (world.outputs[:, first : post.stack.task] >= 0)[senders]
    both = (mine & theirs[:, None]).sum(2)
    found = both / (theirs.sum(1)[:, None] + mine.sum(2) - both)
    fine = grown_all(world, post.stack)[senders] & np.isfinite(found)
    if mode.limit is not None:
        fine &= found > mode.limit
    ranked = np.argsort(np.where(fine, -found, np.inf), axis=1, kind="stable")[:, : mode.modules]
    fine, found = (np.take_along_axis(one, ranked, 1) for one in (fine, found))
    return fine.sum(1), first + ranked[fine], found[fine].tolist()


def welcomes(mode: Mode, post: Post, table: Table) -> bool:
    """What the definition says of each."""
    assert isinstance(mode, ModMod)
    if not table.alike or (table.items == 0).any():
        return False
    if table.kind[0] == "question":
        known = set(zip(table.start.tolist(), (table.start + table.items).tolist(), strict=True))
        labels = table.content.get("labels")
        return labels is None or all(len(labels[first:last].unique()) > 1 for first, last in known)
    one, which = table.spread
    tasks, most = table.content["sources"].numpy()[which], post.world.settings.tasks
    if tasks.min() < most.initial or tasks.max() >= post.stack.task:
        return False
    if len(np.unique(one * most.count + tasks)) < len(one):
        return False
    content = modules.whole(post.world, table.content)
    found = size({name: content[name] for name in post.world.model.body}).numpy()
    large = largest(post).numpy()[post.rows(table.links.receivers)]
    return bool((found[which] <= large[one]).all())


def absorb(mode: Mode, post: Post, questions: Table, answers: Table) -> bool:
    """The best offers become candidates."""
    assert isinstance(mode, ModMod)
    if mode.leak:
        return False
    world, trust = post.world, mode.choose == "trust" and mode.accept == "all"
    if answers.alike and trust:
        trusted(mode, post, answers)
        return True
    offered = {
        world.row[lane]: [
            offer
            for mail in (answers[at] for at in rows)
            for offer in modules.offers_of(
                mail.sender.agent, post.once(("whole",), mail.payload, partial(modules.whole, world, mail.payload))
            )
        ]
        for lane, rows in answers.boxes.items()
    }
    mode.take(world, post.stack, offered)
    return True


def trusted(mode: ModMod, post: Post, answers: Table) -> None:
    """Take the best by its score, of all that lanes were offered."""
    stack, (one, which) = post.stack, answers.spread
    content = modules.whole(post.world, answers.content)
    score = content["scores"].double().numpy()[which]
    source = content["sources"].numpy()[which]
    sender = answers.links.lanes[answers.links.senders, 1][one]
    row = post.rows(answers.links.receivers)[one]
    order = np.lexsort([sender, source, -score, row])  # as `Offer.order` has it
    rows, starts = np.unique(row[order], return_index=True)
    place = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    told = np.stack([sender, source, score, np.full(len(row), np.nan), np.zeros(len(row))], 1)[order]
    told[:, -1] = place == 0
    stack.of(mode.mode)["offers"][row[order], stack.task, place] = torch.from_numpy(told)
    best = order[starts]
    parts = {name: tensor[torch.from_numpy(which[best])] for name, tensor in content.items()}
    settle_all(post.world, stack, rows, parts, mode.frozen)
    origin = torch.from_numpy(np.stack([sender[best], source[best]], 1).astype(np.int64))
    stack.of(GROWTH)[ORIGIN][torch.from_numpy(rows), stack.task] = origin
