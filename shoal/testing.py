"""Contracts for what is your own: `check` runs the laws one by one, prints which hold, and raises AssertionError if one
does not.

    from shoal.testing import check

    def test_my_mode_keeps_the_laws():
        check(Gossip)

`check_mode` and the others stop at the first law that is broken. Each takes a name of a table,
`package.module:Name`, or the thing itself, and runs small fleets on the digits or made-up images, for some seconds. A
mode or learner that needs settings to act soon in a fleet of a few agents, tasks and epochs says them in its `example`.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError

if TYPE_CHECKING:
    from shoal.contracts.law import Law
    from shoal.data import Bank
    from shoal.data.dataset import Dataset
    from shoal.data.draws import Scenario
    from shoal.data.sources import Data
    from shoal.learners.contract import Learner
    from shoal.network.graphs import Draw
    from shoal.runs.metrics import Metric as Measure
    from shoal.sharing.combine import Rule
    from shoal.sharing.contract import Sharing
    from shoal.sharing.scores import Metric

__all__ = [
    "check",
    "check_dataset",
    "check_graph",
    "check_learner",
    "check_metric",
    "check_mode",
    "check_model",
    "check_rule",
    "check_scenario",
    "check_score",
]

# What can be checked; the laws of each are in `shoal.contracts`, in the file of its plural.
KINDS = ("mode", "learner", "model", "graph", "score", "rule", "scenario", "metric", "dataset")


def check(thing: Any, kind: str = "", model: str | None = None, tell: Callable[[str], None] = print) -> None:
    """Check anything of your own: say of each law whether it holds, and raise AssertionError with all that do not.

    `thing` is a mode or a learner (a class, or an object with its settings), a model (an `nn.Module` class, a function
    that makes a net, what `shoal.modular` gives), a graph, a scenario, a score, a rule, a metric, or data
    (`shoal.Data`); or the name of one, `package.module:Name` too, and then `kind` says what it is: mode, learner,
    model, graph, score, rule, scenario, metric or dataset. Modes and learners are checked in fleets of a `model`, or of
    the first that they suit.

    >>> from shoal.testing import check
    >>> def last(run):
    ...     "The accuracy of the last task at its end."
    ...     return 100 * run.accuracy[:, -1, -1, -1]
    >>> check(last, "metric", tell=lambda line: None)
    """
    kind = kind or kind_of(thing)
    if kind not in KINDS:
        raise UserError(f"`{kind}` is nothing that can be checked; allowed: {', '.join(KINDS)}")
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", type(thing).__name__)
    tell(f"the {kind} {name}")
    broken, count = [], 0
    for title, fault in verdicts(kind, thing, model):
        count += 1
        tell(f"  {'broken' if fault else 'holds '}  {title}{f': {fault}' if fault else ''}")
        broken += [f"{title}: {fault}"] if fault else []
    tell(f"{count - len(broken)} of {count} laws hold")
    if broken:
        raise AssertionError(f"the {kind} {name} breaks {len(broken)} of {count} laws:\n" + "\n".join(broken))


def laws(kind: str, *given: Any) -> "AbstractContextManager[list[Law]]":
    """The laws of something of a kind."""
    found: AbstractContextManager[list[Law]] = import_module(f"shoal.contracts.{kind}s").laws(*given)
    return found


def keeps(kind: str, *given: Any) -> None:
    """Raise at the first law that something breaks."""
    with laws(kind, *given) as found:
        for law in found:
            law.holds()


def verdicts(kind: str, thing: Any, model: str | None) -> Iterator[tuple[str, str]]:
    """Every law of something, in words, and what is broken; empty: nothing."""
    given = ((thing,) if kind == "mode" else thing, *([model] if kind in ("mode", "learner") else []))
    begun = False
    with told() as refused, laws(kind, *given) as found:
        for law in found:
            begun = True
            with told() as fault:
                law.holds()
            yield law.title, "".join(fault)
    if not begun:
        yield "it can be used in a small fleet", "".join(refused)


@contextmanager
def told() -> Iterator[list[str]]:
    """What goes wrong inside, in words: a stranger's code can fail in any way."""
    fault: list[str] = []
    try:
        yield fault
    except (AssertionError, UserError) as error:
        fault.append(str(error) or "an assertion failed")
    except Exception as error:
        where = inspect.trace()[-1]
        place = f"{where.filename}:{where.lineno}"
        fault.append(f"it ends in {type(error).__name__}: {error} ({place})".replace("\n", " "))


