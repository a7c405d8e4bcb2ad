"""Families of nets, by who usually teaches them: what learners, modes and pages ask of a model by its name."""

from typing import Protocol

from shoal.models.table import MODELS


class HasModel(Protocol):
    """Settings of a fleet or of a kind."""

    @property
    def model(self) -> str: ...


def family(settings: HasModel) -> str:
    """Of which family nets are, as their line in the table of models says: by the name of the learner that usually
    teaches them (`REPLAY`, whose nets all tasks use as a whole, `GROWTH`, `FROZEN`, ... in `shoal.models.table`)."""
    return MODELS.find(settings.model).learner


def block_of(settings: HasModel) -> str:
    """What nets are made of, such as `mlp` or `cnn`; a model of one's own is its own block."""
    return MODELS.find(settings.model).block or settings.model
