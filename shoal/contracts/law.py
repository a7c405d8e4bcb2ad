"""A law, and what is said where it is broken."""

from collections.abc import Iterator
from contextlib import contextmanager

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
