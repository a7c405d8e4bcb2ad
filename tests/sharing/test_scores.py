"""Transferability scores, against numbers by hand and against the slow obvious way."""

from itertools import permutations
from math import exp, log, pi

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shoal.errors import UserError
from shoal.rng import key
from shoal.sharing.scores import (
    BLUR,
    SCORES,
    Pair,
    a_distance,
    discrepancy,
    iou,
    kl,
    leep,
    logme,
    otce,
    transport,
)

WITH_LABELS = [name for name, metric in SCORES.items() if metric.asks == "labelled"]
WITH_IMAGES = [name for name, metric in SCORES.items() if metric.asks in ("images", "labelled")]
WITH_OWN = ["a_distance", "otce", "discrepancy", "kl"]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(key(seed, "transfer").normal(size=shape))


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def made(seed: int, n: int = 30, p: int = 40, width: int = 6, shift: float = 0.0, noise: float = 0.5) -> Pair:
    """Three classes at corners of a cube, the own ones; theirs are the same ones, `shift` away and as noisy as said."""
    labels, own_labels = torch.arange(n) % 3, torch.arange(p) % 3
    corners = 2 * torch.eye(3, width, dtype=torch.float64)
    features = corners[labels] + noise * normal(seed, n, width) + shift * torch.eye(width, dtype=torch.float64)[-1]
    own = corners[own_labels] + 0.5 * normal(seed + 1000, p, width)
    classes = torch.tensor([4, 7, 9])
    anchors = (torch.stack([rows.mean(0), rows.std(0, correction=0)]) for rows in (features, own))
    return Pair(classes, classes, labels, features[:, :3] * 2, features, own, own_labels, *anchors)


def unrelated(seed: int) -> Pair:
    """Other classes, images far from the own ones, and labels that have nothing to do with them."""
    pair = made(seed, shift=8.0, noise=3.0)
    labels = torch.from_numpy(key(seed, "labels").permutation(pair.labels.numpy()))
    return pair._replace(theirs=torch.tensor([1, 2, 3]), labels=labels, logits=normal(seed, 30, 3))


# Classes


def test_iou_is_the_part_of_all_classes_that_both_have() -> None:
    for theirs, mine, want in [([1, 2, 3], [3, 4], 1 / 4), ([5, 6], [6, 5], 1.0), ([1], [2], 0.0), ([1], [], 0.0)]:
        assert iou(Pair(theirs=torch.tensor(theirs), mine=torch.tensor(mine))) == want


def test_iou_counts_a_class_once() -> None:
    assert iou(Pair(theirs=torch.tensor([1, 1, 2]), mine=torch.tensor([2, 2, 2]))) == 0.5


def test_iou_of_no_classes_is_refused() -> None:
    with pytest.raises(UserError, match="without classes says nothing: 0 class ids"):
        iou(Pair(mine=torch.tensor([1])))


# LEEP


def test_leep_by_hand() -> None:
    # p(z|x) = (3/4, 1/4), (1/4, 3/4), (1/2, 1/2) with y = 0, 1, 1; columns of the joint sum to 1/2 each.
    # P(0|z) = (3/4, 1/4) / 3 / (1/2) = (1/2, 1/6), P(1|z) = (1/2, 5/6).
    # 3/4 1/2 + 1/4 1/6 = 5/12;  1/4 1/2 + 3/4 5/6 = 3/4;  1/2 1/2 + 1/2 5/6 = 2/3
    p = torch.tensor([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    found = leep(Pair(labels=torch.tensor([0, 1, 1]), logits=p.log() + 7))
    assert found == pytest.approx((log(5 / 12) + log(3 / 4) + log(2 / 3)) / 3, abs=1e-12)


def slow_leep(labels: list[int], p: list[list[float]]) -> float:
    n, heads = len(labels), range(len(p[0]))
    joint = {(y, z): sum(p[i][z] for i in range(n) if labels[i] == y) / n for y in set(labels) for z in heads}
    total = 0.0
    for i in range(n):
        guess = 0.0
        for z in heads:
            guess += joint[labels[i], z] / sum(joint[y, z] for y in set(labels)) * p[i][z]
        total += log(guess)
    return total / n


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 5), st.floats(0.1, 5))
@settings(deadline=None, max_examples=40)
def test_leep_is_what_loops_say_and_never_above_0(seed: int, n: int, heads: int, sharp: float) -> None:
    logits, labels = sharp * normal(seed, n, heads), key(seed, "y").integers(0, 4, n)
    labels[:2] = [0, 3]
    found = leep(Pair(labels=torch.from_numpy(labels), logits=logits))
    assert found == pytest.approx(slow_leep(labels.tolist(), logits.softmax(1).tolist()), abs=1e-9)
    assert found <= 1e-12


