"""A net with a setting."""

import math

from torch import nn


class Small(nn.Sequential):
    """One layer."""

    def __init__(self, shape, units=12):
        super().__init__(nn.Flatten(), nn.Linear(math.prod(shape), units), nn.ReLU())
