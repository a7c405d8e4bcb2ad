"""Contracts for what is your own: call one in a test, and it raises AssertionError with the law that is broken.

    from shoal.testing import check_mode

    def test_my_mode_keeps_the_laws():
        check_mode(Gossip)

Each takes a name of a table, `package.module:Name`, or the thing itself, and runs small fleets on the digits or on
made-up images, for some seconds. A mode or learner that needs settings to act soon in a fleet of a few agents, tasks
and epochs says them in its `example`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.data import Bank
    from shoal.learners.contract import Learner
    from shoal.models.table import Entry
    from shoal.network.graphs import Draw
    from shoal.sharing.contract import Sharing
    from shoal.sharing.scores import Metric

__all__ = ["check_graph", "check_learner", "check_mode", "check_model", "check_score"]


def check_mode(*modes: "str | type[Sharing] | Sharing", model: str | None = None) -> None:
    """Check a sharing mode, or several that act together, in fleets of a model, or of the first that it suits.

    Mail changes what is learned; the ledger weighs what was packed; the same seed is the same run; strangers, seeds and
    agents without mail are as alone, and so are all without edges or budget; an edge leads one way; stopped, saved and
    resumed it ends the same; cut into several stacks too, with the same ledger; quotes are upper bounds, also under
    budgets in bytes and per task, which hold; bad mail is refused and is as if it had never come; `loop` and `vmap`
    agree.
    """
    from shoal.contracts.modes import check

    check(modes, model)


def check_learner(learner: "str | type[Learner] | Learner", model: str | None = None) -> None:
    """Check a learner on nets of a model, or of the first that it suits.

    It learns something; the same seed is the same run; a lane does not depend on its neighbours, nor on the number of
    threads; stopped, saved and resumed it ends the same; `loop` and `vmap` agree; it learns with what others send.
    """
    from shoal.contracts.learners import check

    check(learner, model)


def check_model(model: "str | Entry", bank: "Bank | None" = None) -> None:
    """Check a model on the images of a bank, or on what it can read: the digits, or colour images [3, 16, 16].

    It draws what it says, from the generator alone; features and logits have their shapes, for one task or each
    image's own, and a trimmed or composed net agrees; `loop` and `vmap` agree, or it says why not; it learns alone,
    from others' images and with others' weights.
    """
    from shoal.contracts.models import check

    check(model, bank)


def check_graph(graph: "str | Draw") -> None:
    """Check a topology: an undirected graph of all agents, the same from the same generator; mail goes over its edges
    and nowhere else, and who has none learns as alone."""
    from shoal.contracts.graphs import check

    check(graph)


def check_score(metric: "str | Metric") -> None:
    """Check a score of modules: a finite number of what a question holds and nothing else, larger for a task that is
    alike, whatever the order of images; agents can choose modules by it."""
    from shoal.contracts.scores import check

    check(metric)