def test_leep_is_near_0_for_a_head_on_its_own_task_and_minus_ln_k_for_one_that_does_not_look() -> None:
    labels = torch.arange(12) % 4
    sure = 50.0 * torch.eye(4)[labels]
    assert leep(Pair(labels=labels, logits=sure)) == pytest.approx(0, abs=1e-9)
    # The head's classes need not be the labels: any one-to-one naming will do.
    assert leep(Pair(labels=labels, logits=sure.roll(1, 1))) == pytest.approx(0, abs=1e-9)
    for same in (torch.zeros(12, 5), torch.tensor([[9.0, 0, -9]]).expand(12, 3), torch.zeros(12, 1)):
        assert leep(Pair(labels=labels, logits=same)) == pytest.approx(-log(4), abs=1e-12)


def test_leep_with_a_class_that_the_head_never_gives_is_finite() -> None:
    logits = torch.tensor([[0.0, 5000, -5000], [5000, 0, -5000], [0, 5000, -5000]])
    # Images 0 and 2 are class 1 to the head: P(1|1) = P(0|1) = 1/2; image 1 alone is class 0: P(1|0) = 1.
    assert leep(Pair(labels=torch.tensor([0, 1, 1]), logits=logits)) == pytest.approx(2 * log(0.5) / 3, abs=1e-9)


# LogME


def best_evidence(x: Tensor, y: Tensor) -> float:
    """max of ln N(y; 0, I / beta + X X' / alpha) / n over alpha and beta, by ever finer grids of their logarithms."""
    values, basis = np.linalg.eigh((x @ x.T).numpy())
    z = (basis.T @ y.numpy()) ** 2
    a, b, reach, value = 0.0, 0.0, 16.0, -np.inf
    for _ in range(8):
        alpha, beta = (np.exp(middle + np.linspace(-reach, reach, 65)) for middle in (a, b))
        variance = 1 / beta[None, :, None] + np.maximum(values, 0) / alpha[:, None, None]
        grid = -(np.log(2 * pi * variance) + z / variance).sum(-1) / 2 / len(y)
        i, j = np.unravel_index(grid.argmax(), grid.shape)
        a, b, reach, value = log(alpha[i]), log(beta[j]), reach / 5, grid[i, j]
    return float(value)


@pytest.mark.parametrize(("seed", "n", "width"), [(0, 12, 2), (1, 20, 4), (2, 9, 1), (3, 30, 7), (4, 7, 12)])
def test_logme_is_the_greatest_evidence_over_alpha_and_beta(seed: int, n: int, width: int) -> None:
    labels = torch.arange(n) % 3
    x = normal(seed, n, width)
    x[:, 0] += 2.0 * (labels == 1)
    want = np.mean([best_evidence(x, (labels == one).double()) for one in range(3)])
    assert logme(Pair(labels=labels, features=x)) == pytest.approx(want, abs=1e-5)


def test_logme_of_features_that_are_0_is_the_evidence_of_noise_alone() -> None:
    # y has a third of ones, and variance 1/3 around 0: -1/2 ln(2 pi / 3) - 1/2; two thirds for the other class.
    pair = Pair(labels=torch.tensor([0, 1, 1]), features=torch.zeros(3, 4))
    want = -(log(2 * pi / 3) + log(4 * pi / 3)) / 4 - 1 / 2
    assert logme(pair) == pytest.approx(want, abs=1e-9)


def test_logme_does_not_depend_on_scale_or_rotation_of_the_features() -> None:
    pair = made(0)
    turn = torch.linalg.qr(normal(5, 6, 6)).Q
    for features in (pair.features * 1e-6, pair.features * 1e6, pair.features @ turn):
        assert logme(pair._replace(features=features)) == pytest.approx(logme(pair), abs=1e-6)


def test_logme_of_an_exact_fit_is_finite_and_above_all_others() -> None:
    labels = torch.arange(30) % 3
    exact = logme(Pair(labels=labels, features=torch.eye(3)[labels]))
    assert 1 < exact < 50
    assert exact > logme(made(0, noise=0.1)) > logme(made(0, noise=1.0)) > logme(made(0, noise=4.0))


