"""What is wrong with an answer: the loss that nets are trained by."""

import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.models.by_hand import log_softmax_back


def errors(logits: Tensor, y: Tensor) -> Tensor:
    """The loss [B] of each answer: cross-entropy of logits [B, K] where y[B] are labels, the mean squared error where
    y[B, K] are numbers."""
    if y.is_floating_point():
        return (logits - y).square().mean(-1)
    return F.cross_entropy(logits, y, reduction="none")


def pull(logits: Tensor, y: Tensor, share: Tensor) -> Tensor:
    """The gradient [L, B, K] of a sum of losses at the logits [L, B, K], for y[L, B] or y[L, B, K]; every image counts
    as much as its share[L, B] says."""
    if y.is_floating_point():
        return (logits - y) * (share * (2 / logits.shape[-1]))[..., None]
    logs = logits.log_softmax(-1)
    wanted = torch.zeros_like(logs).scatter_(-1, y[..., None], -share[..., None])
    return log_softmax_back(wanted, logs, -1)
