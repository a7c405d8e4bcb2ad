"""A scenario with a setting."""

import numpy as np

from shoal.data.by_classes import by_classes
from shoal.settings.groups import Tasks


class Steps(Tasks):
    """Classes in steps: every `stride`-th class of the data."""

    stride: int = 1

    def streams(self, bank, settings, lanes):
        def choose(ids, tasks, lane, rng):
            places = (self.stride * np.arange(tasks.count * tasks.classes)) % len(ids)
            return [tuple(int(one) for one in ids[part]) for part in places.reshape(tasks.count, -1)]

        return by_classes(choose)(bank, settings, lanes)
