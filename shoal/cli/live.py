"""Commands of the live fleet: agents on hosts of their own."""

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.arguments import File, Json, Trust, Words
from shoal.cli.keep import Task
from shoal.console import console, plainly, say
from shoal.trust import give
from shoal.units import shown

app = typer.Typer(help="The live fleet: agents on hosts of their own, without a server.", no_args_is_help=True)
Fleet = Annotated[Path, typer.Argument(help="The folder of a live fleet, as `init` makes it.", metavar="DIR")]
Home = Annotated[Path, typer.Argument(help="The folder of one agent, such as fleet/agent-3.", metavar="DIR/agent-N")]
Number = Annotated[int, typer.Argument(help="The number of an agent, counted from 0.", min=0)]
Days = Annotated[float, typer.Option(help="For how many days certificates hold.", min=0.01)]


@app.command()
def init(
    file: File,
    words: Words = None,
    out: Annotated[Path, typer.Option(help="The folder to make.")] = Path("fleet"),
    begin: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Agents begin from those of a finished run, or one from a file; may be repeated."),
    ] = None,
    trust: Trust = False,
) -> None:
    """Make a folder for each agent of a settings file: settings, key, certificate, and whom it may speak with.

    The file has a table `[live]` with addresses = ["host:port", ...] or base = "127.0.0.1:7500", from which ports are
    counted; data = "csv:rows.csv?label=..." if each agent reads its own, from its folder, and watch = 60 if rows come
    while it runs: a task is learned when a later one begins, or nothing has changed for so many seconds. Carry each
    agent's folder to its host; the folder `authority` stays.
    """
    from shoal.live.fleets import make

    give(trust)
    plan, left_out = make(file, out, words or [], trust, begin or [])
    for name in left_out:
        say(f"{name} is left out: on hosts it is as it is")
    plainly(f"{len(plan.addresses)} agents in {out}; `shoal live run {out}/agent-0` starts one")


@app.command()
def run(
    folder: Home,
    leave: Annotated[bool, typer.Option("--leave", help="End when all neighbours have learned their streams.")] = False,
    slow: Annotated[float, typer.Option(help="Rest so many seconds after each epoch.", min=0)] = 0,
    lost: Annotated[
        float, typer.Option(help="Nobody waits for a neighbour who gives no sign for so many seconds.", min=1)
    ] = 300,
    port: Annotated[
        int | None,
        typer.Option(help="Answer over HTTP at this port of 127.0.0.1 too.", min=1, max=65535, show_default=False),
    ] = None,
    trust: Trust = False,
) -> None:
    """Let one agent live: it learns, exchanges letters, answers, and goes on where it was after Ctrl-C or kill -9."""
    import gc

    gc.disable()  # what is imported stays: to look through it for garbage is a fifth of an agent's start
    from shoal.live.life import live

    gc.freeze()
    gc.enable()
    give(trust)
    live(folder, leave, port, slow, say, lost)


@app.command()
def renew(folder: Fleet, agents: Annotated[list[int], typer.Argument(help="Agents.", min=0)], days: Days = 90) -> None:
    """Give agents new keys and certificates; they are used when the agents are started again."""
    from shoal.live import fleets

    for made in fleets.renew(folder, agents, days):
        plainly(f"{made} is renewed")


@app.command()
def drop(folder: Fleet, agent: Number) -> None:
    """Let an agent leave: its neighbours speak with it no more once they are started again."""
    from shoal.live import fleets

    for changed in fleets.drop(folder, agent):
        plainly(f"{changed} has changed: carry it to its host and start that agent again")


@app.command()
def add(
    folder: Fleet,
    agent: Number,
    address: Annotated[str | None, typer.Option(help="HOST:PORT, if it is another one.", show_default=False)] = None,
) -> None:
    """Take an agent back that had left, with a new certificate."""
    from shoal.live import fleets

    for changed in fleets.add(folder, agent, address):
        plainly(f"{changed} has changed: carry it to its host and start that agent again")


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="A fleet's folder, or one agent's.", metavar="DIR")],
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    json: Json = False,
) -> None:
    """Show how agents are: task, accuracy on held-out rows, letters, refusals, links. Those on other hosts are asked
    there."""
    import json as json_
    import time

    from rich.live import Live

    from shoal.cli.live_view import details, homes_of, statuses, table

    homes = homes_of(folder)
    found = statuses(homes)
    if json:
        typer.echo(json_.dumps(found))
        return
    if not watch:
        console.print(table(found))
        plainly(*details(found[0]) if len(homes) == 1 else ())
        return
    with Live(table(found), console=console, auto_refresh=False) as view:
        while True:
            time.sleep(1)
            view.update(table(statuses(homes)), refresh=True)


@app.command()
def predict(
    folder: Home,
    rows: Annotated[Path, typer.Argument(help="A CSV or Parquet file with the columns that the agent reads.")],
    task: Task = None,
) -> None:
    """Ask an agent that is at work what it predicts for the rows of a table, as CSV."""
    import polars as pl

    from shoal.data.sources.table import frame_of
    from shoal.live.serving import Running

    said = Running(folder).predict(frame_of(rows), task)
    typer.echo(pl.DataFrame({"predicted": said}).write_csv(), nl=False)


@app.command()
def replay(folder: Home) -> None:
    """Let an agent learn again from its journal alone, and compare it with what it has learned, bit for bit."""
    from shoal.live.replaying import replay as again

    done = again(folder)
    count = (
        ", ".join(f"{count} letters of agent {peer}" for peer, count in sorted(done.letters.items())) or "no letters"
    )
    since = f", since task {done.begins[0] + 1}, epoch {done.begins[1]}" if any(done.begins) else ""
    console.print(f"the same, bit for bit, at task {done.task}, epoch {done.epoch}: from its data and {count}{since}")


@app.command()
def prune(folder: Home) -> None:
    """Forget what letters held whose effect is in a checkpoint; replay begins from there. The agent may be at work."""
    from shoal.live.pruning import prune as emptied

    done = emptied(folder)
    plainly(
        f"{done.letters} letters are empty, {shown(done.bytes)} are free for others; who wrote them when stays in the "
        f"journal, and replay begins from task {done.task + 1}, epoch {done.epoch}"
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the fleet and its page go.")] = Path("runs/live"),
    port: Annotated[int, typer.Option(help="The first of the ports of this host that agents listen at.")] = 7500,
) -> None:
    """Watch six agents live on this host for two minutes: one is killed, one link is cut, and a stranger knocks."""
    from shoal.cli.live_demo import show

    show(out, port, console)
