"""Arithmetic in closed form, in double precision: fits of single tasks, sparse codes, dictionaries.

A lane's bits must not depend on who is beside it in the stack. So products are taken lane by lane, and what goes over
all lanes at once is elementwise.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

STEPS, CHANGE = 100, 1e-3  # Newton's steps at most, and the change after which there is none
HALVES = 30  # how often a step that goes too far is halved
SWEEPS, SETTLED = 1000, 1e-9  # sweeps over all atoms at most, and the change after which there is none
NOTHING = 1e-12  # an atom that matters no more than this has no code


def ridged(matrix: Tensor, ridge: float) -> Tensor:
    """A matrix [D, D] with a ridge on everything but the constant, which is last."""
    found = matrix.clone()
    found.diagonal()[:-1] += ridge
    return found


def linear(x: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Ridge regression of numbers y[n] on rows x[n, D], and half the Hessian of its loss over n: [D], [D, D]."""
    hessian = ridged(x.T @ x, ridge)
    return torch.linalg.lstsq(hessian, (x.T @ y)[:, None], driver="gelsd").solution[:, 0], hessian / len(x)


def logistic(x: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Ridge logistic regression of labels y[n], 0 or 1 and not all alike, by Newton's steps, and half the Hessian of
    its loss over n: [D], [D, D]."""
    theta = x.new_zeros(x.shape[1])
    held = ridged(x.new_zeros(x.shape[1], x.shape[1]), ridge).diagonal()

    def loss(at: Tensor) -> Tensor:
        said = x @ at
        total: Tensor = torch.nn.functional.softplus(said).sum() - (said * y).sum() + 0.5 * (held * at * at).sum()
        return total

    def bent(at: Tensor) -> Tensor:
        likely = torch.sigmoid(x @ at)
        return ridged(x.T @ (x * (likely * (1 - likely))[:, None]), ridge)

    for _ in range(STEPS):
        slope = x.T @ (torch.sigmoid(x @ theta) - y) + held * theta
        step = torch.linalg.lstsq(bent(theta), slope[:, None], driver="gelsd").solution[:, 0]
        now = loss(theta)
        for _ in range(HALVES):
            if loss(theta - step) <= now:
                break
            step = step / 2
        theta = theta - step
        if float(step.abs().max()) < CHANGE:
            break
    return theta, 0.5 * bent(theta) / len(x)


def posed(dictionary: Tensor, theta: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """What codes of predictors theta[R, D], weighed by weight[R, D, D], minimise in a dictionary [k, D] of one lane:
    s'Gs - 2c's with G[R, k, k] and c[R, k]."""
    seen = dictionary @ weight  # [R, k, D]
    return seen @ dictionary.T, (seen @ theta[..., None])[..., 0]


def sparse(gram: Tensor, target: Tensor, penalty: float) -> Tensor:
    """argmin over s of s'Gs - 2c's + penalty |s|_1 for each row, by coordinate descent from least squares: gram[R, k,
    k], target[R, k]. A row whose code would be zero keeps least squares, so that every task has a say."""
    begin = torch.linalg.lstsq(gram, target[..., None], driver="gelsd").solution[..., 0]
    found = descended(gram.cpu().numpy(), target.cpu().numpy(), begin.cpu().numpy(), penalty)
    code = torch.from_numpy(found).to(target)
    return torch.where(code.any(1, keepdim=True), code, begin)


def descended(gram: Array, target: Array, begin: Array, penalty: float) -> Array:
    """Coordinate descent of all rows at once, each until it moves no more."""
    own = np.diagonal(gram, axis1=1, axis2=2)
    there, inverse = own > NOTHING, 1 / own.clip(min=NOTHING)
    found = np.where(there, begin, 0.0)
    live = np.arange(len(found))
    columns = [np.ascontiguousarray(gram[:, :, j]) for j in range(found.shape[1])]
    rest = target.copy()
    for j, column in enumerate(columns):
        rest -= column * found[:, j, None]
    code, half = found.copy(), penalty / 2
    for _ in range(SWEEPS):
        most = np.zeros(len(live))
        for j, column in enumerate(columns):
            old = code[:, j].copy()
            pull = rest[:, j] + own[:, j] * old
            new = np.sign(pull) * np.maximum(np.abs(pull) - half, 0.0) * inverse[:, j]
            code[:, j] = np.where(there[:, j], new, old)
            change = code[:, j] - old
            rest -= column * change[:, None]
            np.maximum(most, np.abs(change), out=most)
        moving = most > SETTLED
        if not moving.all():
            found[live] = code
            if not moving.any():
                return found
            live, code, rest = live[moving], code[moving], rest[moving]
            own, there, inverse = own[moving], there[moving], inverse[moving]
            columns = [column[moving] for column in columns]
    found[live] = code
    return found
