"""The laws of rules that make one model of several."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite

import numpy as np

from shoal.contracts.fleets import difference, fleet, listed
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED
from shoal.models.table import MODELS
from shoal.sharing.combine import RULES, Array, Heard, Rule

WEIGHTS, LIE = 30, 1e6


@contextmanager
def laws(rule: str | Rule) -> Iterator[list[Law]]:
    """The laws of a rule."""
    with listed(RULES, rule) as name, finishes(f"`{name}`"):
        yield laws_of(LAWS, name, RULES.find(name))


def around(count: int, own: int = 0, tolerates: int = 1) -> Heard:
    """So many models that differ a little from each other."""
    rng = np.random.default_rng(5)
    models = np.linspace(-1, 1, WEIGHTS) + 0.1 * rng.standard_normal((count, WEIGHTS))
    return Heard(models.astype(np.float32).astype(np.float64), own, tolerates, None)


def it_makes_one_model_and_changes_none(name: str, rule: Rule) -> None:
    for count in range(2, 10):
        for tolerates in (0, 1, count):
            heard = around(count, count - 1, tolerates)
            before = heard.models.copy()
            found = rule.combine(heard)
            fine = isinstance(found, np.ndarray) and found.shape == (WEIGHTS,) and bool(np.isfinite(found).all())
            law(fine, f"`{name}` makes one model of {count} with finite weights [{WEIGHTS}], got {found!r}")
            law(np.array_equal(before, heard.models), f"`{name}` changes the models that it reads")
            law(np.array_equal(found, rule.combine(heard)), f"`{name}` makes another model of the same ones")


def of_equal_models_it_makes_that_model(name: str, rule: Rule) -> None:
    for count in range(2, 10):
        heard = around(count)
        same = heard._replace(models=np.repeat(heard.models[:1], count, 0))
        found = rule.combine(same).astype(np.float32)
        law(np.array_equal(found, same.models[0].astype(np.float32)), f"`{name}` of {count} equal models is that model")


def it_stays_among_the_models(name: str, rule: Rule) -> None:
    heard = around(7)
    gap = far(rule.combine(heard), heard.models)
    law(gap <= spread(heard.models), f"`{name}` of models that are near each other is {gap:.3g} away from the nearest")


def it_does_not_depend_on_the_order_of_agents(name: str, rule: Rule) -> None:
    heard = around(7, own=2)
    order = np.random.default_rng(1).permutation(7)
    turned = heard._replace(models=heard.models[order], own=int(np.argmax(order == 2)))
    gap = np.abs(rule.combine(heard) - rule.combine(turned)).max()
    law(gap < 1e-9, f"`{name}` does not depend on the order of agents, but it changes by {gap:.3g}")


def agents_that_hear_the_same_get_the_same_if_it_says_so(name: str, rule: Rule) -> None:
    if rule.common:
        found = [rule.combine(around(6, own)) for own in range(6)]
        law(all(np.array_equal(found[0], one) for one in found), f"`{name}` looks at whose model is the agent's own")


def it_bears_the_liars_that_it_says(name: str, rule: Rule) -> None:
    """Whatever they say: honest agents end near honest models."""
    for liars in (1, 2, 3):
        count = rule.needs(liars)
        if not isfinite(count):
            continue
        heard = around(int(count), tolerates=liars)
        honest = heard.models[: int(count) - liars]
        for lie in (LIE, -LIE, -10 * heard.models[-1]):
            models = heard.models.copy()
            models[len(honest) :] = lie
            gap = far(rule.combine(heard._replace(models=models)), honest)
            most = 4 * max(spread(honest), float(np.linalg.norm(honest[0] - honest.mean(0))), 0.5)
            law(gap <= most, f"`{name}` bears {liars} of {count} models being lies, but it ends {gap:.3g} away")


def agents_average_by_it(name: str, rule: Rule) -> None:
    """All mail at once as arrays, and one by one where a link has a limit, be it one that nobody reaches."""
    model = next(iter(MODELS))
    sharing = [{"mode": "fedavg", "every": 2, "combine": name}]
    found = []
    for budget in ("unlimited", "1 GB"):
        network = {"budget": budget}
        found.append(simulate(fleet(model, agents=5, learner={"epochs": 4}, sharing=sharing, network=network)))
        sent = found[-1].ledger.among("verdict", [ACCEPTED])
        law(bool(sent.any()), f"`{name}`: agents send models, but none was accepted")
    gap = difference(found[0], found[1])
    law(not gap, f"`{name}` makes the same of mail in a bundle and one by one, but `{gap}` differs")


def far(found: Array, models: Array) -> float:
    """How far a model is from the nearest of some."""
    return float(np.linalg.norm(models - found, axis=1).min())


def spread(models: Array) -> float:
    """How far the two of some models that are farthest apart are from each other."""
    return float(np.linalg.norm(models[:, None] - models[None], axis=2).max())


LAWS: tuple[Callable[[str, Rule], None], ...] = (
    it_makes_one_model_and_changes_none,
    of_equal_models_it_makes_that_model,
    it_stays_among_the_models,
    it_does_not_depend_on_the_order_of_agents,
    agents_that_hear_the_same_get_the_same_if_it_says_so,
    it_bears_the_liars_that_it_says,
    agents_average_by_it,
)
