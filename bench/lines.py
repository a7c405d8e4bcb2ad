"""How many lines a method takes: `python -m bench.lines`.

Counted are the lines of a learner's or a mode's class and of all in its file that the class comes to use, base classes
too, without blank lines, comments and docstrings. What lies in other files is shared by several; what federated modes
share is counted beside them.
"""

import ast
import inspect
import statistics
from collections.abc import Mapping
from pathlib import Path

from shoal.learners.table import LEARNERS
from shoal.sharing import body, federated
from shoal.sharing.modes import MODES

COMMON = (federated, body)  # what federated modes share, but for compression and mixing


def methods() -> dict[str, Mapping[str, int]]:
    """The lines of all learners and of all sharing modes, by name."""
    learners = {name: lines(LEARNERS.find(name)) for name in LEARNERS}
    return {"learners": learners, "sharing modes": {name: lines(MODES.find(name)) for name in MODES}}


def lines(kind: type) -> int:
    """Lines of a class, and of all in its file that it comes to use."""
    text = Path(inspect.getfile(kind)).read_text()
    known = defined(text)
    wanted, found = [kind.__name__], set[str]()
    while wanted:
        name = wanted.pop()
        if name in known and name not in found:
            found.add(name)
            wanted += [one.id for one in ast.walk(known[name]) if isinstance(one, ast.Name)]
    return sum(code(known[name], text.splitlines()) for name in found)


def common() -> int:
    """Lines of what federated modes share."""
    texts = [inspect.getsource(file) for file in COMMON]
    return sum(code(node, text.splitlines()) for text in texts for node in defined(text).values())


def defined(text: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """The functions and classes of a file, by name."""
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def code(node: ast.FunctionDef | ast.ClassDef, text: list[str]) -> int:
    """Lines of a function or a class, without blank lines, comments and docstrings."""
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    counted = set(range(first, (node.end_lineno or first) + 1))
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(inner):
            said = inner.body[0]
            counted -= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    here = [text[at - 1].strip() for at in counted]
    return sum(bool(line) and not line.startswith("#") for line in here)


def main() -> None:
    for what, found in methods().items():
        largest = max(found, key=lambda name: found[name])
        middle = statistics.median(found.values())
        print(f"{len(found)} {what}: median {middle:g} lines, largest {found[largest]} ({largest})")
        print("  " + ", ".join(f"{name} {count}" for name, count in sorted(found.items(), key=lambda one: one[1])))
    print(f"federated modes share {common()} lines more")


if __name__ == "__main__":
    main()
