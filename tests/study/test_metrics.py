"""Every metric against numbers worked out by hand; the arithmetic is in the comments."""

import json

import numpy as np
import numpy.typing as npt
import pytest

from shoal.runs import metrics

Array = npt.NDArray[np.float64]
NAN = float("nan")

# 100 epochs measured every 10: the paper's grid.
PAPER = [0, 1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 101]

# One lane, three tasks, grid of two labels (0 and 3, two epochs). Rows: while learning t; columns: tested on u.
STARTS = [[0.5, NAN, NAN], [0.9, 0.6, NAN], [0.8, 0.7, 0.4]]  # label 0
ENDS = [[0.9, NAN, NAN], [0.8, 0.7, NAN], [0.7, 0.9, 1.0]]  # label 3
EPOCHS = [0, 3]


def lane() -> Array:
    """accuracy[1, 3, 2, 3] from the two tables above."""
    return np.stack([STARTS, ENDS], axis=1)[None]


def joint() -> Array:
    """accuracy[1, 4, 2, 4] with two initial tasks: nothing is learned before the end of task 1."""
    starts = [[0.5, NAN, NAN, NAN], [0.5, 0.4, NAN, NAN], [0.9, 0.8, 0.5, NAN], [0.8, 0.8, 0.9, 0.7]]
    ends = [[0.5, NAN, NAN, NAN], [0.9, 0.8, NAN, NAN], [0.8, 0.8, 0.9, NAN], [0.7, 0.9, 0.6, 1.0]]
    return np.stack([starts, ends], axis=1)[None]


def constant(value: float, tasks: int = 6, lanes: int = 1) -> Array:
    """The same accuracy everywhere, on the paper's grid."""
    return np.full((lanes, tasks, len(PAPER), tasks), value)


def test_seen_is_the_mean_over_tasks_so_far() -> None:
    # label 0: .5 | (.9+.6)/2 = .75 | (.8+.7+.4)/3 = 1.9/3;  label 3: .9 | (.8+.7)/2 = .75 | (.7+.9+1)/3 = 2.6/3
    expected = [[[0.5, 0.9], [0.75, 0.75], [1.9 / 3, 2.6 / 3]]]
    np.testing.assert_allclose(metrics.seen(lane()), expected)


def test_seen_ignores_tasks_to_come() -> None:
    accuracy = lane()
    accuracy[0, 0, :, 1:] = 0.123  # measured out of curiosity, not seen yet
    np.testing.assert_allclose(metrics.seen(accuracy), metrics.seen(lane()))


def test_seen_is_nan_if_a_seen_task_was_not_measured() -> None:
    accuracy = lane()
    accuracy[0, 2, 0, 1] = NAN
    result = metrics.seen(accuracy)
    assert np.isnan(result[0, 2, 0])
    assert np.isnan(result).sum() == 1


def test_final_is_over_all_tasks_at_the_end() -> None:
    np.testing.assert_allclose(metrics.final(lane()), [2.6 / 3])  # (.7+.9+1)/3
    np.testing.assert_allclose(metrics.final(joint()), [0.8])  # (.7+.9+.6+1)/4, initial tasks included


def test_average_is_over_task_ends() -> None:
    np.testing.assert_allclose(metrics.average(lane(), 1), [(0.9 + 0.75 + 2.6 / 3) / 3])
    # Ends from task 1 on: (.9+.8)/2 = .85, (.8+.8+.9)/3 = 2.5/3, .8. The end of task 0 is of an untrained net.
    np.testing.assert_allclose(metrics.average(joint(), 2), [(0.85 + 2.5 / 3 + 0.8) / 3])


def test_curve_averages_the_tasks_after_the_initial_ones() -> None:
    # Tasks 1 and 2, label 0: (.75 + 1.9/3)/2;  label 3: (.75 + 2.6/3)/2
    np.testing.assert_allclose(metrics.curve(lane(), 1), [[(0.75 + 1.9 / 3) / 2, (0.75 + 2.6 / 3) / 2]])


def test_curve_needs_no_grid_in_the_initial_tasks() -> None:
    accuracy = constant(0.7, tasks=6)
    accuracy[:, :3, 1:-1] = NAN  # tasks 0, 1, 2 are measured at the first and last label only
    np.testing.assert_allclose(metrics.curve(accuracy, 4), np.full((1, 12), 0.7))
    assert np.isnan(metrics.curve(accuracy, 2)).sum() == 10


def test_area_of_constant_one_is_101() -> None:
    curves = metrics.curve(constant(1.0), 4)
    np.testing.assert_allclose(metrics.area(curves, PAPER), [101.0])
    np.testing.assert_allclose(metrics.area(curves, PAPER, normalise=True), [1.0])


def test_area_is_the_sum_of_the_paper() -> None:
    a = np.linspace(0.3, 0.96, 12) ** 2
    by_hand = 0.5 * (a[0] + a[1]) + 10 * (0.5 * a[1] + a[2:11].sum() + 0.5 * a[11])
    np.testing.assert_allclose(metrics.area(a, PAPER), by_hand)


