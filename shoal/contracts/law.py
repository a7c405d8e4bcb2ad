"""A law, and what is said where it is broken."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from shoal.errors import UserError


def law(kept: bool, sentence: str) -> None:
    """Raise AssertionError with a sentence if a law is not kept: pytest rewrites no `assert` outside of tests."""
    if not kept:
        raise AssertionError(sentence)


@contextmanager
def finishes(what: str) -> Iterator[None]:
    """What is run inside must not be refused."""
    try:
        yield
    except UserError as error:
        raise AssertionError(f"{what} cannot be run in a small fleet: {error}") from error


class Law(NamedTuple):
    """A law about something, in words, and what raises AssertionError if it is broken."""

    title: str
    holds: Callable[[], None]


def laws_of(functions: Iterable[Callable[..., None]], *given: Any) -> list[Law]:
    """Laws by their functions, whose names say what they are, about something that is given to each."""

    def about(function: Callable[..., None]) -> Law:
        return Law(function.__name__.replace("_", " "), lambda: function(*given))

    return [about(function) for function in functions]
