"""Families of nets, by who usually teaches them: what learners, modes and pages ask of a model by its name."""

from typing import Protocol

from shoal.models.table import ANALYTIC, CLOSED, DECOMPOSED, FROZEN, GROWTH, MODELS


class HasModel(Protocol):
    """Settings of a fleet or of a kind."""

    @property
    def model(self) -> str: ...


def is_modular(settings: HasModel) -> bool:
    """Are nets made of modules that tasks compose?"""
    return MODELS.find(settings.model).learner == GROWTH


def is_frozen(settings: HasModel) -> bool:
    """Do nets stand on a backbone that nobody trains?"""
    return MODELS.find(settings.model).learner == FROZEN


def is_decomposed(settings: HasModel) -> bool:
    """Are weights put together of a base and of parts?"""
    return MODELS.find(settings.model).learner == DECOMPOSED


def is_closed(settings: HasModel) -> bool:
    """Are there no nets, but predictors in a dictionary, which are fitted in closed form?"""
    return MODELS.find(settings.model).learner == CLOSED


def is_analytic(settings: HasModel) -> bool:
    """Are there no nets, but linear predictors, which are solved for from sums of what was seen?"""
    return MODELS.find(settings.model).learner == ANALYTIC


def block_of(settings: HasModel) -> str:
    """What nets are made of, such as `mlp` or `cnn`; a model of one's own is its own block."""
    return MODELS.find(settings.model).block or settings.model
