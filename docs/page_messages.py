"""What shoal says when something cannot be: every sentence of its errors, room by room, read from the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from page_house import WORDS

SHOAL = Path(__file__).parents[1] / "shoal"
UNSAID = "..."
MARKS = re.compile(r"(`[^`]+`)|([\\`*_{}\[\]<>#$|])")  # code, and what Markdown would take for its own
ABOUT = """\
What can shoal say when something is wrong? One sentence: what is wrong, the value found, what is allowed, what to do
next. These are all of them, by the room of the code that says them ([design](/design.md#rooms)); what stands in capital
letters is filled in. Look here for the words that you were told, and you have the module that knows more."""


def messages() -> str:
    """The page."""
    out = ["# Messages", ABOUT]
    for room, files in rooms().items():
        about = f": {WORDS[room]}" if room in WORDS else ""
        out.append(f"## `{room}`{about}")
        for file, said in files.items():
            out += [f"**`{file}`**", "\n".join(f"- {MARKS.sub(as_read, sentence)}" for sentence in said)]
    return "\n\n".join(out) + "\n"


def as_read(found: re.Match[str]) -> str:
    """Code as it is, and a mark for itself."""
    return found[1] or f"\\{found[2]}"


def rooms() -> dict[str, dict[str, list[str]]]:
    """The sentences of errors in each room, by file."""
    found: dict[str, dict[str, list[str]]] = {}
    for file in sorted(SHOAL.rglob("*.py")):
        parts = file.relative_to(SHOAL).with_suffix("").parts
        if parts[0] in ("contracts", "testing"):  # laws are said by those who break one
            continue
        if said := list(dict.fromkeys(sentences(ast.parse(file.read_text(encoding="utf-8"))))):
            found.setdefault(parts[0], {})["/".join(parts)] = said
    return found


def sentences(tree: ast.AST) -> Iterator[str]:
    """What a module's errors say: the first words that each is made with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and called(node.func).endswith(("Error", "Stopped")):
            text = " ".join(words(node.args[0]).split())
            if " " in text:  # a word alone is no sentence
                yield text


def called(function: ast.expr) -> str:
    """The name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def words(node: ast.expr) -> str:
    """A string as it stands in the code, with a name where a value comes in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(words, values))
        case ast.FormattedValue(value=value):
            return words(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return words(left) + words(right)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.upper()
        case _:
            return UNSAID
