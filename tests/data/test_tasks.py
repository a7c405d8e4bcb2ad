"""Streams: the paper's tasks, each agent's own split, common starts, class ids that mean one class."""

import numpy as np
import pytest

from shoal import data
from shoal.configure.reading import resolve
from shoal.data import Bank, join
from shoal.data.by_classes import Split, common_start, drawn, own
from shoal.data.draws import lots
from shoal.data.scenarios import streams
from shoal.data.tasks import JOINT, Lane, Stream
from shoal.errors import SettingsError
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks
from tests.fleets import colours

SMALL = Tasks(count=6, train=20, validation=10)


def bank() -> Bank:
    return data.load("digits")


def mixed() -> Bank:
    return join([colours(name) for name in ("red", "green", "blue")], "mixed")


def stream_of(bank: Bank, tasks: Tasks, lane: Lane) -> Stream:
    """A lane's own stream."""
    return own(bank, tasks, lane, lots(bank, fleet(tasks), drawn)(lane))


def fleet(tasks: Tasks, agents: int = 8) -> Settings:
    return Settings(agents=agents).model_copy(update={"tasks": tasks})


def test_a_stream_is_a_sequence() -> None:
    stream = stream_of(bank(), SMALL, Lane(0, 0))
    assert len(stream) == 6
    assert stream[-1] is stream[5]
    assert isinstance(stream[2:4], Stream)
    assert [task.classes for task in stream[2:4]] == [task.classes for task in stream][2:4]


def test_splits_are_disjoint_and_labels_in_range() -> None:
    digits = bank()
    for agent in range(4):
        stream = stream_of(digits, SMALL, Lane(3, agent))
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
    task = stream_of(digits, SMALL, Lane(0, 0))[0]
    assert set(task.test) == set(np.flatnonzero(digits.test & np.isin(digits.labels, task.classes)))


def test_labels_follow_the_order_of_the_draw() -> None:
    digits = bank()
    stream = stream_of(digits, Tasks(count=40, train=5, validation=5), Lane(0, 0))
    turned = [task for task in stream if task.classes[0] > task.classes[1]]
    assert turned, "with 40 draws some must come in falling order"
    rows = turned[0].train
    assert (task_label := turned[0].labels(digits, rows)[0]) == turned[0].classes.index(int(digits.labels[rows[0]]))
    assert task_label in (0, 1)


def test_counts_per_class_are_not_stratified() -> None:
    digits = bank()
    counts = {int((task.labels(digits, task.train) == 0).sum()) for task in stream_of(digits, SMALL, Lane(0, 0))}
    assert len(counts) > 1


def test_agents_and_seeds_have_their_own_splits_and_classes() -> None:
    digits = bank()
    one, other, later = (stream_of(digits, SMALL, lane) for lane in (Lane(0, 0), Lane(0, 1), Lane(1, 0)))
    for stranger in (other, later):
        assert [task.classes for task in one] != [task.classes for task in stranger]
        assert not np.array_equal(one[0].train, stranger[0].train)


def test_with_replacement_classes_come_back_and_differ_within_a_task() -> None:
    found = drawn(np.arange(10), Tasks(count=50), Lane(0, 0), key(0))
    assert all(len(set(classes)) == 2 for classes in found)
    assert len({c for classes in found for c in classes}) == 10
    # Uniform over ordered pairs: each class is in a fifth of the tasks, on average.
    many = drawn(np.arange(10), Tasks(count=5000), Lane(0, 0), key(0))
    share = np.bincount(np.array(many).ravel(), minlength=10) / 5000
    np.testing.assert_allclose(share, 0.2, atol=0.02)


def test_without_replacement_no_class_comes_back() -> None:
    rule = Tasks(count=20, classes=5, replacement=False)
    found = drawn(np.arange(100), rule, Lane(0, 0), key(0))
    assert sorted(c for classes in found for c in classes) == list(range(100))


