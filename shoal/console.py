"""What is said on the terminal: text that does only what it shows there, with control characters written out."""

import io
import re
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# C0 but for the end of a line, DEL, C1; what turns the direction of writing, and other ends of lines.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with control characters as people write them, `\\x1b`."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class Plain(Console):
    """A console on which names of folders, words and files cannot do anything but be read."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


class Stream(io.TextIOBase):
    """A stream that is no terminal and writes all control characters out: for what other libraries say of words that
    have some."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()


console: Console = Plain()
err: Console = Plain(stderr=True)


def say(text: str, head: str = "") -> None:
    """A line on stderr exactly as it is: brackets in a path are no markup, and a command to copy is never wrapped."""
    err.print(Text.assemble((head, "bold red"), visible(text).replace("\n", "\\n")), soft_wrap=True)


def plainly(*lines: str, where: Console = console) -> None:
    """Lines on stdout, or elsewhere, exactly as they are."""
    for line in lines:
        where.print(line, highlight=False, markup=False, soft_wrap=True)