def kind_of(thing: Any) -> str:
    """What something is, by what it looks like."""
    from shoal.data import Bank
    from shoal.data.dataset import Dataset
    from shoal.data.sources import Data
    from shoal.learners.contract import Learner
    from shoal.models.makers import makes_nets
    from shoal.models.table import Entry
    from shoal.sharing.combine import Rule
    from shoal.sharing.contract import Sharing
    from shoal.sharing.scores import Metric

    if isinstance(thing, str):
        raise UserError(f"`{thing}` is a name, and `kind` must say of what: {', '.join(KINDS)}")
    own = thing if isinstance(thing, type) else type(thing)
    bases: dict[str, type | tuple[type, ...]] = {
        "mode": Sharing,
        "learner": Learner,
        "model": Entry,
        "score": Metric,
        "rule": Rule,
        "dataset": (Data, Bank, Dataset),
    }
    for kind, base in bases.items():
        if issubclass(own, base):
            return kind
    if makes_nets(thing):
        return "model"
    if callable(thing) and not isinstance(thing, type):
        count = len(inspect.signature(thing).parameters)
        if count == 1:
            return "metric"
        if count == 3:
            return "graph" if draws(thing) else "scenario"
    raise UserError(f"{thing!r} looks like nothing that can be checked; say its `kind`: {', '.join(KINDS)}")


def draws(thing: Callable[..., Any]) -> bool:
    """Does a function draw a graph of three agents?"""
    import networkx as nx  # type: ignore[import-untyped]
    import numpy as np

    try:
        return isinstance(thing(3, 0.5, np.random.default_rng(0)), nx.Graph)
    except Exception:  # it may be anything
        return False


def check_mode(*modes: "str | type[Sharing] | Sharing", model: str | None = None) -> None:
    """Check a sharing mode, or several that act together, in fleets of a model, or of the first that it suits.

    Mail changes what is learned; the ledger weighs what was packed; the same seed is the same run; strangers, seeds and
    agents without mail are as alone, and so are all without edges or budget; an edge leads one way; stopped, saved and
    resumed it ends the same; cut into several stacks too, with the same ledger; quotes are upper bounds, also under
    budgets in bytes and per task, which hold; bad mail is refused and is as if it had never come; `loop` and `vmap`
    agree.
    """
    keeps("mode", modes, model)


def check_learner(learner: "str | type[Learner] | Learner", model: str | None = None) -> None:
    """Check a learner on nets of a model, or of the first that it suits.

    It learns something; the same seed is the same run; a lane does not depend on its neighbours, nor on the number of
    threads; stopped, saved and resumed it ends the same; `loop` and `vmap` agree; it learns with what others send.
    """
    keeps("learner", learner, model)


def check_model(model: Any, bank: "Bank | None" = None) -> None:
    """Check a model (a name, an `nn.Module` class, an entry of the table) on the rows of a bank, or on what it can
    read: the digits, or colour images [3, 16, 16].

    It draws what it says, from the generator alone; features and logits have their shapes, for one task or each
    image's own, and a trimmed or composed net agrees; `loop` and `vmap` agree, or it says why not; it learns alone,
    from others' images and with others' weights.
    """
    keeps("model", model, bank)


def check_graph(graph: "str | Draw") -> None:
    """Check a topology: an undirected graph of all agents, the same from the same generator; mail goes over its edges
    and nowhere else, and who has none learns as alone."""
    keeps("graph", graph)


def check_score(metric: "str | Metric") -> None:
    """Check a score of modules: a finite number of what a question holds and nothing else, larger for a task that is
    alike, whatever the order of images; agents can choose modules by it."""
    keeps("score", metric)


def check_rule(rule: "str | Rule") -> None:
    """Check a rule that makes one model of several: of equal models that model, whatever the order of agents; with as
    many liars as it says to bear, it ends near honest models; agents can average by it."""
    keeps("rule", rule)


def check_scenario(scenario: "str | Scenario", bank: "Bank | None" = None) -> None:
    """Check a scenario on a bank, or on the digits, or on rows of three sites with tasks and times.

    The same settings are the same streams, whoever else is there; streams have the right length; training, validation
    and test rows are apart, and of the classes of their task; a fleet learns on them.
    """
    keeps("scenario", scenario, bank)


def check_metric(metric: "str | Measure") -> None:
    """Check a metric: one finite number per lane, or NaN, whatever the other lanes are and however long their streams;
    it does not change what it reads, and is in every summary."""
    keeps("metric", metric)


def check_dataset(dataset: "str | Dataset | Bank | Data") -> None:
    """Check data: it is the same when it is read again, every class has training and test rows, every source has rows,
    and a fleet learns from it."""
    keeps("dataset", dataset)