def test_more_tasks_than_classes_allow_is_refused() -> None:
    rule = Tasks(count=6, classes=2, replacement=False)
    with pytest.raises(ValueError, match=r"needs 12 classes, the data has 10; ask for fewer"):
        drawn(np.arange(10), rule, Lane(0, 0), key(0))
    with pytest.raises(ValueError, match=r"tasks\.classes = 11 needs 11 classes, the data has 10"):
        drawn(np.arange(10), Tasks(classes=11), Lane(0, 0), key(0))


def test_more_images_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tasks\.train = 500 per class asks for 1000 rows .* ask for fewer"):
        stream_of(bank(), Tasks(count=2, train=500, validation=5), Lane(0, 0))


def test_all_validation_images_can_be_asked_for() -> None:
    digits = bank()
    few = stream_of(digits, SMALL, Lane(0, 0))[0].validation
    every = stream_of(digits, Tasks(count=6, train=20, validation="all"), Lane(0, 0))[0].validation
    assert len(every) > len(few)
    assert np.array_equal(every[: len(few)], few)


def test_a_common_start_replaces_the_first_tasks_of_every_agent() -> None:
    digits = bank()
    rule = SMALL.model_copy(update={"common": True})
    first, second, joint, elsewhere = streams(digits, fleet(rule), [Lane(0, 0), Lane(0, 1), Lane(0, JOINT), Lane(1, 0)])
    assert len(joint) == rule.initial
    for t in range(rule.initial):
        assert first[t] is second[t] is joint[t]
        assert elsewhere[t] is not first[t]
    mine = stream_of(digits, rule, Lane(0, 1))
    assert [task.classes for task in second[4:]] == [task.classes for task in mine[4:]]


def test_without_a_common_start_every_task_is_the_agents_own() -> None:
    digits = bank()
    (first,) = streams(digits, fleet(SMALL.model_copy(update={"common": False})), [Lane(0, 0)])
    assert [task.classes for task in first] == [task.classes for task in stream_of(digits, SMALL, Lane(0, 0))]


def test_mixed_sources_have_class_ids_of_their_own() -> None:
    three = mixed()
    rule = Tasks(count=6, train=8, validation=4)
    for agent in range(6):
        classes = {c for task in stream_of(three, rule, Lane(0, agent)) for c in task.classes}
        assert {c // 10 for c in classes} == {agent % 3}


def test_a_mixed_common_start_takes_task_i_from_agent_i() -> None:
    three = mixed()
    rule = Tasks(count=6, train=8, validation=4)
    start = common_start(three, rule, 0, lots(three, fleet(rule), drawn))
    assert [task.classes[0] // 10 for task in start] == [0, 1, 2, 0]
    for i, task in enumerate(start):
        assert task.classes == stream_of(three, rule, Lane(0, i))[i].classes


def test_a_task_that_nobody_meets_is_no_reason_to_refuse() -> None:
    """With a common start an agent's own first tasks are replaced: whether they could be filled does not matter."""
    digits = bank()
    rule = Tasks(count=8, train=32, validation=15, common=True)
    with pytest.raises(ValueError, match=r"tasks\.validation = 15 per class .* agent 2 of seed 11"):
        stream_of(digits, rule, Lane(11, 2))
    (stream,) = streams(digits, fleet(rule), [Lane(11, 2)])
    assert len(stream) == 8


def test_a_split_scenario_has_classes_in_their_order_for_everyone() -> None:
    rule = Split(scenario="split", count=6, train=20, validation=10, common=False)
    first, second = streams(bank(), fleet(rule), [Lane(0, 0), Lane(3, 5)])
    assert [task.classes for task in first] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (0, 1)]
    assert [task.classes for task in second] == [task.classes for task in first]
    assert not np.array_equal(first[0].train, second[0].train)
    with pytest.raises(ValueError, match="needs 12 classes, the data has 10"):
        streams(bank(), fleet(rule.model_copy(update={"replacement": False})), [Lane(0, 0)])


def test_an_unknown_scenario_is_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"there is no scenario `splt`; did you mean `split`\?"):
        resolve({"tasks": {"scenario": "splt"}})


