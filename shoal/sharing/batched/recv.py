"""Recv for all agents of a stack at once: what its definition says, on arrays where no link has a limit, and else with
one search of each agent for all that it is asked."""

from functools import partial

import numpy as np
import torch

from shoal.data.tasks import Lane
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.rng import key
from shoal.sharing.drafts import tabled
from shoal.sharing.images import ids, per_lane, put
from shoal.sharing.mode import Draft, Mode, Written, agent_of, posted
from shoal.sharing.recv import Recv, score
from shoal.sharing.search import NOTHING_NEAR, Near, Queries, at_once, closest, joined, nearest_to, ranked

COLUMNS = ("images", "labels", "task", "local")
NONE: Draft = {name: np.zeros(0, np.int64) for name in COLUMNS}


def ask(mode: Mode, post: Post) -> Table | None:
    """The questions of all lanes."""
    assert isinstance(mode, Recv)
    if not post.batched:
        return None
    world = post.world
    if at_once(world) and mode.scorer != "random":
        found = hardest(mode, post)
    else:
        every = mode.each(post, lambda agent: mode.ask(agent) if agent.neighbours else NONE, "ask")
        found = {lane: {name: one[: mode.queries] for name, one in draft.items()} for lane, draft in every.items()}
    post.notes.update({lane: draft for lane, draft in found.items() if len(draft["images"])})
    drafts = [found[lane] for lane in world.lanes]
    content = {"images": world.images(np.concatenate([one["images"] for one in drafts]))}
    if mode.prefilter == "label":
        content["labels"] = ids(np.concatenate([one["labels"] for one in drafts]))
    items, who = np.array([len(one["images"]) for one in drafts]), post.rows(post.links.senders)
    return tabled(post, "question", content, (items.cumsum() - items)[who], items[who])


def hardest(mode: Recv, post: Post) -> dict[Lane, Draft]:
    """`Recv.ask` of all lanes, where their nets can be read together."""
    world, task = post.world, post.stack.task
    tasks = range(task + 1) if mode.scope == "all" else [task]
    with torch.inference_mode():
        rule = partial(score, mode.scorer, rng=key(0))
        found = ranked(world, post.stack, tasks, rule, mode.queries)
    rows = world.validates[np.arange(len(world.lanes))[:, None], found.task, found.place]
    columns = rows, world.bank.labels[world.bank.base(rows)], found.task, found.local
    return {
        lane: dict(zip(COLUMNS, (one[row, : count if post.out(lane) else 0] for one in columns), strict=True))
        for row, (lane, count) in enumerate(zip(world.lanes, found.counts.tolist(), strict=True))
    }


def answer(mode: Mode, post: Post, questions: Table) -> Table:
    """The answers of all lanes that were asked."""
    assert isinstance(mode, Recv)
    back = questions.answered(post.links) if post.batched and questions.alike else None
    if back is None:
        return one_by_one(mode, post, questions)
    at, order = back
    world, who = post.world, post.rows(post.links.senders[at])
    if at_once(world):
        asked = Queries(who, questions.start[order], questions.items[order])
        near = closest(world, post.stack, questions.content, asked, mode.oldest, mode.nearest)
    else:
        bounds = np.searchsorted(who, np.arange(len(world.lanes) + 1))

        def mine(lane: Lane) -> Near:
            here = order[slice(*bounds[world.row[lane] :][:2])]
            if not len(here):
                return NOTHING_NEAR
            one = [np.arange(questions.start[at], questions.start[at] + questions.items[at]) for at in here]
            rows = torch.from_numpy(np.concatenate(one))
            asked = {name: tensor[rows] for name, tensor in questions.content.items()}
            return nearest_to(agent_of(post, lane), asked, questions.items[here], mode.oldest, mode.nearest)

        found = per_lane(world, mine)
        near = joined([found[lane] for lane in world.lanes])
    content = {"images": world.images(near.rows), "queries": ids(near.query)}
    if mode.receive == "class":
        content["labels"] = ids(near.labels)
    return tabled(post, "answer", content, near.counts.cumsum() - near.counts, near.counts, at, questions.take(order))


def one_by_one(mode: Recv, post: Post, questions: Table) -> Table:
    """The same where questions differ, or sites have policies: each lane searches once for all that it is asked."""

    def mine(lane: Lane) -> list[Written]:
        asked = [questions[at] for at in questions.boxes.get(lane, ())]
        if not asked:
            return []
        counts = np.array([len(one.payload["images"]) for one in asked])
        whole = {name: torch.cat([one.payload[name] for one in asked]) for name in asked[0].payload}
        near = nearest_to(agent_of(post, lane), whole, counts, mode.oldest, mode.nearest)
        drafts = (dict(zip(("images", "labels", "queries"), part, strict=True)) for part in near.parts())
        return [Written(lane, [one.sender], draft, one.id) for one, draft in zip(asked, drafts, strict=True)]

    found = per_lane(post.world, mine)
    return posted(post, ["answer"], [one for lane in post.world.lanes for one in found[lane]])


def welcomes(mode: Mode, post: Post, table: Table) -> bool:
    """Of answers, each is to a question of its receiver, and has so many images for each that was asked about."""
    assert isinstance(mode, Recv)
    if not table.alike or table.kind[0] == "question":
        return table.alike
    asked = [one for one in post.gone if one.kind[0] == "question"]
    if mode.accept != "all" or len(asked) != 1:
        return False
    back = asked[0].links.find(table.links.turned)
    replies = (
        asked[0].ids[back] == table.questions if table.replies is not None else np.array(table.answers == "question")
    )
    if (back < 0).any() or not replies.all():
        return False
    one, which = table.spread
    queries = table.content["queries"].numpy()[which]
    if (queries >= asked[0].items[back][one]).any():
        return False
    return int(np.bincount(one * mode.queries + queries, minlength=1).max()) <= mode.nearest


def absorb(mode: Mode, post: Post, questions: Table, answers: Table) -> bool:
    """Keep what fits a task of all answers to what was asked just now."""
    assert isinstance(mode, Recv)
    if not answers.alike or not post.prompt or mode.leak or mode.own_validation == "drop":
        return False
    world = post.world
    one, which = answers.spread
    receivers = post.rows(answers.links.receivers)[one]
    order = np.argsort(receivers, kind="stable")  # whose mail came first comes first
    rows, which = receivers[order], which[order]
    hard = [post.notes.get(lane, NONE) for lane in world.lanes]
    starts = np.cumsum([0, *(len(asked["task"]) for asked in hard)])[rows]
    asked = starts + answers.content["queries"].numpy()[which]
    task, local = (np.concatenate([one[name] for one in hard])[asked] for name in ("task", "local"))
    if "labels" in answers.content:
        true = world.outputs[rows, task, answers.content["labels"].numpy()[which]]
        local = local if mode.labels == "query" else true.astype(np.int64)
        rows, which, task, local = (column[true >= 0] for column in (rows, which, task, local))
    put(post, answers.content["images"], which, rows, task, local, mode.buffer)
    return True