def test_area_on_other_grids() -> None:
    # 2 epochs, labels 0 and 3: 3 * (.2 + .6)/2 = 1.2, normalised 1.2/3 = .4
    np.testing.assert_allclose(metrics.area([[0.2, 0.6]], [0, 3]), [1.2])
    np.testing.assert_allclose(metrics.area([[0.2, 0.6]], [0, 3], normalise=True), [0.4])
    # 25 epochs, labels 0 1 11 21 26: 1*.25 + 10*.5 + 10*.5 + 5*.75 = 14
    np.testing.assert_allclose(metrics.area([0.0, 0.5, 0.5, 0.5, 1.0], [0, 1, 11, 21, 26]), 14.0)


def test_area_refuses_labels_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="one point per label: 2 labels"):
        metrics.area([[0.1, 0.2, 0.3]], [0, 1])
    for labels in ([1, 2], [0, 0], [0], [0, 2, 1]):
        with pytest.raises(ValueError, match="must rise from 0"):
            metrics.area([[0.1, 0.2]], labels)


def test_zero_shot_is_the_diagonal_at_label_0() -> None:
    np.testing.assert_allclose(metrics.zero_shot(lane(), 1), [(0.6 + 0.4) / 2])
    np.testing.assert_allclose(metrics.zero_shot(lane(), 0), [(0.6 + 0.4) / 2])  # task 0 never counts
    np.testing.assert_allclose(metrics.zero_shot(joint(), 2), [(0.5 + 0.7) / 2])


def test_forward_is_zero_shot_over_chance() -> None:
    np.testing.assert_allclose(metrics.forward(joint(), 2, 2), [0.1])  # .6 - 1/2
    # per task: ((.5 - 1/2) + (.7 - 1/5))/2 = .25
    np.testing.assert_allclose(metrics.forward(joint(), 2, [2, 2, 2, 5]), [0.25])


def test_backward_compares_the_end_with_just_after_learning() -> None:
    # task 0: .7 - .9 = -.2;  task 1: .9 - .7 = +.2;  the last task is not counted
    np.testing.assert_allclose(metrics.backward(lane(), 1), [0.0], atol=1e-15)
    # Tasks 0 and 1 are learned at the end of 1: .7 - .9 = -.2, .9 - .8 = .1; task 2: .6 - .9 = -.3; mean -.4/3
    np.testing.assert_allclose(metrics.backward(joint(), 2), [-0.4 / 3])
    # Read naively, task 0 would gain .7 - .5 from having been untrained at "its" end: (.2 + .1 - .3)/3 = 0
    np.testing.assert_allclose(metrics.backward(joint(), 1), [0.0], atol=1e-15)


def test_forgetting_is_from_the_best_before() -> None:
    # task 0: max(.9, .8) - .7 = .2;  task 1: .7 - .9 = -.2
    np.testing.assert_allclose(metrics.forgetting(lane(), 1), [0.0], atol=1e-15)
    # task 0: max(.9, .8) - .7 = .2;  task 1: max(.8, .8) - .9 = -.1;  task 2: .9 - .6 = .3;  mean .4/3
    np.testing.assert_allclose(metrics.forgetting(joint(), 2), [0.4 / 3])


def test_forgetting_sees_a_peak_in_the_middle_and_not_the_last_task() -> None:
    accuracy = np.full((1, 4, 2, 4), 0.5)
    accuracy[0, 1, -1, 0] = 0.9  # task 0 peaks one task later: forgets .9 - .5 = .4; tasks 1 and 2 forget nothing
    np.testing.assert_allclose(metrics.forgetting(accuracy, 1), [0.4 / 3])
    accuracy[0, 3, -1, 3] = 1.0  # the last task cannot matter
    np.testing.assert_allclose(metrics.forgetting(accuracy, 1), [0.4 / 3])


def test_nothing_after_the_learning_means_nothing_to_forget() -> None:
    alone = constant(0.8, tasks=1)
    assert np.isnan(metrics.backward(alone, 1)).all()
    assert np.isnan(metrics.forgetting(alone, 1)).all()
    assert np.isnan(metrics.zero_shot(alone, 1)).all()
    together = constant(0.8, tasks=4)  # all four learned at once, at the end
    assert np.isnan(metrics.backward(together, 4)).all()
    assert np.isnan(metrics.forgetting(together, 4)).all()
    assert np.isnan(metrics.curve(together, 4)).all()
    np.testing.assert_allclose(metrics.average(together, 4), [0.8])


def test_unseen_skips_the_padding() -> None:
    others = [[0.2, 0.4, NAN], [0.9, NAN, NAN], [NAN, NAN, NAN]]
    np.testing.assert_allclose(metrics.unseen(others), [0.3, 0.9, NAN])
    assert np.isnan(metrics.unseen(np.empty((2, 0)))).all()