def test_the_authors_draws_come_from_one_stream_of_numbers_agent_after_agent() -> None:
    """Written out as the paper's code has it: a permutation and the classes of each agent, the common start's last."""
    digits, rule = bank(), SMALL.model_copy(update={"draw": "authors", "common": True})
    lanes = [Lane(5, agent) for agent in (2, 0, 1, JOINT)]
    found = dict(zip(lanes, streams(digits, fleet(rule, agents=3), lanes), strict=True))
    rows = np.flatnonzero(~digits.test)
    np.random.seed(5)  # noqa: NPY002
    pools, classes = [], []
    for _ in range(4):
        pools.append(rows[np.random.permutation(len(rows))])  # noqa: NPY002
        classes.append([tuple(np.random.choice(10, 2, replace=False)) for _ in range(rule.count)])  # noqa: NPY002
    for agent in range(3):
        stream = found[Lane(5, agent)]
        assert [task.classes for task in stream] == classes[3][:4] + classes[agent][4:]
        train = pools[agent][: int(0.8 * len(rows))]
        for task in stream[4:]:
            assert list(task.train) == list(train[np.isin(digits.labels[train], task.classes)][:40])
    assert found[Lane(5, JOINT)][0] is found[Lane(5, 0)][0]


@pytest.mark.parametrize("draw", ["agent", "fleet", "authors"])
def test_seeds_that_repeat_have_the_same_tasks(draw: str) -> None:
    def drawn(repeat: int | None) -> list[list[tuple[tuple[int, ...], list[int], list[int]]]]:
        rule = SMALL.model_copy(update={"draw": draw, "common": True, "repeat": repeat})
        lanes = [Lane(seed, agent) for seed in range(4) for agent in range(2)]
        fleet = Settings(dataset="digits", agents=2, seeds=4, tasks=rule)
        found = streams(bank(), fleet, lanes)
        return [[(task.classes, task.train.tolist(), task.validation.tolist()) for task in one] for one in found]

    twice, usual = drawn(2), drawn(None)
    assert twice[:4] == twice[4:] == usual[:4] != usual[4:]


def test_the_authors_common_start_of_several_sources_draws_nothing_more() -> None:
    three, rule = mixed(), Tasks(count=6, train=8, validation=4, draw="authors")
    start = common_start(three, rule, 0, lots(three, fleet(rule), drawn))
    own_starts = rule.model_copy(update={"common": False})
    alone = streams(three, fleet(own_starts), [Lane(0, agent) for agent in range(4)])
    assert [task.classes for task in start] == [stream[i].classes for i, stream in enumerate(alone)]


def test_a_fleet_that_splits_once_never_validates_on_what_another_trains_on() -> None:
    digits = bank()
    rule = Tasks(count=8, train=30, validation=15, common=False, draw="fleet")
    lanes = [Lane(0, agent) for agent in range(8)]
    every = streams(digits, fleet(rule), lanes)
    train = {int(row) for stream in every for task in stream for row in task.train}
    held = {int(row) for stream in every for task in stream for row in task.validation}
    assert not train & held
    apart = streams(bank(), fleet(rule.model_copy(update={"draw": "agent"})), lanes)
    assert {int(row) for stream in apart for task in stream for row in task.train} & {
        int(row) for stream in apart for task in stream for row in task.validation
    }
    assert not np.array_equal(every[0][0].train, every[1][0].train)


def test_a_fleet_draws_other_classes_on_another_dataset() -> None:
    rule = Tasks(count=6, train=8, validation=4, common=False, draw="fleet")
    red, green = (streams(colours(name), fleet(rule), [Lane(0, 0)])[0] for name in ("red", "green"))
    assert [task.classes for task in red] != [task.classes for task in green]
