"""Pages that are written from the code, so that they cannot say anything else: settings, methods, metrics, commands,
the Python interface, examples. `write` is called at every build of the site; what it writes is not kept."""

import inspect
import re
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from page_house import house
from page_messages import messages
from page_methods import Pages, methods, options, protocols
from page_parts import SETTING, issubclass_, marked, rows_of, said, table

ROOT = Path(__file__).parents[1]
FOLDER = "reference"
DOCS = re.compile(r"(?<=\()docs/([\w/]+\.md)(?=[,)])")  # a page of the site, as docstrings name it: (docs/protocol.md)


def write(docs: Path) -> list[Path]:
    """Write all pages below docs/reference, which is theirs alone; what is the same as before is left as it is."""
    folder = docs / FOLDER
    found = pages()
    for old in folder.rglob("*.md") if folder.exists() else ():
        if str(old.relative_to(folder)) not in found:
            old.unlink()
    files = []
    for name, text in found.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
        files.append(file)
    for old in sorted(folder.rglob("*"), reverse=True):
        if old.is_dir() and not any(old.iterdir()):
            shutil.rmtree(old)
    return files


def pages() -> Pages:
    """All generated pages."""
    from shoal.learners.table import LEARNERS
    from shoal.sharing.modes import MODES

    found = {
        **notebooks(),
        "settings.md": settings(),
        "protocols.md": protocols(),
        "choices.md": choices(),
        "metrics.md": metrics(),
        "commands.md": commands(),
        "python.md": python(),
        "examples.md": examples(),
        "messages.md": messages(),
        **methods("sharing", "Sharing modes", "What agents send each other.", MODES, "mode"),
        **methods("learners", "Learners", "How an agent learns a task without forgetting the others.", LEARNERS,
                  "learner"),
        "sharing/options.md": options(),
    }  # fmt: skip
    linked = {name: DOCS.sub(r"[\1](/\1)", text) for name, text in found.items()}
    return linked | {"reproduced.md": reproduced(), "house.svg": house()}


def reproduced() -> str:
    """Every row of the paper beside ours, from the CSVs."""
    from shoal_paper.reproduced import written

    docs = ROOT / "docs"
    text = written(docs / "results", docs / "figures", docs / FOLDER / "reproduced.md")
    return text.replace("# What was reproduced", "# Every row of the paper", 1).replace("](docs/", "](../")


def notebooks() -> Pages:
    """The notebooks in examples, which the site executes."""
    files = sorted((ROOT / "examples").glob("*.ipynb"))
    return {file.name: file.read_text(encoding="utf-8").replace("](../docs/", "](/") for file in files}


# The pages

OWNERS = {"tasks": ("scenario", "scenarios"), "net": ("model", "models"), "network": ("graph", "graphs")}


def settings() -> str:
    """Every setting, group by group."""
    from shoal.configure.checks import of_entries
    from shoal.learners.contract import Learner
    from shoal.settings.groups import Kind, Link, Settings
    from shoal.settings.part import Part

    groups: dict[str, type[Part]] = {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Part)
    } | {"learner": Learner}
    lists: dict[str, tuple[type[Part], str]] = {"network.edges": (Link, "[[network.edges]]"),
                                                "kinds": (Kind, "[[kinds]]")}  # fmt: skip
    plain = [(name, field) for name, field in Settings.model_fields.items() if name not in groups]
    out = [
        "# Settings",
        "Everything that a settings file (TOML) or `KEY=VALUE` on the command line can set, written from the code. "
        "`shoal list settings` prints the same. In Python, the groups are keywords of [`shoal.Fleet`](python.md).",
        '```toml\ndataset = "digits"\nagents = 4\nsharing = "recv"\n\n[tasks]\ncount = 6\n\n[network]\n'
        'graph = "ring"\nbudget = "20 kB/task"\n```',
        "## The run",
        table(SETTING, rows_of(plain)),
    ]
    for name, part in groups.items():
        out += [f"## `{name}`", said(part).partition("\n\n")[0]]  # the rest is for those who write one
        own = [(f"{name}.{key}", field) for key, field in part.model_fields.items()]
        out.append(table(SETTING, rows_of(own)))
        if own := list(of_entries(part, f"{name}.")):
            what, plural = OWNERS[name]
            out += [f"These a {what} has beside them (`shoal list {plural} NAME`):", table(SETTING, rows_of(own))]
        if part is Learner:
            out.append("These every learner has; [each learner](learners/index.md) has more of its own.")
    for name, (part, written) in lists.items():
        out += [f"## `{name}`", f"{said(part)} In a settings file each is a table, `{written}`.",
                table(SETTING, rows_of((f"{name}.{key}", field) for key, field in part.model_fields.items()
                                       if not issubclass_(field.annotation, Part)))]  # fmt: skip
    out.append("A protocol sets what you do not: [what `fair` and `paper` set](protocols.md).")
    return "\n\n".join(out) + "\n"