# A-distance


def slow_a_distance(mine: list[float], theirs: list[float]) -> float:
    """One feature: every image left out in turn, a line fitted to the others, both sides weighing the same."""
    centre = (np.mean(mine) + np.mean(theirs)) / 2
    spread = np.sqrt((np.mean((np.array(mine) - centre) ** 2) + np.mean((np.array(theirs) - centre) ** 2)) / 2)
    sides = [(np.array(side) - centre) / spread for side in (mine, theirs)]
    errors = []
    for side, sign in ((0, -1), (1, 1)):
        wrong = 0
        for out in range(len(sides[side])):
            kept = [np.delete(sides[side], out), sides[1 - side]]
            x, y = np.concatenate(kept), np.repeat([sign, -sign], [len(one) for one in kept])
            w = np.repeat([0.5 / len(one) for one in kept], [len(one) for one in kept])
            rows = np.stack([x, np.ones_like(x)], 1) * np.sqrt(w)[:, None]
            rows = np.concatenate([rows, [[np.sqrt(1 / (len(mine) + len(theirs))), 0]]])
            slope, offset = np.linalg.lstsq(rows, np.append(y * np.sqrt(w), 0), rcond=None)[0]
            wrong += sign * (slope * sides[side][out] + offset) < 0
        errors.append(wrong / len(sides[side]))
    return -2 * (1 - 2 * min(float(np.mean(errors)), 0.5))


@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True),
    st.lists(st.integers(20, 70), min_size=2, max_size=8, unique=True),
)
@settings(deadline=None, max_examples=60)
def test_a_distance_is_by_leaving_every_image_out_in_turn(mine: list[int], theirs: list[int]) -> None:
    # Numbers without ties: a prediction that is 0 up to rounding has no sign to compare.
    own, other = [one + 0.1 * one**0.5 for one in mine], [one + 0.0317 for one in theirs]
    found = a_distance(Pair(own=column(*own), features=column(*other)))
    assert found == pytest.approx(slow_a_distance(own, other), abs=1e-9)


def test_a_distance_by_hand() -> None:
    apart = Pair(own=column(0, 1, 2), features=column(10, 11, 12))
    assert a_distance(apart) == -2
    # 0 1 2 12 against 10 11 12 13: only the own 12 is taken for theirs, an eighth of errors: -2 (1 - 2/8).
    assert a_distance(Pair(own=column(0, 1, 2, 12), features=column(10, 11, 12, 13))) == -1.5


def test_the_only_image_of_a_side_counts_as_half_an_error() -> None:
    # The own ones are told without error: err = (0 + 1/2) / 2.
    assert a_distance(Pair(own=column(0, 1, 2), features=column(50))) == -1
    assert a_distance(Pair(own=column(0), features=column(50))) == 0


def test_features_that_are_constant_up_to_rounding_tell_nothing_apart() -> None:
    flat = Pair(own=torch.full((7, 3), 0.1).double(), features=torch.full((11, 3), 0.1).double() * (1 + 1e-15))
    assert a_distance(flat) == 0
    assert kl(flat) == 0


