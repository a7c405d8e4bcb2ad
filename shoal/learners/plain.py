"""What learners say if they cannot serve: which nets, heads and rows they need is declared."""

from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.models.families import block_of, family
from shoal.models.table import ANALYTIC, CLOSED, DECOMPOSED, FROZEN, GROWTH, MODELS, REPLAY, modular_form

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


class Words(NamedTuple):
    """What is said of a family of nets."""

    wanted: str  # by a learner that teaches such nets alone
    refused: str  # by one of nets that all tasks use as a whole


SOLVED = 'trains a net by gradients, and `{net}` is fitted in closed form; use learner = "{usual}", or another model'
WORDS = {
    GROWTH: Words(
        "needs a modular model, got `{net}`; use model = {modular} or another learner.method",
        "is for nets that all tasks use as a whole, got `{net}`, whose tasks compose modules; use learner = "
        '"modular" or {block}',
    ),
    FROZEN: Words(
        "trains what a task adds to a frozen backbone, and `{net}` has none; use model = "
        '"masked-mlp" or "frozen-mlp", or another learner',
        'trains the weights of a net, and those of `{net}` are frozen; use learner = "frozen", or another model',
    ),
    DECOMPOSED: Words(
        'trains a base and a part for every task, and `{net}` has none; use model = "decomposed-mlp", or another '
        "learner",
        "trains weights as they are, and those of `{net}` are put together of a base and of parts; use learner = "
        '"decomposed", or another model',
    ),
    CLOSED: Words(
        'fits predictors in a dictionary, and `{net}` has none; use model = "factor", or another learner', SOLVED
    ),
    ANALYTIC: Words(
        'solves for heads that read rows as they are, got `{net}`; use model = "ridge", or another learner', SOLVED
    ),
}
KINDS = {"task": "a head for each task", "one": "one head for all tasks", "grow": "one head that grows"}


def suited(learner: Learner, settings: "Settings") -> None:
    """Raise for nets, heads and rows with which a learner makes no sense."""
    own = family(settings)
    if learner.teaches not in ("", own):
        known = block_of(settings) in MODELS
        words = WORDS[own].refused if learner.teaches == REPLAY else WORDS[learner.teaches].wanted
        said = words.format(
            net=settings.model,
            usual=own,
            modular=modular_form(settings.model),
            block=f'model = "{block_of(settings)}"' if known else "a model that is not modular",
        )
        raise SettingsError(f"the learner `{learner.method}` {said}")
    heads = settings.tasks.heads
    if heads not in learner.serves:
        wanted = " or ".join(f'{KINDS[one]} (tasks.heads = "{one}")' for one in learner.serves)
        raise SettingsError(
            f'the learner `{learner.method}` is for agents with {wanted}, got tasks.heads = "{heads}"; change '
            "tasks.heads, or use another learner"
        )
    if "classes" in learner.needs and settings.tasks.classes == 1:
        raise SettingsError(
            f"the learner `{learner.method}` needs classes, and with tasks.classes = 1 numbers are to be predicted; "
            "use another learner"
        )
    if "memory" in learner.needs and settings.learner.memory == 0:
        raise SettingsError(
            f"the learner `{learner.method}` learns from remembered rows, but learner.memory = 0 keeps none; raise "
            "learner.memory, or use another learner"
        )
