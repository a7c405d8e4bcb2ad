"""Streams: the paper's tasks, each agent's own split, common starts, class ids that mean one class."""

import numpy as np
import pytest

from shoal import data
from shoal.data import Bank, join
from shoal.data.tasks import JOINT, Lane, Stream, common_start, draw, draw_classes, streams
from shoal.settings.groups import Tasks
from tests.fleets import colours

SMALL = Tasks(count=6, train=20, validation=10)


def bank() -> Bank:
    return data.load("digits")


def mixed() -> Bank:
    return join([colours(name) for name in ("red", "green", "blue")], "mixed")


def test_a_stream_is_a_sequence() -> None:
    stream = draw(bank(), SMALL, Lane(0, 0))
    assert len(stream) == 6
    assert stream[-1] is stream[5]
    assert isinstance(stream[2:4], Stream)
    assert [task.classes for task in stream[2:4]] == [task.classes for task in stream][2:4]


def test_splits_are_disjoint_and_labels_in_range() -> None:
    digits = bank()
    for agent in range(4):
        stream = draw(digits, SMALL, Lane(3, agent))
        train = np.concatenate([task.train for task in stream])
        held = np.concatenate([task.validation for task in stream])
        assert not set(train) & set(held)
        assert not digits.test[train].any()
        assert not digits.test[held].any()
        for task in stream:
            assert digits.test[task.test].all()
            for rows, size in ((task.train, 40), (task.validation, 20), (task.test, len(task.test))):
                assert len(rows) == len(set(rows)) == size
                assert set(digits.labels[rows]) <= set(task.classes)
                assert set(task.labels(digits, rows)) <= {0, 1}


def test_all_test_images_of_a_task_are_used() -> None:
    digits = bank()
    task = draw(digits, SMALL, Lane(0, 0))[0]
    assert set(task.test) == set(np.flatnonzero(digits.test & np.isin(digits.labels, task.classes)))


def test_labels_follow_the_order_of_the_draw() -> None:
    digits = bank()
    stream = draw(digits, Tasks(count=40, train=5, validation=5), Lane(0, 0))
    turned = [task for task in stream if task.classes[0] > task.classes[1]]
    assert turned, "with 40 draws some must come in falling order"
    rows = turned[0].train
    assert (task_label := turned[0].labels(digits, rows)[0]) == turned[0].classes.index(int(digits.labels[rows[0]]))
    assert task_label in (0, 1)


def test_counts_per_class_are_not_stratified() -> None:
    digits = bank()
    counts = {int((task.labels(digits, task.train) == 0).sum()) for task in draw(digits, SMALL, Lane(0, 0))}
    assert len(counts) > 1


def test_agents_and_seeds_have_their_own_splits_and_classes() -> None:
    digits = bank()
    one, other, later = (draw(digits, SMALL, lane) for lane in (Lane(0, 0), Lane(0, 1), Lane(1, 0)))
    for stranger in (other, later):
        assert [task.classes for task in one] != [task.classes for task in stranger]
        assert not np.array_equal(one[0].train, stranger[0].train)


def test_with_replacement_classes_come_back_and_differ_within_a_task() -> None:
    drawn = draw_classes(np.arange(10), Tasks(count=50), np.random.default_rng(0))
    assert all(len(set(classes)) == 2 for classes in drawn)
    assert len({c for classes in drawn for c in classes}) == 10
    # Uniform over ordered pairs: each class is in a fifth of the tasks, on average.
    many = draw_classes(np.arange(10), Tasks(count=5000), np.random.default_rng(0))
    share = np.bincount(np.array(many).ravel(), minlength=10) / 5000
    np.testing.assert_allclose(share, 0.2, atol=0.02)


def test_without_replacement_no_class_comes_back() -> None:
    rule = Tasks(count=20, classes=5, replacement=False)
    drawn = draw_classes(np.arange(100), rule, np.random.default_rng(0))
    assert sorted(c for classes in drawn for c in classes) == list(range(100))


def test_more_tasks_than_classes_allow_is_refused() -> None:
    rule = Tasks(count=6, classes=2, replacement=False)
    with pytest.raises(ValueError, match=r"needs 12 classes, the data has 10; ask for fewer"):
        draw_classes(np.arange(10), rule, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"tasks\.classes = 11 needs 11 classes, the data has 10"):
        draw_classes(np.arange(10), Tasks(classes=11), np.random.default_rng(0))


def test_more_images_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tasks\.train = 500 per class asks for 1000 images .* ask for fewer"):
        draw(bank(), Tasks(count=2, train=500, validation=5), Lane(0, 0))


def test_all_validation_images_can_be_asked_for() -> None:
    digits = bank()
    few = draw(digits, SMALL, Lane(0, 0))[0].validation
    every = draw(digits, Tasks(count=6, train=20, validation="all"), Lane(0, 0))[0].validation
    assert len(every) > len(few)
    assert np.array_equal(every[: len(few)], few)


def test_a_common_start_replaces_the_first_tasks_of_every_agent() -> None:
    digits = bank()
    rule = SMALL.model_copy(update={"common": True})
    first, second, joint, elsewhere = streams(digits, rule, [Lane(0, 0), Lane(0, 1), Lane(0, JOINT), Lane(1, 0)])
    assert len(joint) == rule.initial
    for t in range(rule.initial):
        assert first[t] is second[t] is joint[t]
        assert elsewhere[t] is not first[t]
    own = draw(digits, rule, Lane(0, 1))
    assert [task.classes for task in second[4:]] == [task.classes for task in own[4:]]


def test_without_a_common_start_every_task_is_the_agents_own() -> None:
    digits = bank()
    (first,) = streams(digits, SMALL.model_copy(update={"common": False}), [Lane(0, 0)])
    assert [task.classes for task in first] == [task.classes for task in draw(digits, SMALL, Lane(0, 0))]


def test_mixed_sources_have_class_ids_of_their_own() -> None:
    three = mixed()
    rule = Tasks(count=6, train=8, validation=4)
    for agent in range(6):
        classes = {c for task in draw(three, rule, Lane(0, agent)) for c in task.classes}
        assert {c // 10 for c in classes} == {agent % 3}


def test_a_mixed_common_start_takes_task_i_from_agent_i() -> None:
    three = mixed()
    rule = Tasks(count=6, train=8, validation=4)
    start = common_start(three, rule, seed=0)
    assert [task.classes[0] // 10 for task in start] == [0, 1, 2, 0]
    for i, task in enumerate(start):
        assert task.classes == draw(three, rule, Lane(0, i))[i].classes


def test_a_task_that_nobody_meets_is_no_reason_to_refuse() -> None:
    """With a common start an agent's own first tasks are replaced: whether they could be filled does not matter."""
    digits = bank()
    rule = Tasks(count=8, train=32, validation=15, common=True)
    with pytest.raises(ValueError, match=r"tasks\.validation = 15 per class .* agent 2 of seed 11"):
        draw(digits, rule, Lane(11, 2))
    (stream,) = streams(digits, rule, [Lane(11, 2)])
    assert len(stream) == 8