def test_images_that_are_the_same_are_alike() -> None:
    x = normal(0, 20, 4)
    assert a_distance(Pair(features=x, own=x)) == 0
    assert discrepancy(Pair(features=x, own=x)) == pytest.approx(0, abs=1e-12)
    assert kl(Pair(features=x, own=x)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("width", [3, 200])
def test_a_distance_does_not_tell_samples_of_one_kind_apart(width: int) -> None:
    # With more features than images a classifier separates any two samples; it must be asked about others.
    found = [a_distance(Pair(features=normal(s, 20, width), own=normal(s + 99, 30, width))) for s in range(8)]
    assert np.mean(found) > -0.5
    far = [a_distance(Pair(features=normal(s, 20, width) + 2, own=normal(s + 99, 30, width))) for s in range(8)]
    assert np.mean(far) < -1.8


def test_a_distance_gives_both_sides_the_same_weight_whatever_their_numbers() -> None:
    # 98 own images and 4 of theirs in the same place: a guess "mine" is wrong for all of theirs, not for 4 %.
    assert a_distance(Pair(own=normal(0, 98, 1), features=normal(1, 4, 1) * 0.1)) > -1


# OTCE


def test_the_coupling_of_two_and_two_is_the_closed_form() -> None:
    # Rows and columns sum to 1/2: [[q, 1 - q], [1 - q, q]] / 2, with ln(q / (1 - q)) = (c01 + c10 - c00 - c11) / 2 eps.
    cost = torch.tensor([[0.3, 0.5], [0.9, 0.8]], dtype=torch.float64)
    q = 1 / (1 + exp(-(0.5 + 0.9 - 0.3 - 0.8) / 2 / 0.1))
    want = torch.tensor([[q, 1 - q], [1 - q, q]], dtype=torch.float64) / 2
    torch.testing.assert_close(transport(cost, 0.1), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_coupling_costs_hardly_more_than_the_best_of_all_permutations(seed: int) -> None:
    cost = normal(seed, 5, 5) ** 2
    best = min(sum(float(cost[i, j]) for i, j in enumerate(order)) / 5 for order in permutations(range(5)))
    for blur in (0.1, 0.01):
        coupling = transport(cost, blur)
        torch.testing.assert_close(coupling.sum(0), torch.full((5,), 0.2, dtype=torch.float64))
        torch.testing.assert_close(coupling.sum(1), torch.full((5,), 0.2, dtype=torch.float64), rtol=1e-3, atol=0)
        # The entropy of a coupling is between ln n and 2 ln n.
        assert best - 1e-3 < float((coupling * cost).sum()) < best + blur * log(5) + 1e-3


def test_otce_by_hand() -> None:
    # Own 0 and 1, theirs 0.49 and 0.5: squares [[.2401, .25], [.2601, .25]], mean .25005. Crossed, they cost .02 more.
    pair = Pair(
        features=column(0.49, 0.5), labels=torch.tensor([0, 1]), own=column(0, 1), own_labels=torch.tensor([0, 1])
    )
    q = 1 / (1 + exp(-0.02 / 0.25005 / 2 / BLUR))
    assert 0.6 < q < 0.95
    distance = (0.4901 * q + 0.5101 * (1 - q)) / 2 / 0.25005
    entropy = -q * log(q) - (1 - q) * log(1 - q)
    assert otce(pair) == pytest.approx(-distance - entropy, abs=1e-6)


def test_otce_with_one_clear_match_is_found_although_plain_iterations_would_crawl() -> None:
    # Squares [[.25, 2.25], [.25, .25]], mean .75: the straight match costs 1/3, and nothing comes near it.
    pair = Pair(
        features=column(0.5, 1.5), labels=torch.tensor([0, 1]), own=column(0, 1), own_labels=torch.tensor([0, 1])
    )
    assert otce(pair) == pytest.approx(-1 / 3, abs=1e-6)


def test_otce_of_the_same_images_is_near_0_and_an_own_class_that_says_nothing_adds_the_entropy() -> None:
    x, labels = column(0, 1, 10, 11), torch.tensor([0, 0, 1, 1])
    same = Pair(features=x, labels=labels, own=x, own_labels=labels)
    # Costs within a class are 1 / 50.5, about the blur: the class is certain, the image within it is not.
    assert -0.02 < otce(same) < 0
    for own_labels in (torch.tensor([0, 1, 0, 1]), torch.zeros(4, dtype=torch.int64)):
        mixed = otce(same._replace(own_labels=own_labels))
        assert mixed == pytest.approx(otce(same) - log(2), abs=1e-6)


def test_otce_of_constant_features_is_the_entropy_of_the_labels() -> None:
    pair = made(0)
    flat = pair._replace(features=torch.full((30, 6), 0.1), own=torch.full((40, 6), 0.1))
    assert otce(flat) == pytest.approx(-log(3), abs=1e-9)


# Discrepancy


def test_discrepancy_by_hand() -> None:
    # Directions e0 alone against e0 and e1 in turn: diag(1, 0) - diag(1/2, 1/2) has eigenvalues +-1/2.
    own, theirs = torch.tensor([[3.0, 0]]), torch.tensor([[5.0, 0], [0, -2]])
    assert discrepancy(Pair(features=theirs, own=own)) == pytest.approx(-0.5, abs=1e-12)
    assert discrepancy(Pair(features=torch.tensor([[0.0, 1]]), own=own)) == pytest.approx(-1, abs=1e-12)
    # The greatest difference may be of either sign: diag(1, 1, 1) / 3 - diag(1, 0, 0).
    assert discrepancy(Pair(features=torch.eye(3)[:1], own=torch.eye(3))) == pytest.approx(-2 / 3, abs=1e-12)


def test_discrepancy_is_the_greatest_difference_over_all_directions() -> None:
    own, theirs = normal(0, 9, 2), normal(1, 7, 2) * torch.tensor([1.0, 3.0], dtype=torch.float64)
    worst = 0.0
    for angle in np.linspace(0, pi, 20_001):
        w = torch.tensor([np.cos(angle), np.sin(angle)])
        mean = [float(((x / x.norm(dim=1, keepdim=True)) @ w).square().mean()) for x in (own, theirs)]
        worst = max(worst, abs(mean[0] - mean[1]))
    assert discrepancy(Pair(features=theirs, own=own)) == pytest.approx(-worst, abs=1e-6)


# KL


@pytest.mark.parametrize("number", [1, 50])
def test_kl_in_one_dimension_is_the_closed_form(number: int) -> None:
    # Own -1 and 1: mean 0, variance 1; theirs 1 and 5: mean 3, variance 4. Over both: mean 1.5, variance 2.5 + 2.25.
    # The same images many times over shrink less.
    own, theirs = column(-1, 1).repeat(number, 1), column(1, 5).repeat(number, 1)
    common, shrink = 4.75, 1 / (1 + 2 * number)
    a, b = ((1 - shrink) * variance / common + shrink for variance in (4, 1))
    want = (a / b + 9 / common / b - 1 + log(b / a)) / 2
    assert kl(Pair(features=theirs, own=own)) == pytest.approx(-want, abs=1e-12)
    other = (b / a + 9 / common / a - 1 + log(a / b)) / 2
    assert kl(Pair(features=own, own=theirs)) == pytest.approx(-other, abs=1e-12)


def test_kl_of_features_is_that_of_torch() -> None:
    pair = made(3, shift=1.0)
    centre = (pair.own.mean(0) + pair.features.mean(0)) / 2
    spread = torch.stack([(x - centre).square().mean(0) for x in (pair.own, pair.features)]).mean(0).sqrt()
    shrink = 6 / 36  # 30 images are fewer than 40
    fitted = []
    for x in (pair.features, pair.own):
        scaled = (x - centre) / spread
        covariance = (1 - shrink) * scaled.T.cov(correction=0) + shrink * torch.eye(6, dtype=torch.float64)
        fitted.append(torch.distributions.MultivariateNormal(scaled.mean(0), covariance))
    assert kl(pair) == pytest.approx(-float(torch.distributions.kl_divergence(*fitted)), abs=1e-9)


def test_kl_falls_with_every_step_away() -> None:
    found = [kl(made(0, shift=shift)) for shift in (0.0, 1.0, 2.0, 4.0, 16.0, 256.0)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


# All of them


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("seed", range(5))
def test_the_own_task_has_a_larger_score_than_an_unrelated_one(name: str, seed: int) -> None:
    metric = SCORES[name]
    near, far = metric.score(made(seed)), metric.score(unrelated(seed))
    assert isinstance(near, float)
    assert near > far
    if metric.floor is not None:
        assert near > metric.floor >= far
    assert near == metric.score(made(seed))  # bit for bit


@pytest.mark.parametrize("name", WITH_LABELS)
def test_labels_that_the_module_tells_apart_have_a_larger_score_than_shuffled_ones(name: str) -> None:
    pair = made(0)
    shuffled = pair._replace(labels=torch.from_numpy(key(0, "shuffle").permutation(pair.labels.numpy())))
    assert SCORES[name].score(pair) > SCORES[name].score(shuffled) + 0.1


@pytest.mark.parametrize("name", WITH_IMAGES)
@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_a_score_does_not_depend_on_the_order_of_images_or_classes_or_on_the_names_of_labels(
    name: str, seed: int
) -> None:
    pair, rng = made(seed, n=12, p=15, noise=1.0), key(seed, "order")
    score = SCORES[name].score
    want = pytest.approx(score(pair), abs=1e-4)
    theirs, mine = torch.from_numpy(rng.permutation(12)), torch.from_numpy(rng.permutation(15))
    moved = pair._replace(labels=pair.labels[theirs], logits=pair.logits[theirs], features=pair.features[theirs])
    assert score(moved) == want
    assert score(pair._replace(own=pair.own[mine], own_labels=pair.own_labels[mine])) == want
    names = torch.tensor([17, 3, 8])
    assert score(pair._replace(labels=names[pair.labels], own_labels=names.flip(0)[pair.own_labels])) == want
    assert score(pair._replace(logits=pair.logits[:, [2, 0, 1]])) == want


@pytest.mark.parametrize("name", WITH_OWN)
def test_a_score_does_not_depend_on_the_unit_of_features(name: str) -> None:
    pair, score = made(0, shift=1.0), SCORES[name].score
    for unit in (1e-30, 1e-6, 1e6):
        assert score(pair._replace(features=pair.features * unit, own=pair.own * unit)) == pytest.approx(
            score(pair), rel=1e-6
        )


DEGENERATE = {
    "one image": made(0, n=1),
    "one image each": made(0, n=1, p=1),
    "two images, one own": made(0, n=2, p=1),
    "many features": made(0, n=4, p=5, width=300),
    "zeros": made(0)._replace(features=torch.zeros(30, 6), own=torch.zeros(40, 6), logits=torch.zeros(30, 3)),
    "constant": made(0)._replace(features=torch.full((30, 6), 0.1), own=torch.full((40, 6), 0.3)),
    "constant and the same": made(0)._replace(features=torch.full((30, 6), 0.1), own=torch.full((40, 6), 0.1)),
    "singular": made(0)._replace(features=made(0).features[:, [0] * 6], own=made(0).own[:, [0] * 6]),
    "huge": made(0)._replace(features=made(0).features.float() * 1e37, own=made(0).own.float() * 1e37),
    "tiny": made(0)._replace(features=made(0).features.float() * 1e-36, own=made(0).own.float() * 1e-36),
    "own constant": made(0)._replace(own=torch.ones(40, 6)),
    "half precision": made(0)._replace(features=made(0).features.half(), own=made(0).own.half()),
    "sure": made(0)._replace(logits=made(0).logits * 1e30),
    "one feature": made(0)._replace(features=made(0).features[:, :1], own=made(0).own[:, :1]),
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("case", DEGENERATE)
def test_a_score_is_a_finite_number_whatever_the_features(name: str, case: str) -> None:
    pair = DEGENERATE[case]
    if name in WITH_LABELS and len(pair.labels) == 1:
        with pytest.raises(UserError):
            SCORES[name].score(pair)
        return
    found = SCORES[name].score(pair)
    assert isinstance(found, float)
    assert np.isfinite(found)
    assert name in ("iou", "logme") or found <= 1e-9


@pytest.mark.parametrize("name", WITH_LABELS)
def test_one_class_is_refused_because_it_would_have_the_best_score(name: str) -> None:
    one = made(0)._replace(labels=torch.full((30,), 2))
    with pytest.raises(UserError, match=f"{name} of a task with one class says nothing: the 30 rows given have 1 "):
        SCORES[name].score(one)


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_no_images_are_refused(name: str) -> None:
    none = made(0)._replace(labels=made(0).labels[:0], logits=torch.empty(0, 3), features=torch.empty(0, 6))
    for pair in (none, Pair()):
        with pytest.raises(UserError, match=f"{name} of no rows says nothing"):
            SCORES[name].score(pair)


@pytest.mark.parametrize("name", WITH_OWN)
def test_an_own_task_without_images_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} of no rows says nothing: `own` has 0 rows"):
        SCORES[name].score(made(0)._replace(own=torch.empty(0, 6)))


@pytest.mark.parametrize("name", WITH_LABELS)
def test_images_without_labels_are_refused_where_labels_are_needed(name: str) -> None:
    with pytest.raises(UserError, match="with no labels says nothing"):
        SCORES[name].score(made(0)._replace(labels=torch.empty(0, dtype=torch.int64)))


@pytest.mark.parametrize("name", WITH_IMAGES)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_net_that_has_diverged_is_refused(name: str, bad: float) -> None:
    pair = made(0)
    with pytest.raises(UserError, match=f"{name} needs finite numbers"):
        SCORES[name].score(pair._replace(features=pair.features * bad, logits=pair.logits * bad))


def test_a_score_leaves_what_it_reads_as_it_was() -> None:
    pair = made(0)
    before = [tensor.clone() for tensor in pair]
    for metric in SCORES.values():
        metric.score(pair)
    assert all(torch.equal(a, b) for a, b in zip(pair, before, strict=True))


def test_iou_and_anchors_have_a_score_that_means_nothing_in_common() -> None:
    assert {name: metric.floor for name, metric in SCORES.items() if metric.floor is not None} == {
        "iou": 0.0,
        "anchors": -0.25,
    }
