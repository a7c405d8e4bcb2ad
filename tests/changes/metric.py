"""A metric that `compare` shows."""

import numpy as np


def worst_task(run):
    """The accuracy of an agent's worst task at the end, in %."""
    return 100 * np.nanmin(run.accuracy[:, -1, -1], axis=1)