def choices() -> str:
    """The other tables: what can be chosen by name."""
    from shoal.cli.commands import NAMED
    from shoal.configure.reading import experiments
    from shoal.data import DATASETS
    from shoal.doors import line

    out = [
        "# What there is to choose from",
        "`shoal list` prints these, with what installed packages bring. [Sharing modes](sharing/index.md) and "
        "[learners](learners/index.md) have pages of their own.",
    ]
    for title, (door, also) in NAMED.items():
        if title == "metrics":  # they have a page
            continue
        module, _, name = door.partition(":")
        entries = getattr(import_module(module), name)
        rows = [(f"`{one}`", line(entries[one])) for one in entries.entries]
        out += [f"## {title.capitalize()}", table(("name", "what it is"), rows), f"Also: {also}."]
    about = [(f"`{one}`", getattr(DATASETS[one], "note", "") or line(DATASETS[one])) for one in DATASETS.entries]
    out += ["## Datasets", table(("name", "what it is"), about)]
    first = [(f"`{name}`", file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "))
             for name, file in experiments().items()]  # fmt: skip
    out += ["## Experiments", "Settings files that come with shoal: `shoal run NAME`.",
            table(("name", "what it is"), first)]  # fmt: skip
    return "\n\n".join(out) + "\n"


LETTERS = r"""
Every metric is computed for each agent of each seed, from the accuracies that were measured on its own test images;
the mean and its standard errors are over them. $a(t, e, u)$ is the accuracy on task $u$ after $e$ epochs of task $t$,
as a fraction; $E$ is after all of them, $0$ before the first. $T$ is the number of tasks, and the first $s$
(`tasks.initial`) are learned together. The mean over the tasks seen so far is $m(t, e) = \frac{1}{t} \sum_{u=1}^{t}
a(t, e, u)$, and the learning curve is $c(e) = \frac{1}{T - s} \sum_{t=s+1}^{T} m(t, e)$, measured at the epochs
$e_g$. A task $u$ is first learned at the end of task $l_u = \max(u, s)$; sums over earlier tasks count those with
$l_u < T$. $C_t$ is the number of classes of task $t$, $O$ the tasks that only others have met. Where numbers are
predicted, R² stands in the place of accuracy."""


ERRORS = r"""
In a summary, `NAME_se` and `NAME_se_seeds` stand beside `NAME`. Both are standard errors of the mean, $s / \sqrt{n}$
with the sample deviation $s$ (divided by $n - 1$). In the first, which is the paper's, $n$ counts all agents of all
seeds; agents of one seed share their start and their mail, so it is too small. In the second, values are first averaged
within each seed, and $n$ counts seeds. We report both; trust the latter. Agents without a number are left out, and with
fewer than two numbers there is no error.

A gain is paired over seeds: the difference is taken in each seed, where both runs met the same tasks, and the p-value
is that of a paired t-test, corrected by Holm's rule in every table of these pages that has several."""


def metrics() -> str:
    """Every metric and its formula."""
    from shoal.doors import line
    from shoal.runs.metrics import METRICS

    out = [
        "# Metrics",
        LETTERS.strip(),
        "A missing measurement makes a number undefined, never a mean over what is there.",
    ]
    for name in METRICS.entries:
        metric = METRICS[name]
        formula, source = getattr(metric, "formula", ""), getattr(metric, "source", "")
        out += [f"## `{name}`", line(metric).capitalize() + ".", f"$$\n{formula}\n$$" if formula else "",
                f"Source: {source}." if source else ""]  # fmt: skip
    out += ["## Errors", ERRORS.strip()]
    return "\n\n".join(filter(None, out)) + "\n"


def commands() -> str:
    """Every command, its arguments and options."""
    from typer.main import get_command

    from shoal.cli.commands import app
    from shoal.cli.examples import EXAMPLES

    out = [
        "# Command line",
        "What `shoal COMMAND --help` says. [Commands by example](/commands.md) shows them at work.",
    ]

    def show(command: Any, name: str) -> None:
        if hasattr(command, "commands"):
            for word, inner in command.commands.items():
                show(inner, f"{name} {word}")
            return
        given = [one for one in command.params if one.param_type_name == "argument"]
        options = [one for one in command.params if one.param_type_name != "argument"]
        usage = " ".join([name, *map(placed, given), "[OPTIONS]"])
        out.extend([f"## `{name}`", f"```text\n{usage}\n```", inspect.cleandoc(command.help or "")])
        rows = [(f"`{placed(one)}`", getattr(one, "help", "") or "") for one in given]
        rows += [(", ".join(f"`{word}`" for word in [*one.opts, *one.secondary_opts]), helped(one)) for one in options]
        if rows:
            out.append(table(("", "meaning"), rows))
        _, lines = EXAMPLES.get(name.removeprefix("shoal "), ("", ()))
        if lines:
            shown = "\n".join(f"$ {line}" for line in lines)
            out.append(f"```console\n{shown}\n```")

    show(get_command(app), "shoal")
    return "\n\n".join(out) + "\n"


def placed(argument: Any) -> str:
    """An argument as it stands in a line of usage."""
    return argument.metavar or (argument.name.upper() if argument.required else f"[{argument.name.upper()}]")


def helped(option: Any) -> str:
    """What an option is, with its default where that says something."""
    default = option.default
    shown = option.show_default and default not in (None, False, True, ())
    return (option.help or "") + (f" (default: `{default}`)" if shown else "")


def python() -> str:
    """Every public name."""
    import shoal

    out = [
        "# Python",
        "The public names of the package. Each example is run by a test. What is not here may change without notice.",
    ]
    for name in shoal.__all__:
        thing = getattr(shoal, name)
        if name == "__version__":
            continue
        out += [f"## `shoal.{name}`", signature(f"shoal.{name}", thing), said(thing)]
        for own, inner in vars(thing).items() if isinstance(thing, type) else ():
            if own.startswith(("_", "model_")) or not spoken(inner):
                continue
            inner = getattr(inner, "__func__", inner)
            function = getattr(inner, "fget", None) or getattr(inner, "func", None)
            head = f"`{own}`" if function else signature(own, inner)
            out += [f"### `{name}.{own}`", head if not function else "", said(function or inner)]
    return "\n\n".join(filter(None, out)) + "\n"


def spoken(thing: Any) -> bool:
    """Is a member of a class something that a user calls or reads, with words of its own?"""
    thing = getattr(thing, "__func__", None) or getattr(thing, "fget", None) or getattr(thing, "func", thing)
    return callable(thing) and not isinstance(thing, type) and bool(inspect.getdoc(thing))


def signature(name: str, thing: Callable[..., Any]) -> str:
    """How something is called."""
    try:
        found = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    plain = re.sub(r"<[^>]*>", "...", found).replace("'", "").replace("typing.", "")
    return f"```python\n{name}{re.sub(r'shoal(?:.[a-z_]+)+.', '', plain)}\n```"


def examples() -> str:
    """The programs in examples, whole."""
    out = [
        "# Examples",
        "Short programs, each run by a test as it is. There are notebooks, too: "
        "[first fleet](/reference/first_fleet.ipynb), [your data to advice](/reference/your_data.ipynb), "
        "[keep, export, go on](/reference/keep_and_go_on.ipynb).",
    ]
    for file in sorted((ROOT / "examples").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        about, _, program = text.removeprefix('"""').partition('"""')
        out += [f"## {file.stem.replace('_', ' ').capitalize()}", marked(about.strip()),
                f"```{{code-block}} python\n:caption: examples/{file.name}\n\n{program.strip()}\n```"]  # fmt: skip
    return "\n\n".join(out) + "\n"


if __name__ == "__main__":
    write(Path(__file__).parent)
