"""Experience replay: every batch has images of the current task and of those kept of earlier ones."""

from typing import TYPE_CHECKING, Literal

from shoal.errors import SettingsError
from shoal.learners.contract import Learner

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


class Replay(Learner):
    """Learning with replay, for nets of one piece."""

    method: Literal["replay"] = "replay"

    def suits(self, settings: "Settings") -> None:
        if settings.modular:
            raise SettingsError(
                f"the learner `replay` needs a monolithic model, got `{settings.model}`; use model = "
                f'"{settings.block}" or learner.method = "modular"'
            )
