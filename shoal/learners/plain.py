"""What learners of nets without modules have in common."""

from typing import TYPE_CHECKING

from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.models.table import MODELS

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


def plain_only(learner: Learner, settings: "Settings") -> None:
    """Raise for nets whose tasks use different parts of it."""
    if settings.modular:
        other = f'model = "{settings.block}"' if settings.block in MODELS else "a model that is not modular"
        raise SettingsError(
            f"the learner `{learner.method}` is for nets that all tasks use as a whole, got `{settings.model}`, whose "
            f'tasks compose modules; use learner = "modular" or {other}'
        )
