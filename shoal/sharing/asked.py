"""What agents have asked at earlier exchanges, where answers can be late: of each image its task and label there."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from shoal.sharing.mode import Present, Received

ASKED = 4  # exchanges for which an agent remembers what it has asked


def history(most: int, *lanes: int) -> dict[str, Tensor]:
    """What nobody has asked yet: the clock of each question and how many images it had, and task and label of each."""
    shapes = {"asked": (ASKED, 3), "asked.images": (ASKED, most, 2)}
    return {name: torch.zeros(*lanes, *shape, dtype=torch.int64) for name, shape in shapes.items()}


def remember(agent: Present, most: int) -> None:
    """Keep what an agent has asked at this exchange, beside what it asked at the last few before: the clock then, how
    many images, and task and label of each."""
    asked = agent.noted
    if asked is None or not len(asked["task"]):
        return
    before = {**history(most), **agent.kept}
    when, images = (before[name].roll(1, 0) for name in ("asked", "asked.images"))
    when[0] = torch.tensor([agent.task, agent.epoch, len(asked["task"])])
    images[0, : len(asked["task"])] = torch.from_numpy(np.stack([asked["task"], asked["local"]], 1))
    agent.keep(**{"asked": when, "asked.images": images})


def remembered(agent: Present, answer: Received) -> Mapping[str, np.ndarray] | None:
    """What an agent had asked at the earlier exchange that an answer is to, as far as it remembers."""
    kept = agent.kept
    for at, (task, epoch, count) in enumerate(kept["asked"].tolist() if "asked" in kept else ()):
        if count > 0 and answer.replies_to("question", task, epoch):
            tasks, local = kept["asked.images"][at, :count].numpy().T
            return {"task": tasks, "local": local}
    return None
