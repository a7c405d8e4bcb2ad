"""What is found out of an object but once, and forgotten with it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

Of = TypeVar("Of")
P = ParamSpec("P")
T = TypeVar("T")


def weakly(find: Callable[Concatenate[Of, P], T]) -> Callable[Concatenate[Of, P], T]:
    """Remember what a function finds of its first argument, by the others, for as long as that one lives: nothing here
    keeps a whole fleet in memory. What is found must not hold it."""
    known: WeakKeyDictionary[Of, dict[tuple[Any, ...], T]] = WeakKeyDictionary()

    @wraps(find)
    def found(of: Of, /, *others: P.args, **named: P.kwargs) -> T:
        mine = known.setdefault(of, {})
        what = (*others, *sorted(named.items()))
        if what not in mine:
            mine[what] = find(of, *others, **named)
        return mine[what]

    return found
