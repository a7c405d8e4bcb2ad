"""A learner of your own: weights are held near a slow average of where earlier tasks have left them."""

import shoal


def slowly(agent, speed=0.5):
    """What is kept at the end of a task: the weights, averaged over tasks."""
    return {name: agent.kept.get(name, now).lerp(now, speed) for name, now in agent.weights.items()}


@shoal.penalty(keeps=slowly, replay=True)
def hold(frame, strength=0.1):
    """Replay, with weights held near a slow average of where earlier tasks have left them."""
    return strength * sum((frame.free[name] - old).square().sum() for name, old in frame.state.items())


FEW = {"count": 4, "classes": 2, "initial": 1, "train": 20, "validation": 8}
FLEET = {"model": "mlp", "learner": hold(strength=0.05, epochs=20, rate=0.01), "agents": 4, "tasks": FEW}

if __name__ == "__main__":
    print(shoal.Fleet("digits", **FLEET).run(seeds=1))
