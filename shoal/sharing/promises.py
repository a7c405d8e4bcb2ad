"""How well a module that an agent grew promises to serve the coming task of another, by what that says of it."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.errors import UserError
from shoal.models.params import whole
from shoal.rng import key
from shoal.sharing.anchors import anchor_of, own_anchor, stacked
from shoal.sharing.drafts import Draft
from shoal.sharing.present import Present
from shoal.sharing.scores import SCORES, Pair


def described(agent: Present, task: int, metric: str, examples: int) -> Draft:
    """What an agent says about a task of its own: its classes, an anchor, or some validation images of each class, as
    rows, and their labels."""
    met = agent.tasks[task]
    if SCORES.find(metric).asks == "classes":
        return {"classes": np.array(met.classes)}
    if SCORES.find(metric).asks == "anchor":
        return anchor_of(agent._world, agent._row, task)
    rows = key(agent.seed, agent.number, "modmod", task).permutation(met.validation)
    labels = agent.local(task, rows)
    some = [rows[labels == one][:examples] for one in np.unique(labels)]
    # One of each class in turn: if not all fits the budget, all classes are still there.
    turns = np.concatenate([np.arange(len(one)) for one in some])
    chosen = np.concatenate(some)[np.argsort(turns, kind="stable")]
    return {"images": chosen, "labels": agent.local(task, chosen)}


def known(agent: Present, task: int, metric: str) -> Pair:
    """What an agent knows of one of its own tasks, as far as a metric reads it."""
    found = Pair(mine=torch.tensor(agent.tasks[task].classes))
    if SCORES.find(metric).asks == "anchor":
        return found._replace(own_anchor=own_anchor(agent._world, agent._row, task))
    if not SCORES.find(metric).compares:
        return found
    own = agent.held
    here = own.task == task
    labels = torch.from_numpy(agent.local(task, own.rows[here]))
    return found._replace(own=agent.net.features(own.x[here], task), own_labels=labels)


def seen(agent: Present, asked: Mapping[str, Tensor], task: int, metric: str) -> Pair:
    """The coming task of a neighbour seen through one of an agent's own."""
    found: Pair = agent.once(f"known {task}", lambda: known(agent, task, metric))
    if SCORES.find(metric).asks == "classes":
        return found._replace(theirs=asked["classes"].long())
    if SCORES.find(metric).asks == "anchor":
        return found._replace(anchor=stacked(asked))
    features = agent.net.features(agent.read(asked["images"]), task)
    classes = len(found.mine)  # of a head's outputs, the first so many; a task can have fewer than others
    weight, bias = (whole(agent.net.params[name])[task][:classes] for name in agent.model.heads)
    found = found._replace(logits=F.linear(features, weight, bias), features=features)
    return found._replace(labels=asked["labels"].long()) if SCORES.find(metric).asks == "labelled" else found


def promise(agent: Present, asked: Mapping[str, Tensor], task: int, metric: str) -> float:
    """How well the module of an agent's task promises to transfer; NaN, where that cannot be said of what was asked."""
    try:
        return SCORES.find(metric).score(seen(agent, asked, task, metric))
    except UserError:
        return np.nan
