"""What others on its host may ask a live agent: predictions, how it is, and numbers for a monitor.

It answers HTTP at a Unix socket in its folder, which its owner alone can open, and if asked at a port of the loopback
address. What answers is a copy of the weights after the last epoch, so that nobody waits for learning, nor it for them.
"""

import http.client
import io
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.agents.stack import CLOCK, MODEL, PARAMS, RECORD
from shoal.agents.world import World
from shoal.data.rows import Source
from shoal.errors import UserError
from shoal.runs.kept import told_by
from shoal.settings.groups import REST

if TYPE_CHECKING:
    from shoal.keep.agent import Agent
    from shoal.live.life import Life

LARGEST = 64 * 2**20  # bytes of a question
LOCAL = ("127.0.0.1", "localhost")
ARRAY, TEXT, JSON = "application/x-npy", "text/plain; version=0.0.4", "application/json"
PATIENCE = 10.0  # seconds for an answer
SOCKET_NAME = 100  # bytes that the name of a socket can have


class Desk:
    """A live agent as others on its host see it."""

    def __init__(self, life: "Life") -> None:
        self.lock = threading.Lock()
        world = life.world
        spare = tuple(mode for mode in world.settings.sharing if mode.spare)  # all that a net knows of sharing
        self.settings = world.settings.model_copy(update={"sharing": spare})
        self.life = life
        self.agent: Agent | None = None
        self.said: dict[str, Any] = {}
        self.world: World | None = None
        self.update(life)

    def read(self, world: World) -> None:
        """Note what rows are like in a world."""
        self.world, self.source = world, Source.of(world.bank, world.settings.dataset)
        kind = next((name for name, agents in world.fleet.members().items() if self.life.home.agent in agents), REST)
        (self.told,) = told_by(world, kind if world.fleet.kinds else "")

    def update(self, life: "Life") -> None:
        """Copy what is asked for: the agent as it is now, and how it is."""
        from shoal.keep.agent import Agent

        stack, home = life.stack, life.home
        if life.world is not self.world:
            self.read(life.world)
        agent = None
        if not life.crew.joint:
            task = min(stack.task, len(self.told.tasks) - 1)
            names = (f"{PARAMS}/", f"{MODEL}/", f"{CLOCK}/", f"{RECORD}/ended")
            state = {name: tensor[0].clone() for name, tensor in stack.tensors.items() if name.startswith(names)}
            told = replace(self.told, tasks=self.told.tasks[: task + 1])
            agent = Agent(self.settings, self.source, told, state, {"run": home.run}, whole=False)
        settings = life.world.settings
        said = {
            "task": min(stack.task + 1, settings.tasks.count), "tasks": settings.tasks.count, "epoch": stack.epoch,
            "epochs": settings.learner.epochs, "accuracy": accuracy(stack.accuracy), "finished": life.finished,
        }  # fmt: skip
        with self.lock:
            self.agent, self.said = agent, said

    def status(self) -> dict[str, Any]:
        with self.lock:
            said = dict(self.said)
        return {**about(self.life), **said}

    def predict(self, rows: Any, task: int | None, likely: bool) -> dict[str, Any]:
        """What the agent says of raw rows."""
        with self.lock:
            agent = self.agent
        if agent is None:
            raise UserError("it learns what all agents have in common, and answers when that is done")
        answer = agent.probabilities(rows, task) if likely else agent.predict(rows, task)
        return {"predictions": answer.tolist(), "classes": agent.classes(task), "task": agent.place(task) + 1}


def about(life: "Life") -> dict[str, Any]:
    """Who an agent is, and how its links are at this moment, as JSON has it."""
    home, store = life.home, life.store
    now, links = time.monotonic(), []
    waiting = dict(store.rows("SELECT peer, COUNT(*) FROM outbox GROUP BY peer"))
    for peer, sent, come, acknowledged, out, into, done in store.rows("SELECT * FROM links ORDER BY peer"):
        link = life.office.links.get(peer)
        last = max(link.reached, link.heard) if link else 0.0
        links.append(
            {
                "peer": peer, "sent": sent, "acknowledged": acknowledged, "waiting": waiting.get(peer, 0), "come": come,
                "bytes_sent": out, "bytes_come": into, "done": bool(done),
                "age": round(now - last, 1) if last else None,
                "reached": bool(link and not life.office.unreached(peer)),
            }
        )  # fmt: skip
    return {
        "agent": home.agent, "name": home.name, "run": home.run, "address": home.address, "pid": os.getpid(),
        "catching_up": life.office.replaying, "seconds": round(time.time() - life.begun, 1), "memory": resident(),
        "waits": waiting_for(life), "links": links, "refused": [list(one) for one in store.refusals()],
    }  # fmt: skip


