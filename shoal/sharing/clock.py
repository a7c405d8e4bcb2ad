"""When modes act."""

from shoal.config import Settings, Sharing


def due(settings: Settings, task: int, epoch: int, ended: bool = False) -> list[Sharing]:
    """The modes that act when `epoch` epochs of a task are done: those `after` them, then those `before` the next.

    Training is cut at every multiple of any mode's period, and at the end. A mode `before` acts ahead of the chunks
    that end at a multiple of its own period (protocol 6). `ended` leaves out what belongs to the next task.
    """
    initial, epochs = settings.tasks.initial, settings.learner.epochs
    modes = [one for one in settings.sharing if task >= (initial if one.start == "initial" else one.start)]
    after = [one for one in modes if one.when == "after" and epoch and epoch % one.every == 0]
    ends = [min(epochs, (epoch // one.every + 1) * one.every) for one in modes]
    if ended or epoch >= epochs or not ends:
        return after
    starts = epoch == 0 or any(epoch % one.every == 0 for one in modes)
    end = min(ends)
    return after + [one for one in modes if one.when == "before" and starts and end % one.every == 0]
