"""How far a run is, in a terminal or a notebook."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING

from shoal.console import err
from shoal.progress import bar, describe

if TYPE_CHECKING:
    from shoal.fleet.run import Moment, Watch
    from shoal.settings.groups import Settings

PAUSE = 0.2  # seconds between two pictures of the bar in a notebook


@contextmanager
def shown(settings: "Settings", wanted: "bool | Callable[[Moment], None] | None") -> "Iterator[Watch]":
    """What is told of every moment: a bar where one can be seen, if nothing else is wanted."""
    if callable(wanted):
        yield wanted
    elif wanted is not False and err.is_jupyter:
        yield cell(settings)
    elif wanted or (wanted is None and err.is_terminal):
        with bar(settings) as show:
            yield show
    else:
        yield lambda moment: None


def cell(settings: "Settings") -> "Watch":
    """A bar in the output of a notebook's cell."""
    from IPython.display import HTML, display  # it is there in a notebook

    from shoal.runs.execute import done, units

    total = units(settings)
    handle = display(HTML(drawn(0, total, "starting")), display_id=True)
    last = time.monotonic()

    def show(moment: "Moment") -> None:
        nonlocal last
        now = done(settings, moment)
        if now >= total or time.monotonic() - last > PAUSE:
            handle.update(HTML(drawn(now, total, describe(settings, moment))))
            last = time.monotonic()

    return show


def drawn(now: int, total: int, words: str) -> str:
    """The bar."""
    return f'<progress value="{now}" max="{total}"></progress> {escape(words)}'
