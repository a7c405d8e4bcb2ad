"""Transferability: how well a module that a sender grew for one of its own tasks will serve a neighbour's coming task.

The neighbour says what is coming by its class ids, or by images with or without local labels; the sender computes the
score alone, from that and from its own net and data. Larger is better for every score. A score ranks the own tasks of
one sender for one coming task; those of different senders are in the same unit, but read different features.

Scores that compare images without labels (a_distance, discrepancy, kl) tell whether a module sees a difference, not
whether it sees anything: a module whose features are all the same has the best score there is.

Jaccard 1912: The Distribution of the Flora in the Alpine Zone, New Phytologist 11(2).
Nguyen et al. 2020: LEEP: A New Measure to Evaluate Transferability of Learned Representations, ICML, arXiv:2002.12462.
You et al. 2021: LogME: Practical Assessment of Pre-trained Models for Transfer Learning, ICML, arXiv:2102.11005.
MacKay 1992: Bayesian Interpolation, Neural Computation 4(3).
Ben-David et al. 2007: Analysis of Representations for Domain Adaptation, NeurIPS.
Tan et al. 2021: OTCE: A Transferability Metric for Cross-Domain Cross-Task Representations, CVPR, arXiv:2103.13843.
Cuturi 2013: Sinkhorn Distances: Lightspeed Computation of Optimal Transport, NeurIPS, arXiv:1306.0895.
Mansour et al. 2009: Domain Adaptation: Learning Bounds and Algorithms, COLT, arXiv:0902.3430.
Cortes & Mohri 2014: Domain Adaptation and Sample Bias Correction Theory and Algorithm for Regression, TCS 519.
Kullback & Leibler 1951: On Information and Sufficiency, Annals of Mathematical Statistics 22(1).
Ledoit & Wolf 2004: A Well-Conditioned Estimator for Large-Dimensional Covariance Matrices, J. Multivariate Analysis 88.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, pi
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.doors import Table
from shoal.errors import UserError
from shoal.sharing.anchors import distance

NONE = torch.empty(0)
NEAR = -0.25  # anchors: tasks whose rows are farther apart are taken for strangers
FLAT = 1e-9  # what varies by less than this part of its size is constant up to rounding
RATIO = 1e10  # LogME: alpha / beta is within this factor of the largest eigenvalue of the features
STEPS = 500  # at most: of LogME's fixed point, and of Sinkhorn's iterations at each blur
BLUR = 0.02  # OTCE: the weight of the coupling's entropy, as a part of the mean cost


class Pair(NamedTuple):
    """A neighbour's coming task seen through one of the sender's own; a score reads only what it needs."""

    theirs: Tensor = NONE  # int64 [k]: class ids of the coming task
    mine: Tensor = NONE  # int64 [m]: class ids of the own task
    labels: Tensor = NONE  # int64 [n]: local labels of the neighbour's images
    logits: Tensor = NONE  # [n, m]: what the own task's head says about them
    features: Tensor = NONE  # [n, F]: what that head reads of them
    own: Tensor = NONE  # [p, F]: the same of the own task's images
    own_labels: Tensor = NONE  # int64 [p]: local labels of those
    anchor: Tensor = NONE  # [2, S]: mean and spread of the neighbour's rows along S directions
    own_anchor: Tensor = NONE  # [2, S]: the same of the own task's rows


@dataclass(frozen=True)
class Metric:
    """A score, what a question must hold for it, and from where on down it means that there is nothing in common."""

    score: Callable[[Pair], float]
    asks: Literal["classes", "anchor", "images", "labelled"]
    floor: float | None = None
    compares: bool = False  # reads the own task's images too
    range: tuple[float, float] = (-inf, inf)  # what it can be, up to rounding: a receiver believes no more

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return self.score.__doc__ or ""


def iou(pair: Pair) -> float:
    """Intersection over union of two sets of classes: |A and B| / |A or B| (Jaccard 1912)."""
    theirs, mine = set(pair.theirs.tolist()), set(pair.mine.tolist())
    if not theirs:
        raise UserError("iou of a task without classes says nothing: 0 class ids were given; send those of the task")
    return len(theirs & mine) / len(theirs | mine)


def leep(pair: Pair) -> float:
    """Log expected empirical prediction (Nguyen et al. 2020): labels through what the own head takes images for.

    joint(y, z) = 1/n sum of p(z | x_i) over i with y_i = y;  P(y | z) = joint(y, z) / sum over y of joint(y, z)
    leep = 1/n sum over i of ln(sum over z of P(y_i | z) p(z | x_i))

    It is never above 0. A head that takes no notice of the images has minus the entropy of the labels: -ln k for k
    balanced classes.
    """
    (logits,) = doubles("leep", logits=pair.logits)
    hot = targets("leep", pair.labels)
    p = logits.softmax(1)
    joint = hot.T @ p / len(p)  # [k, m]
    given = joint / joint.sum(0).clamp_min(torch.finfo(p.dtype).tiny)  # 0 / 0 where p(z | x) is 0 for all images
    return float(((p @ given.T) * hot).sum(1).log().mean())


def logme(pair: Pair) -> float:
    """Log maximum evidence per image (You et al. 2021) of linear regression of one-hot labels on features, mean over k.

    w ~ N(0, 1/alpha), y ~ N(X w, 1/beta). With X = U S V', z = U'y, t = alpha / beta and m the posterior mean of w:

    gamma = sum s^2 / (s^2 + t);  alpha = gamma / |m|^2;  beta = (n - gamma) / |X m - y|^2;  repeat (MacKay 1992)
    |m|^2 = sum s^2 z^2 / (s^2 + t)^2;  |X m - y|^2 = |y|^2 - |z|^2 + sum t^2 z^2 / (s^2 + t)^2
    evidence = n/2 ln(beta / 2 pi) - beta/2 (|X m - y|^2 + t |m|^2) + 1/2 sum ln(t / (s^2 + t))

    For given t the best beta is n / (|X m - y|^2 + t |m|^2), which the fixed point agrees with.

    Differs: the fixed point starts from the best t of a coarse grid instead of alpha = beta = 1, so the score does not
    depend on the scale of the features; and t has limits, because the evidence of an exact fit is infinite.
    """
    (features,) = doubles("logme", features=pair.features)
    y = targets("logme", pair.labels)
    n = len(y)
    u, s, _ = torch.linalg.svd(features, full_matrices=False)
    largest = float(s[0])
    square = (s / largest if largest else s) ** 2  # [r]
    z = (u.T @ y).T ** 2  # [k, r]
    outside = (y.square().sum(0) - z.sum(1)).clamp_min(0)  # [k]

    def fit(t: Tensor) -> tuple[Tensor, Tensor]:
        """|X m - y|^2 and |m|^2 for t[..., k]."""
        below = (square + t[..., None]) ** 2
        return outside + (t[..., None] ** 2 * z / below).sum(-1), (square * z / below).sum(-1)

    def evidence(t: Tensor) -> Tensor:
        rest, size = fit(t)
        beta = n / (rest + t * size)
        shrunk = (t[..., None] / (square + t[..., None])).log().sum(-1)
        value: Tensor = n / 2 * (beta / (2 * pi)).log() - n / 2 + shrunk / 2
        return value

    grid = torch.logspace(-log(RATIO, 10), log(RATIO, 10), 41, dtype=y.dtype)[:, None].expand(-1, y.shape[1])
    coarse = evidence(grid)
    t = grid[:, 0][coarse.argmax(0)]
    for _ in range(STEPS):
        rest, size = fit(t)
        gamma = (square / (square + t[:, None])).sum(1)
        # Features that are 0, or at right angles to the labels: 0 / 0, and any t is as good.
        found = (gamma * rest / (size * (n - gamma))).nan_to_num(RATIO).clamp(1 / RATIO, RATIO)
        done = bool(((found - t).abs() <= 1e-9 * t).all())
        t = found
        if done:
            break
    return float(torch.maximum(evidence(t), coarse.amax(0)).mean() / n)


def a_distance(pair: Pair) -> float:
    """Minus the proxy A-distance 2 (1 - 2 err) (Ben-David et al. 2007); err is that of telling whose an image is.

    The classifier is ridge regression of +-1 on standardised features with F / (n + p) as penalty and a free
    intercept. err is by leaving one image out, the mean of both sides' errors whatever their numbers, and at most 0.5.
    In training both sides weigh the same without the image too; else its absence alone would tell whose it is. The
    last image of a side cannot be left out and counts as half an error.

    Between -2, told apart without error, and 0, alike.
    """
    mine, theirs = standardised("a_distance", pair)
    x = torch.cat([mine, theirs])
    whose = torch.cat([-torch.ones_like(mine[:, 0]), torch.ones_like(theirs[:, 0])])
    penalty = torch.full_like(x[0], x.shape[1] / len(x)).diag()
    penalty = F.pad(penalty, (0, 1, 0, 1))
    x = F.pad(x, (0, 1), value=1.0)
    errors = []
    for side in (-1.0, 1.0):
        here = whose == side
        count = int(here.sum())
        if count < 2:
            errors.append(0.5)
            continue
        weight = torch.where(here, 0.5 / (count - 1), 0.5 / (len(x) - count))
        inverse = torch.linalg.solve(x.T @ (weight[:, None] * x) + penalty, (weight[:, None] * x).T)  # [F + 1, N]
        leverage = (x * inverse.T).sum(1)
        left_out = ((x @ (inverse @ whose) - leverage * whose) / (1 - leverage))[here] * side
        errors.append(float((left_out < -FLAT).double().mean() + (left_out.abs() <= FLAT).double().mean() / 2))
    return -2 * (1 - 2 * min(sum(errors) / 2, 0.5))


def otce(pair: Pair) -> float:
    """Minus the sum of domain and task difference (Tan et al. 2021) under an optimal transport of own to their images.

    coupling = argmin of sum c_ij pi_ij + eps sum pi_ij ln pi_ij with uniform sums of rows and columns (Cuturi 2013)
    domain difference W = sum c_ij coupling_ij, with c_ij = |own_i - theirs_j|^2 / mean over all i, j
    task difference H(theirs | mine) = -sum P(a, b) ln(P(a, b) / P(a)), with P(a, b) = sum of coupling_ij over i of own
    class a and j of their class b

    Differs: the paper learns the weights of W and H from auxiliary tasks whose transfer is known; here are none, and
    both weigh 1. The costs are divided by their mean, so that no weight is needed for the unit: W is 0 for the same
    images, and 1 if the best match is no better than a random one.
    """
    features, own = doubles("otce", features=pair.features, own=pair.own)
    hot, own_hot = targets("otce", pair.labels), one_hot(pair.own_labels)
    # The differences one by one: |a|^2 - 2ab + |b|^2 would lose what is small next to the features themselves.
    cost = torch.cdist(own, features, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    size = torch.maximum(own.abs().max(), features.abs().max())
    mean = cost.mean()
    cost = cost / mean if mean > (FLAT * size) ** 2 else torch.zeros_like(cost)
    coupling = transport(cost, BLUR)
    joint = own_hot.T @ coupling @ hot  # [own classes, their classes]
    given = joint / joint.sum(1, keepdim=True)
    entropy = -torch.special.xlogy(joint, given).sum()
    return -float((cost * coupling).sum() + entropy)


def discrepancy(pair: Pair) -> float:
    """Minus the discrepancy distance (Mansour et al. 2009) of linear hypotheses under the squared loss.

    discrepancy = max over |w| <= 1 of |w' (M_mine - M_theirs) w|, the spectral norm, with M = 1/n sum x x'
    (Cortes & Mohri 2014, up to the factor 4 R^2 for hypotheses of norm R), x being features of length 1.

    Between -1 and 0.
    """
    features, own = doubles("discrepancy", features=pair.features, own=pair.own)
    theirs, mine = (F.normalize(x, eps=1e-300) for x in (features, own))
    moments = mine.T @ mine / len(mine) - theirs.T @ theirs / len(theirs)
    return -float(torch.linalg.eigvalsh(moments).abs().max())


def kl(pair: Pair) -> float:
    """Minus the divergence KL(theirs || mine) (Kullback & Leibler 1951) of Gaussians fitted to standardised features.

    KL = 1/2 (tr(B^-1 A) + d' B^-1 d - F + ln det B - ln det A), for theirs N(a, A), mine N(b, B), d = b - a

    Both covariances shrink to the identity, as Ledoit & Wolf 2004 do, but by the same fixed part: (1 - s) C + s I with
    s = F / (F + min(n, p)), as if another F images had been seen, without correlation and with both sides' common
    variance. By parts of their own, a small sample would differ from a large one of the same kind of images.
    """
    mine, theirs = standardised("kl", pair)
    width = mine.shape[1]
    shrink = width / (width + min(len(mine), len(theirs)))

    def root(x: Tensor) -> Tensor:
        covariance = (x - x.mean(0)).T @ (x - x.mean(0)) / len(x)
        found: Tensor = torch.linalg.cholesky((1 - shrink) * covariance + shrink * torch.eye(width, dtype=x.dtype))
        return found

    ours, other = root(mine), root(theirs)
    apart = (mine.mean(0) - theirs.mean(0))[:, None]
    ratio = torch.linalg.solve_triangular(ours, other, upper=False).square().sum()
    far = torch.linalg.solve_triangular(ours, apart, upper=False).square().sum()
    volume = 2 * (ours.diagonal().log().sum() - other.diagonal().log().sum())
    return -max(float(ratio + far - width + volume) / 2, 0.0)


def anchors(pair: Pair) -> float:
    """Minus the sliced Wasserstein distance between the mean and spread of two tasks' rows: 256 numbers, no images.

    -1/S sum over s of ((m_s - m'_s)^2 + (v_s - v'_s)^2) / (1/S sum over s of (v_s^2 + v'_s^2) / 2), for means m and
    standard deviations v along S = 128 directions that all agents have (shoal/sharing/anchors.py).
    """
    one, other = doubles("anchors", anchor=pair.anchor, own_anchor=pair.own_anchor)
    return -distance(one, other)


ROUNDED = 1e-5  # what rounding can add to a score
BUILT_IN: dict[str, Metric] = {
    "iou": Metric(iou, "classes", 0.0, range=(0.0, 1.0)),
    "leep": Metric(leep, "labelled", range=(-inf, ROUNDED)),
    # Of n images it is below ln(n * RATIO) / 2, and above -ln(RATIO) / 2 - 2.
    "logme": Metric(logme, "labelled", range=(-20.0, 20.0)),
    "a_distance": Metric(a_distance, "images", compares=True, range=(-2.0, 0.0)),
    "otce": Metric(otce, "labelled", compares=True, range=(-inf, ROUNDED)),
    "discrepancy": Metric(discrepancy, "images", compares=True, range=(-1.0 - ROUNDED, 0.0)),
    "anchors": Metric(anchors, "anchor", NEAR, range=(-inf, 0.0)),
    "kl": Metric(kl, "images", compares=True, range=(-inf, 0.0)),
}
SCORES: Table[Metric] = Table("metric", BUILT_IN, "shoal.scores", lambda entry: isinstance(entry, Metric))


def doubles(metric: str, **given: Tensor) -> list[Tensor]:
    """What a score reads, in double precision and on the CPU, or why it cannot be computed."""
    for name, tensor in given.items():
        if not len(tensor):
            raise UserError(f"{metric} of no rows says nothing: `{name}` has 0 rows; give it at least one row")
        if not tensor.isfinite().all():
            raise UserError(
                f"{metric} needs finite numbers, but `{name}` holds an infinite one or NaN; "
                "leave out tasks whose training has diverged"
            )
    return [tensor.to("cpu", torch.float64) for tensor in given.values()]


def one_hot(labels: Tensor) -> Tensor:
    """[n, k] with a column for every class that occurs."""
    labels = labels.cpu()
    hot: Tensor = labels[:, None] == labels.unique()
    return hot.double()


def targets(metric: str, labels: Tensor) -> Tensor:
    """The neighbour's labels, one-hot [n, k]. Those of one class are known without a look at any image."""
    hot = one_hot(labels)
    if hot.shape[1] < 2:
        raise UserError(
            f"{metric} of a task with {'one class' if len(hot) else 'no labels'} says nothing: the {len(hot)} rows "
            f"given have {hot.shape[1]} different labels, not two or more; send rows of at least two classes"
        )
    return hot


def standardised(metric: str, pair: Pair) -> tuple[Tensor, Tensor]:
    """Own and their features with mean 0 and variance 1 over both, both weighing the same; constant ones are 0."""
    theirs, mine = doubles(metric, features=pair.features, own=pair.own)
    centre = (mine.mean(0) + theirs.mean(0)) / 2
    spread = (((mine - centre).square().mean(0) + (theirs - centre).square().mean(0)) / 2).sqrt()
    size = torch.maximum(mine.abs().amax(0), theirs.abs().amax(0))
    spread = spread.where(spread > FLAT * size, torch.inf)
    return (mine - centre) / spread, (theirs - centre) / spread


def transport(cost: Tensor, blur: float) -> Tensor:
    """The coupling [p, n] of two uniform samples that has the least cost[p, n] minus `blur` times its entropy.

    Sinkhorn's iterations (Cuturi 2013) on logarithms, which neither vanish nor overflow however small `blur` is; from
    much blur to little, since from nothing they would need very many steps where there is one clear match.
    """
    rows, columns = cost.shape
    right = torch.zeros_like(cost[0])  # in the unit of costs
    for now in (blur * 2**level for level in reversed(range(6))):
        for _ in range(STEPS):
            left = -now * (log(rows) + ((right - cost) / now).logsumexp(1))
            found = -now * (log(columns) + ((left[:, None] - cost) / now).logsumexp(0))
            done = bool((found - right).abs().max() <= 1e-6 * now)
            right = found
            if done:
                break
    coupling: Tensor = ((left[:, None] + right - cost) / blur).exp()
    return coupling
