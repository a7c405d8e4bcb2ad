"""Recv for all agents of a stack at once: what its definition says, on arrays where no link has a limit, and else with
one search of each agent for all that it is asked."""

import numpy as np
import torch

from shoal.agents import received
from shoal.agents.engine import THREADS, crew
from shoal.agents.evaluate import read_all, together
from shoal.compiled.answers import Asks
from shoal.data.tasks import Lane
from shoal.learners.batches import filled
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.rng import key
from shoal.sharing.drafts import tabled
from shoal.sharing.images import ids, per_lane
from shoal.sharing.mode import Draft, Mode, Written, posted
from shoal.sharing.recv import Recv, score
from shoal.sharing.search import Near, Queries, closest

COLUMNS = ("images", "labels", "task", "local")
SPLIT = ("sizes", "rows", "labels")
NONE: Draft = {name: np.zeros(0, np.int64) for name in COLUMNS}


def ask(mode: Mode, post: Post) -> Table | None:
    """The questions of all lanes."""
    assert isinstance(mode, Recv)
    if not post.batched:
        return None
    world = post.world
    if together(world) and mode.scorer != "random":
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


@torch.inference_mode()
def hardest(mode: Recv, post: Post) -> dict[Lane, Draft]:
    """`Recv.ask` of all lanes, where their nets can be read together."""
    world, count, task = post.world, len(post.world.lanes), post.stack.task
    tasks = np.arange(task + 1) if mode.scope == "all" else np.array([task])
    sizes, rows, labels = (one[:, tasks] for one in (getattr(world.validation, name) for name in SPLIT))
    real = filled(sizes, rows.shape[2])
    lane, which = (one.ravel() for one in np.indices(sizes.shape))
    asks = Asks(lane, tasks[which], np.zeros_like(lane), sizes.numpy().ravel(), rows[real], [world.inputs])
    scores = torch.full(real.shape, -torch.inf, dtype=torch.float32)
    scores[real] = score(mode.scorer, read_all(world, post.stack, "logits", asks), labels[real], key(0))
    order = scores.reshape(count, -1).argsort(dim=1, descending=True, stable=True)[:, : mode.queries]
    at, place = np.divmod(order.numpy(), real.shape[2])
    images = world.validates[np.arange(count)[:, None], tasks[at], place]
    local = labels.reshape(count, -1).gather(1, order).numpy()
    columns = images, world.bank.labels[world.bank.base(images)], tasks[at], local
    found = dict[Lane, Draft]()
    for row, (lane, most) in enumerate(zip(world.lanes, sizes.sum(1).tolist(), strict=True)):
        items = min(most, mode.queries) if post.out(lane) else 0
        found[lane] = dict(zip(COLUMNS, (one[row, :items] for one in columns), strict=True))
    return found


def answer(mode: Mode, post: Post, questions: Table) -> Table:
    """The answers of all lanes that were asked."""
    assert isinstance(mode, Recv)
    back = questions.answered(post.links) if post.batched and questions.alike else None
    if back is None:
        return one_by_one(mode, post, questions)
    at, order = back
    world, who = post.world, post.rows(post.links.senders[at])
    parts = Queries(who, questions.start[order], questions.items[order]).parts()
    count = min(world.settings.machine.threads or THREADS, len(world.lanes))
    found = crew(parts, lambda part: closest(post, questions.content, part, mode.oldest, mode.nearest), count)
    near = Near(*map(np.concatenate, zip(*found, strict=True)))
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
        here = Queries(np.full(len(counts), post.world.row[lane]), counts.cumsum() - counts, counts)
        near = closest(post, whole, here, mode.oldest, mode.nearest)
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
    here, counts = np.unique(rows, return_counts=True)
    draws = (key(*world.lanes[row], "shared", mode.mode, post.stack.task, post.stack.epoch) for row in here.tolist())
    luck = [one.random(count) for one, count in zip(draws, counts.tolist(), strict=True)]
    drawn = np.concatenate([np.zeros(0), *luck])
    received.put(world, post.stack, answers.content["images"], which, rows, task, local, mode.buffer, drawn)
    return True
