"""What is wrong with an answer: the loss that nets are trained by."""

from torch import Tensor
from torch.nn import functional as F


def errors(logits: Tensor, y: Tensor) -> Tensor:
    """The loss [B] of each answer: cross-entropy of logits [B, K] where y[B] are labels, the mean squared error where
    y[B, K] are numbers."""
    if y.is_floating_point():
        return (logits - y).square().mean(-1)
    return F.cross_entropy(logits, y, reduction="none")
