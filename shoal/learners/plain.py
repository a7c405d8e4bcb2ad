"""What learners of nets without modules say if they cannot serve."""

from typing import TYPE_CHECKING

from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.models.families import block_of, is_analytic, is_closed, is_decomposed, is_frozen, is_modular
from shoal.models.table import MODELS

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


def plain_only(learner: Learner, settings: "Settings") -> None:
    """Raise for nets whose tasks use different parts of it."""
    if is_modular(settings):
        other = f'model = "{block_of(settings)}"' if block_of(settings) in MODELS else "a model that is not modular"
        raise SettingsError(
            f"the learner `{learner.method}` is for nets that all tasks use as a whole, got `{settings.model}`, whose "
            f'tasks compose modules; use learner = "modular" or {other}'
        )
    if is_frozen(settings):
        raise SettingsError(
            f"the learner `{learner.method}` trains the weights of a net, and those of `{settings.model}` are frozen; "
            'use learner = "frozen", or another model'
        )
    if is_decomposed(settings):
        raise SettingsError(
            f"the learner `{learner.method}` trains weights as they are, and those of `{settings.model}` are put "
            'together of a base and of parts; use learner = "decomposed", or another model'
        )
    if is_closed(settings) or is_analytic(settings):
        raise SettingsError(
            f"the learner `{learner.method}` trains a net by gradients, and `{settings.model}` is fitted in closed "
            f'form; use learner = "{MODELS.find(settings.model).learner}", or another model'
        )


KINDS = {"task": "a head for each task", "one": "one head for all tasks", "grow": "one head that grows"}


def with_heads(learner: Learner, settings: "Settings") -> None:
    """Raise for heads that a learner makes no sense with."""
    heads = settings.tasks.heads
    if heads not in learner.serves:
        wanted = " or ".join(f'{KINDS[one]} (tasks.heads = "{one}")' for one in learner.serves)
        raise SettingsError(
            f'the learner `{learner.method}` is for agents with {wanted}, got tasks.heads = "{heads}"; change '
            "tasks.heads, or use another learner"
        )


def with_classes(learner: Learner, settings: "Settings") -> None:
    """Raise where numbers are to be predicted."""
    if settings.tasks.classes == 1:
        raise SettingsError(
            f"the learner `{learner.method}` needs classes, and with tasks.classes = 1 numbers are to be predicted; "
            "use another learner"
        )


def remembering(learner: Learner, settings: "Settings") -> None:
    """Raise for agents that remember nothing."""
    if settings.learner.memory == 0:
        raise SettingsError(
            f"the learner `{learner.method}` learns from remembered rows, but learner.memory = 0 keeps none; raise "
            "learner.memory, or use another learner"
        )
