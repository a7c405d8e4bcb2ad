"""Sums of what was seen, and the ridge regression that follows from them, in double precision.

A row x, with a one behind it, adds x x' to a Gram matrix, of which a triangle is kept, and x y' to cross products with
what it should predict. Both are sums: those of rows, tasks and agents add up, in whatever order they were seen.
"""

from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor

LITTLE = 1e-9  # a column that varies no more, beside the one that varies most, is held as if it did
CHUNK = 4096  # rows at a time, in double precision


@lru_cache(maxsize=4)
def corner(size: int) -> tuple[Tensor, Tensor]:
    """Where the upper triangle of a square matrix lies, rows and columns."""
    rows, columns = torch.triu_indices(size, size)
    return rows, columns


def length(size: int) -> int:
    """How many numbers a triangle has."""
    return size * (size + 1) // 2


def packed(square: Tensor) -> Tensor:
    """The triangle of a symmetric matrix [D, D]."""
    return square[corner(len(square))]


def squared(triangle: Tensor, size: int) -> Tensor:
    """The symmetric matrix [D, D] of a triangle."""
    rows, columns = corner(size)
    found = triangle.new_zeros(size, size)
    found[rows, columns] = triangle
    found[columns, rows] = triangle
    return found


def summed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The triangle and the cross products [D + 1, C] of rows x[n, D] that should predict y[n, C]."""
    size = x.shape[1] + 1
    gram, cross = (torch.zeros(size, wide, dtype=torch.float64, device=x.device) for wide in (size, y.shape[1]))
    for rows, wanted in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
        ones = torch.ones(len(rows), 1, dtype=torch.float64, device=x.device)
        seen = torch.cat([rows.double(), ones], 1)
        gram += seen.T @ seen
        cross += seen.T @ wanted.double()
    return packed(gram), cross


def cut(triangle: Tensor, size: int, rank: int) -> dict[str, Tensor]:
    """The leading eigenvectors of how rows vary, their values, the diagonal of the rest, and the mean: what takes the
    place of a triangle where a link is narrow."""
    gram = squared(triangle, size)
    count = gram[-1, -1].clamp(min=1)
    mean = gram[:-1, -1] / count
    spread = gram[:-1, :-1] - count * torch.outer(mean, mean)
    values, vectors = torch.linalg.eigh(spread)
    values, vectors = values[-rank:].clamp(min=0), vectors[:, -rank:].T.contiguous()
    rest = spread.diagonal() - (values[:, None] * vectors.square()).sum(0)
    return {"vectors": vectors, "values": values, "rest": rest.clamp(min=0), "mean": mean}


def rebuilt(part: dict[str, Tensor], count: float) -> Tensor:
    """The Gram matrix [D + 1, D + 1] that `cut` has made smaller, of so many rows."""
    vectors, values, rest, mean = (part[name].double() for name in ("vectors", "values", "rest", "mean"))
    whole = torch.cat([mean, mean.new_ones(1)])
    found = count * torch.outer(whole, whole)
    found[:-1, :-1] += (vectors.T * values) @ vectors
    found.diagonal()[:-1] += rest
    return found


def solved(gram: Tensor, cross: Tensor, ridge: float, apart: bool) -> Tensor:
    """The weights [D + 1, C] of ridge regression, the constant last, which is not held back.

    What holds weights back is a share of how much columns vary: of the mean over all, or of each for itself (`apart`),
    which is the same as to scale every column by all rows that anybody has seen.
    """
    count = gram[-1, -1]
    if float(count) <= 0:
        return torch.zeros_like(cross)
    mean, wanted = gram[:-1, -1] / count, cross[-1] / count
    spread = gram[:-1, :-1] - count * torch.outer(mean, mean)
    varies = spread.diagonal().clamp(min=0)
    most = float(varies.max()) if len(varies) else 0.0
    if most == 0.0:
        return torch.cat([torch.zeros_like(cross[:-1]), wanted[None]])
    held = varies.clamp(min=LITTLE * most) if apart else torch.full_like(varies, float(varies.mean()))
    root = held.sqrt()
    matrix = spread / torch.outer(root, root)
    matrix.diagonal().add_(ridge)
    target = (cross[:-1] - count * torch.outer(mean, wanted)) / root[:, None]
    weights = torch.cholesky_solve(target, torch.linalg.cholesky(matrix)) / root[:, None]
    return torch.cat([weights, (wanted - mean @ weights)[None]])


def total(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The sum of triangles and of cross products, in their order."""
    several = iter(parts)
    gram, cross = (one.clone() for one in next(several))
    for more, wanted in several:
        gram += more
        cross += wanted
    return gram, cross