def test_error_pooled() -> None:
    # mean 2.5, squares 2.25+.25+.25+2.25 = 5, deviation sqrt(5/3), error sqrt(5/3)/2
    np.testing.assert_allclose(metrics.error([1, 2, 3, 4]), np.sqrt(5 / 3) / 2)


def test_error_over_seeds() -> None:
    # seed means (1+3)/2 = 2 and (2+8)/2 = 5: mean 3.5, squares 4.5, deviation sqrt(4.5/1), error sqrt(4.5/2) = 1.5
    np.testing.assert_allclose(metrics.error([1, 3, 2, 8], seeds=[7, 7, 9, 9]), 1.5)
    np.testing.assert_allclose(metrics.error([1, 2, 3, 8], seeds=[7, 9, 7, 9]), 1.5)  # any order of lanes


def test_error_keeps_other_axes() -> None:
    values = np.array([[1.0, 5.0], [3.0, 5.0]])  # [L, G]; deviation sqrt(2), error 1; and 0
    np.testing.assert_allclose(metrics.error(values), [1.0, 0.0])
    np.testing.assert_allclose(metrics.error(values, seeds=[0, 1]), [1.0, 0.0])


def test_error_of_one_is_nan_and_nan_lanes_are_left_out() -> None:
    assert np.isnan(metrics.error([0.9]))
    assert np.isnan(metrics.error([0.9, 0.8], seeds=[3, 3]))
    assert np.isnan(metrics.error([NAN, NAN]))
    assert np.isnan(metrics.error([0.9, NAN]))
    np.testing.assert_allclose(metrics.error([1.0, NAN, 3.0]), 1.0)
    np.testing.assert_allclose(metrics.mean([1.0, NAN, 3.0]), 2.0)
    with pytest.raises(ValueError, match="one seed per lane: 2 lanes"):
        metrics.error([0.9, 0.8], seeds=[3])


def test_gain_is_relative_and_in_percent() -> None:
    assert metrics.gain(0.88, 0.80) == pytest.approx(10.0)
    assert metrics.gain(70.0, 80.0) == pytest.approx(-12.5)
    assert np.isnan(metrics.gain(0.5, 0.0))


def test_a_wrong_shape_is_refused() -> None:
    for shape in [(2, 3, 3), (2, 3, 4, 2), (0, 3, 4, 3), (2, 0, 4, 0)]:
        with pytest.raises(ValueError, match="accuracy must be"):
            metrics.seen(np.zeros(shape))


def test_summary_speaks_percent_and_paper_units() -> None:
    accuracy = np.concatenate([joint(), joint() - 0.1])
    result = metrics.summary(accuracy, EPOCHS, seeds=[0, 1], initial=2, classes=2, others=[[0.6, 0.8], [0.5, NAN]])
    expected = {
        "final_accuracy": 75.0,  # 80 and 70
        "final_accuracy_se": 5.0,  # two values 10 apart: deviation 10/sqrt(2), error 10/2
        "final_accuracy_se_seeds": 5.0,
        # task 2: label 0 (.9+.8+.5)/3 = 2.2/3, end 2.5/3; task 3: .8, .8. Curve: 4.6/6, 4.9/6; area 3 * 9.5/12 = 2.375;
        # the second lane is .1 lower: area .3 less
        "auc": 2.375 - 0.15,
        "auc_se": 0.15,
        "auc_se_seeds": 0.15,
        "auc_normalised": 100 * (2.375 - 0.15) / 3,
        "average_accuracy": 100 * ((0.85 + 2.5 / 3 + 0.8) / 3 - 0.05),
        "forward_transfer": 55.0,  # 60 and 50
        "forward_transfer_over_chance": 5.0,
        "backward_transfer": -40 / 3,  # the same in both lanes
        "backward_transfer_se": 0.0,
        "forgetting": 40 / 3,
        "zero_shot_others": 60.0,  # 70 and 50
        "zero_shot_others_se": 10.0,
    }
    assert {name: result[name] for name in expected} == pytest.approx(expected)


def test_summary_of_one_lane_is_json_without_nan() -> None:
    result = metrics.summary(lane(), EPOCHS, seeds=[0], initial=1)
    assert result["final_accuracy"] == pytest.approx(260 / 3)
    for name in ("final_accuracy_se", "auc_se_seeds", "forward_transfer_over_chance", "zero_shot_others"):
        assert result[name] is None
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_summary_of_an_unfinished_run_is_none_and_of_its_done_tasks_a_number() -> None:
    accuracy = np.full((2, 3, 2, 3), NAN)
    accuracy[:, :2, :, :2] = 0.75
    assert metrics.summary(accuracy, EPOCHS, [0, 1], initial=1)["final_accuracy"] is None
    assert metrics.summary(accuracy[:, :2, :, :2], EPOCHS, [0, 1], initial=1)["final_accuracy"] == pytest.approx(75.0)
