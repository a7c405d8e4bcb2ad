"""The laws of transferability scores."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from shoal.contracts.fleets import fleet, listed
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED
from shoal.models.table import GROWTH, MODELS
from shoal.sharing.scores import SCORES, Metric, Pair

CLASSES, IMAGES, FEATURES = 3, 24, 5


@contextmanager
def laws(metric: str | Metric) -> Iterator[list[Law]]:
    """The laws of a score."""
    with listed(SCORES, metric) as name, finishes(f"`{name}`"):
        yield laws_of(LAWS, name, SCORES.find(name))


def pair(metric: Metric, alike: bool) -> Pair:
    """A coming task and an own one, as far as a metric may read them: the same classes and images that look the same,
    or others."""
    rng = torch.Generator().manual_seed(3)
    labels = torch.arange(IMAGES) % CLASSES
    centres = 3 * torch.eye(CLASSES, FEATURES)
    own = centres[labels] + 0.1 * torch.randn(IMAGES, FEATURES, generator=rng)
    theirs = own + 0.01 * torch.randn(IMAGES, FEATURES, generator=rng)
    if not alike:
        theirs = 2 + torch.randn(IMAGES, FEATURES, generator=rng)
    found = Pair(mine=torch.arange(CLASSES))
    if metric.compares:
        found = found._replace(own=own, own_labels=labels)
    if metric.asks == "classes":
        return found._replace(theirs=torch.arange(CLASSES) + (0 if alike else 100))
    if metric.asks == "anchor":
        mine, other = (torch.stack([rows.mean(0), rows.std(0, correction=0)]) for rows in (own, theirs))
        return found._replace(anchor=other, own_anchor=mine)
    found = found._replace(features=theirs, logits=theirs[:, :CLASSES])
    return found._replace(labels=labels) if metric.asks == "labelled" else found


def it_reads_what_a_question_holds(name: str, metric: Metric) -> None:
    for alike in (True, False):
        given = pair(metric, alike)
        before = [tensor.clone() for tensor in given]
        found = metric.score(given)
        law(isinstance(found, float) and isfinite(found), f"`{name}` is a finite float, got {found!r}")
        law(all(map(torch.equal, given, before)), f"`{name}` changes what it reads")
        law(metric.score(given) == found, f"`{name}` is another number for the same pair of tasks")


def it_is_larger_for_a_task_that_is_alike(name: str, metric: Metric) -> None:
    near, far = (metric.score(pair(metric, alike)) for alike in (True, False))
    law(near > far, f"`{name}` is larger for a task that is alike: it is {near:.3g} there and {far:.3g} for another")


def it_does_not_depend_on_the_order_of_images(name: str, metric: Metric) -> None:
    given = pair(metric, alike=True)
    order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(1))

    def turned(tensor: Tensor) -> Tensor:
        return tensor[order] if len(tensor) == IMAGES else tensor

    theirs = {word: turned(getattr(given, word)) for word in ("labels", "logits", "features")}
    gap = abs(metric.score(given._replace(**theirs)) - metric.score(given))
    law(gap < 1e-4, f"`{name}` does not depend on the order of images, but it changes by {gap:.3g}")


def agents_choose_modules_by_it(name: str, metric: Metric) -> None:
    """Mail flows if every module is good enough."""
    model = next(model for model in MODELS if MODELS[model].learner == GROWTH)
    sharing: list[dict[str, Any]] = [{"mode": "modmod", "metric": name, "min_similarity": -1e9, "examples": 3}]
    ledger = simulate(fleet(model, agents=2, learner={"epochs": 2}, sharing=sharing)).ledger
    sent = ledger.among("kind", ["modules"]) & ledger.among("verdict", [ACCEPTED])
    law(bool(sent.any()), f"`{name}`: agents offer each other modules by it, but none was accepted")


LAWS: tuple[Callable[[str, Metric], None], ...] = (
    it_reads_what_a_question_holds,
    it_is_larger_for_a_task_that_is_alike,
    it_does_not_depend_on_the_order_of_images,
    agents_choose_modules_by_it,
)
