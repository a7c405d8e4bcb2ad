"""What pictures that are written by hand, as SVG, have in common."""

import re
from xml.sax.saxutils import escape


def plain(text: str) -> str:
    """A text as XML has it; a file's name can hold what XML cannot: control characters, halves of surrogate pairs."""
    return escape(re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text))
