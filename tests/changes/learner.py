"""A learner."""

import shoal


@shoal.penalty
def near(frame, strength=0.1):
    """Weights stay near where the last task has left them."""
    return strength * sum((frame.free[name] - old).square().sum() for name, old in frame.state.items())
