"""When modes act."""

from typing import TYPE_CHECKING

from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.sharing.contract import Sharing


def due(settings: Settings, task: int, epoch: int, ended: bool = False) -> "list[Sharing]":
    """The modes that act when `epoch` epochs of a task are done: those `after` them, then those `before` the next.

    Training is cut at every multiple of any mode's period, and at the end. A mode `before` acts ahead of the chunks
    that end at a multiple of its own period, or, if that is the task, at its start (docs/protocol.md, section 6).
    `ended` leaves out what belongs to the next task.
    """
    epochs = settings.learner.epochs
    modes = [one for one in settings.sharing if task >= one.first(settings.tasks.initial)]
    periods = {one.mode: epochs if one.every == "task" else one.every for one in modes}
    after = [one for one in modes if one.when == "after" and epoch and epoch % periods[one.mode] == 0]
    if ended or epoch >= epochs:
        return after
    starts = epoch == 0 or any(epoch % period == 0 for period in periods.values())
    end = min([epochs, *((epoch // period + 1) * period for period in periods.values())])

    def ahead(one: "Sharing") -> bool:
        return epoch == 0 if one.every == "task" else starts and end % periods[one.mode] == 0

    return after + [one for one in modes if one.when == "before" and ahead(one)]
