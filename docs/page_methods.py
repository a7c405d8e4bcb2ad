"""Pages on sharing modes, learners and protocols, from their docstrings and settings."""

import json
from importlib import import_module
from typing import Any

from page_parts import SETTING, rows_of, said, table

Pages = dict[str, str]  # their text, by their place in docs/reference


def protocols() -> str:
    """What `fair` and `paper` set, for every row of Table 1."""
    from shoal.settings.groups import FAIR
    from shoal_paper.protocol import PAPER
    from shoal_paper.table1 import DATASETS, MODELS, SMALL
    from shoal_paper.table1 import PAPER as TABLE

    alone: dict[tuple[str, str], list[str]] = {}
    rows: dict[tuple[str, str, str], list[str]] = {}
    for model in MODELS:
        for dataset in DATASETS:
            if dataset == SMALL:
                continue
            base = {protocol: sets(dataset, model, "vanilla", protocol) for protocol in (FAIR, PAPER)}
            for protocol, found in base.items():
                alone.setdefault((f"`{protocol}`, {model}", words(found)), []).append(dataset)
            for method in (name for kind, name in TABLE if kind == model and name != "vanilla"):
                found = sets(dataset, model, method, PAPER)
                own = {name: one for name, one in found.items() if base[PAPER].get(name) != one}
                rows.setdefault((model, method, words(own) or "as agents alone"), []).append(dataset)
    return "\n\n".join([
        "# What a protocol sets",
        "`fair` is one clean setting for every model, dataset and mode; `paper` is what the rows of the paper's Table "
        "1 really did. A setting that you give always wins. [Why](/protocol.md), and [what differs from the "
        "paper](/differences.md).",
        "## Agents alone",
        table(("protocol and model", "datasets", "settings"),
              ((name, ", ".join(sorted(where)), one) for (name, one), where in alone.items())),
        "## Sharing under `paper`",
        "What a row sets otherwise than agents alone of the same model and dataset. Under `fair` every mode has its "
        "defaults.",
        table(("model", "row", "datasets", "settings"),
              ((model, method, ", ".join(sorted(where)), one) for (model, method, one), where in rows.items())),
    ]) + "\n"  # fmt: skip


def sets(dataset: str, model: str, method: str, protocol: str) -> dict[str, Any]:
    """What a protocol sets for a row of Table 1."""
    from shoal.settings.part import flatten
    from shoal.settings.protocols import switches
    from shoal_paper.table1 import MLP, modes

    block = "mlp" if dataset in MLP else "cnn"
    kind = block if model == "monolithic" else f"modular-{block}"
    return dict(flatten(switches(protocol, kind, dataset, tuple(modes(dataset, model, method)))))


def words(found: dict[str, Any]) -> str:
    """Settings as words of a command."""
    return ", ".join(f"`{name}={one}`" for name, one in found.items())


LEGEND = """
Prices are per directed edge and exchange, in numbers: b images of p pixels (784 on MNIST), W weights and biases that
agents have in common (16,640 in the nets for MNIST), F features that a head reads, C classes, K of them in a task.
Nobody has a server: neighbours take its place in every mode that was published with one."""


def options() -> str:
    """What several modes can be told."""
    parts = {
        "Only what helps: `accept`": "accept",
        "Whose models count how much: `weights`": "mixing",
        "Means that bear liars: `combine`": "combine",
        "Compressed models: `compress`": "compress",
        'PowerGossip: `compress = "power"`': "power",
        "What a module promises: `metric` of modmod": "scores",
    }
    out = ["# What several modes can be told", "Settings of more than one [sharing mode](index.md)."]
    for title, name in parts.items():
        out += [f"## {title}", said(import_module(f"shoal.sharing.{name}"))]
    return "\n\n".join(out) + "\n"


def methods(folder: str, title: str, about: str, entries: Any, noun: str) -> Pages:
    """A page for each entry of the table of modes or learners, and one that lists them."""
    from shoal.doors import line

    found: Pages = {}
    rows = []
    for name in entries.entries:
        kind = entries[name]
        found[f"{folder}/{name}.md"] = method(folder, name, kind)
        rows.append((f"[`{name}`]({name}.md)", line(kind)))
    tree = "\n".join([*entries.entries, *["options"] * (folder == "sharing")])
    found[f"{folder}/index.md"] = "\n\n".join([
        f"# {title}",
        f"{about} Yours can stand beside them: see [your own {noun}](/guides/{noun}.md). Each page has formula, "
        "source, price, what we changed, and all settings; `shoal list` prints the same. What was measured: "
        "[results](/results.md).",
        LEGEND.strip() if folder == "sharing" else "",
        table(("name", "what it is"), rows),
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n",
    ])  # fmt: skip
    return found


def method(folder: str, name: str, kind: Any) -> str:
    """The page of a sharing mode or learner."""
    from shoal.learners.contract import Learner
    from shoal.settings.protocols import EXAMPLE, switches
    from shoal.sharing.contract import Sharing

    out = [f"# {name}", said(kind)]
    command = tried(folder, name)
    if command:
        out += ["## Try it", f"```console\n$ {command}\n```"]
    base: Any = Sharing if folder == "sharing" else Learner
    own = {key: field for key, field in kind.model_fields.items() if key not in ("mode", "method")}
    prefix = f"sharing.{name}." if folder == "sharing" else "learner."
    special = {key: field for key, field in own.items() if key not in base.model_fields}
    common = {key: field for key, field in own.items() if key in base.model_fields}
    paper = switches("paper", *EXAMPLE, (name,))["sharing"].get(name, {}) if folder == "sharing" else {}
    out.append("## Settings")
    if special:
        out.append(table(SETTING, rows_of((prefix + key, field) for key, field in special.items())))
    out += ["Those that all have:", table(SETTING, rows_of((prefix + key, field) for key, field in common.items()))]
    if paper:
        sets = ", ".join(f"`{prefix}{key} = {json.dumps(one)}`" for key, one in paper.items())
        out.append(f'With `protocol = "paper"`, for modular nets on mnist, what you do not set is {sets}.')
    return "\n\n".join(filter(None, out)) + "\n"


def tried(folder: str, name: str) -> str:
    """A command that tries a method on the digits, with the first net and heads that it serves."""
    from shoal.configure.reading import EXPERIMENTS, read
    from shoal.errors import SettingsError
    from shoal.learners.table import LEARNERS

    said = [f"sharing={name}"] if folder == "sharing" else [f"learner={name}"]
    ways = [[], ["model=mlp"], ["model=mlp", "tasks.heads=grow"], ["model=mlp", "tasks.initial=1"],
            ["model=mlp", "tasks.heads=grow", "tasks.initial=1"]]  # fmt: skip
    others = [["model=mlp", f"learner={one}"] for one in LEARNERS.entries] if folder == "sharing" else []
    for more in [*ways, *others]:
        try:
            read(EXPERIMENTS / "digits.toml", [*said, *more])
        except SettingsError:
            continue
        return " ".join(["shoal run digits", *said, *more])
    return ""
