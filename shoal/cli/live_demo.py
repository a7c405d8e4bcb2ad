"""The live demo: six agents in processes of their own learn digits over the network of this host. One is killed and
comes back, one link is cut for a while, and a stranger knocks.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from shoal.cli.live_view import statuses, table
from shoal.console import plainly
from shoal.errors import UserError
from shoal.live import authority
from shoal.live.fleets import Home, agents_of, make
from shoal.live.gathered import gather
from shoal.live.over_zenoh import caller
from shoal.live.places import LOCAL
from shoal.live.relay import Relay
from shoal.live.replaying import replay
from shoal.report import needs

FLEET = """\
dataset = "digits"
model = "modular-mlp"
agents = 6
network = "ring"
sharing = ["modmod", {{ mode = "recv", every = 20, queries = 6 }}]

[tasks]
count = 7
classes = 3
train = 12
validation = 10
initial = 2

[net]
width = 32

[learner]
epochs = 40
batch = 18
rate = 5e-3
memory = 16

[clock]  # nobody waits for the others, but two seconds for an answer
pace = "asynchronous"
speed = 100
patience = 2

[machine]
checkpoint = 5

[live]
base = "{local}:{port}"
"""
STORY = """\
Six agents, each a process of its own as it would be on a host of its own, learn to read digits. There is no server: \
neighbours on a ring send each other modules and images, over TLS with a certificate on both sides. Meanwhile:
"""
KILLED, ENDS, STRANGER = 3, (1, 2), 9  # who is killed, whose link is cut, and who the stranger says that it is
SLOW = 0.28  # seconds of rest after an epoch, so that there is something to see
LIMIT = 900.0  # seconds after which it is given up, on however busy a host


class Event(NamedTuple):
    """What happens so many seconds after all agents are there, and what is said of it."""

    at: float
    word: str
    act: Callable[[], str | None]


def show(out: Path, port: int, console: Console) -> None:
    """Let the fleet live, and say what came out."""
    needs()
    if (out / "fleet").exists():
        shutil.rmtree(out / "fleet")
    out.mkdir(parents=True, exist_ok=True)
    file = out / "fleet.toml"
    file.write_text(FLEET.format(local=LOCAL, port=port))
    make(file, out / "fleet")
    homes = agents_of(out / "fleet")
    console.print(STORY, highlight=False, width=min(100, console.width))
    relays = cut_off(homes, port)
    homes = agents_of(out / "fleet")
    agents: dict[int, subprocess.Popen[bytes]] = {}
    notes: list[str] = []
    with ExitStack() as held:
        for relay in relays:
            held.callback(relay.open().close)
        held.callback(end, agents)
        for home in homes:
            agents[home.agent] = started(home)
        follow(homes, agents, events(homes, agents, relays, out / "stranger"), notes, console)
    conclude(out, homes, console)


def started(home: Home) -> "subprocess.Popen[bytes]":
    """An agent in a process of its own."""
    words = [sys.executable, "-m", "shoal", "live", "run", str(home.folder), "--leave", "--slow", str(SLOW)]
    with (home.folder / "log.txt").open("ab") as log:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def cut_off(homes: list[Home], port: int) -> list[Relay]:
    """Put lines that can be cut between two neighbours, one for each direction in which they connect."""
    relays = []
    for at, (near, far) in enumerate((ENDS, ENDS[::-1])):
        home, place = homes[near], f"{LOCAL}:{port + len(homes) + at}"
        relays.append(Relay(place, home.addresses[far]))
        replace(home, addresses={**home.addresses, far: place}).write()
    return relays


def events(
    homes: list[Home], agents: "dict[int, subprocess.Popen[bytes]]", relays: list[Relay], place: Path
) -> list[Event]:
    """What happens, and when."""

    def kill() -> None:
        agents[KILLED].kill()
        agents[KILLED].wait()

    def back() -> None:
        agents[KILLED] = started(homes[KILLED])

    def cut(wanted: bool) -> None:
        for relay in relays:
            relay.cut = wanted

    one, other = ENDS
    return [
        Event(8, f"agent {KILLED} is killed (kill -9)", kill),
        Event(16, f"agent {KILLED} is started again: it goes on from its checkpoint and its journal", back),
        Event(30, f"the link between agents {one} and {other} is cut; both learn on", lambda: cut(True)),
        Event(
            42, "a stranger with a certificate of another authority knocks at agent 0", lambda: knock(homes[0], place)
        ),
        Event(
            50,
            f"the link between agents {one} and {other} is there again: what waited goes over it",
            lambda: cut(False),
        ),
    ]


def knock(home: Home, place: Path) -> str:
    """What becomes of somebody who has made certificates of its own and says that it is a neighbour of an agent."""
    shutil.rmtree(place, ignore_errors=True)
    peer = home.senders[0]
    authority.found(place / "authority", home.run)
    authority.certify(place / "authority", place / "agent", home.run, peer, LOCAL)
    stranger = caller(place / "agent", home.run, peer, home.agent, home.address)
    try:
        stranger.open(lambda peer, frame: b"")
        answer = stranger.send(home.agent, b"let me in", 5)
    finally:
        stranger.close()
    return "nobody answers it: its certificate is not of this fleet" if answer is None else f"it is answered {answer!r}"


def follow(
    homes: list[Home],
    agents: "dict[int, subprocess.Popen[bytes]]",
    coming: list[Event],
    notes: list[str],
    console: Console,
) -> None:
    """Show how agents are until all have learned, and let happen what happens."""
    begun, limit, last = None, time.monotonic() + LIMIT, list[dict[str, Any]]()

    def view() -> Group:
        return Group(table(last), Text(""), *(Text(note) for note in notes))

    def happen(event: Event) -> None:
        if said := event.act():
            notes.append(f"        {said}")

    with Live(console=console, auto_refresh=False, transient=False) as live:
        while any(agent.poll() is None for agent in agents.values()) or coming:
            failed = [at for at, agent in agents.items() if agent.poll() not in (None, 0) and at != KILLED]
            if failed or time.monotonic() > limit:
                raise UserError(
                    f"agent {failed[0] if failed else min(agents)} did not come to its end; "
                    f"{homes[failed[0] if failed else 0].folder / 'log.txt'} says why"
                )
            last = list(map(seen, statuses(homes), last or [{} for _ in homes]))
            if begun is None and all(one["there"] for one in last):
                begun = time.monotonic()
            passed = time.monotonic() - begun if begun else 0.0
            while begun and coming and passed >= coming[0].at:
                event = coming.pop(0)
                notes.append(f"{passed:4.0f} s  {event.word}")
                threading.Thread(target=happen, args=(event,), daemon=True).start()
            live.update(view(), refresh=True)
            time.sleep(0.5)
        last = list(map(seen, statuses(homes), last))
        live.update(view(), refresh=True)


def seen(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """How an agent is; of one that has ended, how it was last."""
    if new["there"] or not old:
        return new
    return {
        **old,
        "there": new["ended"] and "task" in old,
        "ended": new["ended"],
        "finished": new["ended"],
        "waits": "",
    }


def end(agents: "dict[int, subprocess.Popen[bytes]]") -> None:
    """End agents that are still at work."""
    for agent in agents.values():
        if agent.poll() is None:
            agent.terminate()
    for agent in agents.values():
        try:
            agent.wait(20)
        except subprocess.TimeoutExpired:
            agent.kill()


def conclude(out: Path, homes: list[Home], console: Console) -> None:
    """Say what came out, and where to look."""
    from shoal.cli.work import save_page

    console.print()  # below the last picture, which ends without a new line where nobody sees it move
    found = gather(out / "fleet")
    page = out / "report.html"
    save_page([found.folder], page)
    summary = json.loads((found.folder / "summary.json").read_text())
    again = replay(homes[KILLED].folder)
    count = sum(again.letters.values())
    lines = [
        "",
        f"Accuracy at the end: {summary['final_accuracy']:.1f} %. {summary['messages']} letters, "
        f"{summary['bytes_total'] / 1000:.0f} kB; the books of all agents, merged, "
        + ("agree." if not found.disagreements else f"disagree: {'; '.join(found.disagreements)}."),
        f"Agent {KILLED}, which was killed, learned again from its journal ({count} letters): the same, bit for bit.",
        "",
        "Look at:",
        f'  {page}: what the fleet learned, and what went over each link (under "Traffic")',
        f"  shoal live status {homes[ENDS[0]].folder}: what an agent has exchanged, and refused",
        f"  {homes[0].folder / 'zenoh.json'}: who may speak with agent 0, before any code of ours runs",
        f"  {out / 'fleet.toml'}: the settings; with an address per host, `shoal live init` makes the same for a site",
    ]
    plainly(*lines)
