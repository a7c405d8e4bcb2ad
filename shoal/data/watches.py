"""Exercises of the shoulder by smartwatch, ten people: data that the package seglearn carries."""

from collections.abc import Mapping
from io import BytesIO

import numpy as np

from shoal.data.bank import Bank
from shoal.data.carried import Carried
from shoal.data.dataset import Content, Dataset
from shoal.data.sources.arrays import bank_of

WINDOW = 100  # samples, 2 seconds
TESTED = 4  # the last one of so many parts of a recording is to test on
FILE = "data/watch_dataset.npy"
# The order in which everybody learns them: two or three exercises at a time.
TASKS = {"PEN": 0, "ABD": 0, "FEL": 0, "IR": 1, "ER": 1, "TRAP": 2, "ROW": 2}


def read(name: str, contents: Mapping[str, Content]) -> Bank:
    """The bank of 2,369 windows [6, 100], acceleration and rotation in three directions at 50 Hz, that do not overlap.

    A site is a person, a task a few exercises. The end of every recording is to test on: no test window lies between
    windows that are learned from.
    """
    # The file is a pickle; it is opened because its digest is that of the file that was looked at.
    found = np.load(BytesIO(contents[FILE].data), allow_pickle=True).item()
    rows, labels, people, tests = [], [], [], []
    for series, exercise, person in zip(found["X"], found["y"], found["subject"], strict=True):
        count = len(series) // WINDOW
        rows.append(series[: count * WINDOW].reshape(count, WINDOW, -1).transpose(0, 2, 1))
        labels += [found["y_labels"][exercise]] * count
        people += [f"person {person:02}"] * count
        tests += (np.arange(count) >= count - max(1, count // TESTED)).tolist()
    tasks = [TASKS[label] for label in labels]
    return bank_of(name, np.concatenate(rows).astype(np.float32), labels, agent=people, task=tasks, test=tests)


WATCHES = Dataset(
    name="watches",
    about="exercises of 10 people by smartwatch, 2,369 windows of 6 signals, 7 classes; in the package seglearn",
    licence="BSD-3-Clause (seglearn)",
    citation="Burns et al.: Shoulder physiotherapy exercise recognition. Physiological Measurement 39, 2018",
    read=read,
    carried=Carried(
        "seglearn",
        FILE,
        18118091,
        "3b521c1ec3f488d08f422affb40ffa6eaaa33a5999aab545ca33ef50f3fb09d2",
        'pip install "shoal[watches]"',
    ),
    says={
        "agents": 10,
        "tasks": {
            "scenario": "given", "common": False, "initial": 1, "train": "all", "validation": "all", "count": 3,
            "classes": 3,
        },
    },
)  # fmt: skip
