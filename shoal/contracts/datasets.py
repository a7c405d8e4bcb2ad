"""The laws of datasets and of data of one's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import data
from shoal.agents.worlds import world
from shoal.contracts.fleets import LEARNER, NET
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.data import DATASETS, Bank
from shoal.data.dataset import Dataset
from shoal.data.sources import Data
from shoal.fleet.run import simulate
from shoal.settings.groups import Settings

Own = str | Dataset | Bank | Data


@contextmanager
def laws(dataset: Own) -> Iterator[list[Law]]:
    """The laws of data."""
    read = reader(dataset)
    with finishes("the data"):
        bank = read()
        yield laws_of(LAWS, Case(bank, read, dataset.says() if isinstance(dataset, Data) else {}))


def reader(dataset: Own) -> Callable[[], Bank]:
    """What reads the data again."""
    if isinstance(dataset, Bank):
        return lambda: dataset
    if isinstance(dataset, Data):
        return lambda: dataset.bank
    if isinstance(dataset, str):
        return lambda: data.load(dataset)

    def read() -> Bank:
        DATASETS.add("checked", dataset)
        try:
            return data.load("checked")
        finally:
            DATASETS.remove("checked")

    return read


@dataclass
class Case:
    """Data under test: its bank, what reads it again, and what it says of a fleet."""

    bank: Bank
    read: Callable[[], Bank]
    says: dict[str, Any]

    @property
    def what(self) -> str:
        return f"`{self.bank.name}`"


def read_again_it_is_the_same(case: Case) -> None:
    law(case.read().digest == case.bank.digest, f"{case.what} is other data when it is read again")


def every_class_can_be_learned_and_tested(case: Case) -> None:
    for at, name in enumerate(case.bank.classes):
        here = case.bank.labels == at
        law(bool((here & ~case.bank.test).any()), f"{case.what} has no training rows of class `{name}`")
        law(bool((here & case.bank.test).any()), f"{case.what} has no test rows of class `{name}`")


def every_source_has_rows(case: Case) -> None:
    for at, name in enumerate(case.bank.sources):
        law(bool((case.bank.source == at).any()), f"{case.what} has no rows of the source `{name}`")


def rows_differ_from_each_other(case: Case) -> None:
    some = case.bank.images[:: max(1, len(case.bank) // 100)]
    law(len(np.unique(some.reshape(len(some), -1), axis=0)) > 1, f"{case.what}: all rows are the same")


def a_fleet_learns_from_it(case: Case) -> None:
    bank = case.bank
    tasks = {"count": 2, "classes": min(2, len(bank.classes)), "initial": 1, "train": 3, "validation": 1}
    said = {"model": "mlp", "agents": len(bank.sources) * 2, **case.says}
    few = {"tasks": {**tasks, "common": False, **case.says.get("tasks", {})}, "net": NET}
    made = world(Settings(**{**said, **few, "learner": {**LEARNER, "epochs": 2, "memory": 1}}), bank)
    last = simulate(made).accuracy[:, -1, -1]
    law(bool((last == last).any()), f"{case.what}: tasks are tested at the end")


LAWS: tuple[Callable[[Case], None], ...] = (
    read_again_it_is_the_same,
    every_class_can_be_learned_and_tested,
    every_source_has_rows,
    rows_differ_from_each_other,
    a_fleet_learns_from_it,
)