def waiting_for(life: "Life") -> str:
    """What an agent waits for, in a few words; empty: for nothing."""
    if life.crew.waits is not None:
        return f"rows of task {life.crew.waits + 1}"
    missing, parting = (", ".join(map(str, found)) for found in (life.office.missing, life.crew.parting))
    return f"letters of agent {missing}" if missing else f"agent {parting} to end" if parting else ""


def accuracy(measured: Any) -> float | None:
    """The mean accuracy over the tasks so far, when it was last measured on held-out rows."""
    table = measured[0].reshape(-1, measured.shape[-1]).numpy()
    last = [column[~np.isnan(column)][-1] for column in table.T if (~np.isnan(column)).any()]
    return round(float(np.mean(last)), 4) if last else None


def resident() -> int:
    """The bytes of memory of this process; 0, where nobody says."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def numbers(said: Mapping[str, Any]) -> str:
    """How an agent is, in the text form of Prometheus."""
    labels = f'agent="{said["agent"]}",run="{said["run"]}"'
    lines = []

    def add(name: str, kind: str, about: str, values: Mapping[str, float]) -> None:
        lines.extend([f"# HELP shoal_{name} {about}", f"# TYPE shoal_{name} {kind}"])
        lines.extend(f"shoal_{name}{{{labels}{more}}} {value}" for more, value in values.items())

    add("task", "gauge", "The task that it learns, counted from 1.", {"": said["task"]})
    add("epoch", "gauge", "Epochs of the task that are done.", {"": said["epoch"]})
    if said["accuracy"] is not None:
        add("accuracy", "gauge", "Mean accuracy on held-out rows of the tasks so far.", {"": said["accuracy"]})
    add("finished", "gauge", "Is its stream learned?", {"": int(said["finished"])})
    add("memory_bytes", "gauge", "Resident memory.", {"": said["memory"]})
    for name, kind, about in (
        ("sent", "counter", "Letters written to a neighbour."),
        ("acknowledged", "counter", "The number of the last letter that a neighbour has kept."),
        ("come", "counter", "The number of the last letter of a neighbour."),
        ("waiting", "gauge", "Letters that wait to be sent."),
        ("bytes_sent", "counter", "Bytes that a neighbour has kept."),
        ("bytes_come", "counter", "Bytes that have come from a neighbour."),
    ):
        ending = "_total" if kind == "counter" and name != "acknowledged" else ""
        values = {f',peer="{one["peer"]}"': one[name] for one in said["links"]}
        add(f"link_{name}{ending}", kind if ending or kind == "gauge" else "gauge", about, values)
    ages = {f',peer="{one["peer"]}"': one["age"] for one in said["links"] if one["age"] is not None}
    add("link_age_seconds", "gauge", "Seconds since a neighbour was last heard or reached.", ages)
    refused = {f',peer="{peer}",why="{why}"': count for peer, why, count in said["refused"]}
    add("refused_total", "counter", "Letters refused, by neighbour and reason.", refused)
    return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """Answers one question."""

    desk: Desk
    timeout = PATIENCE
    protocol_version = "HTTP/1.0"
    at_port = False

    def log_message(self, *words: Any) -> None:
        """Nothing: what is asked is nobody's business."""

    def address_string(self) -> str:
        return "local"

    def allowed(self) -> bool:
        """At a port, a page in a browser must not ask under another name."""
        return not self.at_port or self.headers.get("Host", "").rpartition(":")[0] in LOCAL

    def do_GET(self) -> None:
        if not self.allowed():
            self.reply(403, {"error": "ask at 127.0.0.1"})
        elif self.path == "/status":
            self.reply(200, self.desk.status())
        elif self.path == "/metrics":
            self.answer(200, TEXT, numbers(self.desk.status()).encode())
        else:
            self.reply(404, {"error": "there are /status, /metrics and /predict"})

    def do_POST(self) -> None:
        if not self.allowed():
            self.reply(403, {"error": "ask at 127.0.0.1"})
            return
        length = self.headers.get("Content-Length", "")
        if self.path.partition("?")[0] != "/predict" or not length.isdecimal() or int(length) > LARGEST:
            self.reply(400, {"error": f"post rows to /predict, at most {LARGEST} bytes"})
            return
        try:
            body = self.rfile.read(int(length))
            if self.headers.get("Content-Type") == ARRAY:
                asked = json.loads(self.headers.get("X-Asked", "{}"))
                rows: Any = np.load(io.BytesIO(body), allow_pickle=False)
            else:
                asked = json.loads(body)
                rows = asked["rows"]
            if isinstance(rows, dict):
                import polars as pl

                rows = pl.DataFrame(rows)
            answer = self.desk.predict(rows, asked.get("task"), bool(asked.get("probabilities")))
        except UserError as error:
            self.reply(400, {"error": str(error)})
        except Exception as error:  # whatever was asked, the agent goes on
            self.reply(400, {"error": f"rows cannot be read: {type(error).__name__}"})
        else:
            self.reply(200, answer)

    def reply(self, code: int, said: Mapping[str, Any]) -> None:
        self.answer(code, JSON, json.dumps(said, default=str).encode())

    def answer(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class AtSocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server at a Unix socket."""

    daemon_threads = True


def opened(desk: Desk, place: Path, port: int | None = None) -> Callable[[], None]:
    """Begin to answer at a socket, and at a port of the loopback address if one is given. Returns what ends it."""
    servers: list[HTTPServer | AtSocket] = []
    if len(os.fsencode(place.resolve())) <= SOCKET_NAME:
        place.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            servers.append(AtSocket(str(place.resolve()), type("Ours", (Handler,), {"desk": desk})))
        finally:
            os.umask(before)
    if port is not None:
        try:
            servers.append(
                ThreadingHTTPServer((LOCAL[0], port), type("Ours", (Handler,), {"desk": desk, "at_port": True}))
            )
        except OSError as error:
            raise UserError(f"cannot answer at {LOCAL[0]}:{port}: {error.strerror}; give --port another one") from None
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True, name="serving").start()

    def end() -> None:
        for server in servers:
            server.shutdown()
            server.server_close()
        place.unlink(missing_ok=True)

    return end


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, place: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self.place = place

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(self.place.resolve()))


class Running:
    """A live agent in another process of this host.

    `Running("fleet/agent-3").predict(x)` is what the agent says now, while it learns.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def predict(self, x: Any, task: int | None = None) -> NDArray[Any]:
        """What it says of raw rows: the names of classes [n], or numbers; by the head of a task, the one that it learns
        where nobody says which."""
        return np.array(self.asked(x, task, False)["predictions"])

    def probabilities(self, x: Any, task: int | None = None) -> NDArray[np.float64]:
        """How likely it finds each of the classes of a task, [n, classes]."""
        return np.array(self.asked(x, task, True)["predictions"], np.float64)

    def status(self) -> dict[str, Any]:
        """How it is: its task and epoch, its accuracy, its links, and what it has refused."""
        found: dict[str, Any] = self.ask("GET", "/status")
        return found

    def asked(self, x: Any, task: int | None, likely: bool) -> Any:
        asked = {"task": task, "probabilities": likely}
        if hasattr(x, "columns"):
            rows = {name: list(x[name]) for name in x.columns}
            return self.ask("POST", "/predict", json.dumps({"rows": rows, **asked}).encode(), {"Content-Type": JSON})
        content = io.BytesIO()
        np.save(content, np.asarray(x), allow_pickle=False)
        headers = {"Content-Type": ARRAY, "X-Asked": json.dumps(asked)}
        return self.ask("POST", "/predict", content.getvalue(), headers)

    def ask(self, verb: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        connection = Connection(self.folder / "agent.sock")
        try:
            connection.request(verb, path, body, dict(headers or {}))
            response = connection.getresponse()
            said = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise UserError(
                f"no agent answers in {self.folder} ({error}); `shoal live run {self.folder}` starts it"
            ) from None
        finally:
            connection.close()
        if response.status != 200:
            raise UserError(f"the agent in {self.folder} says: {said.get('error', response.status)}")
        return said
