"""Frames over Eclipse Zenoh: direct links between neighbours, mutual TLS, and nothing else.

A frame is a query on the key `shoal/RUN/SENDER/RECEIVER`, and its reply is the acknowledgement. Access rules tie the
sender in the key to the name in the certificate, in Zenoh, before any code of ours runs: a member with a valid
certificate that is no neighbour reaches nothing, and a neighbour its own line alone.
"""

import json
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.live.authority import AUTHORITY, CERTIFICATE, KEY, common_name
from shoal.live.places import LOCAL
from shoal.live.transport import LATER, Deliver

PATIENCE = 10.0  # seconds for an acknowledgement
CONNECT = 5.0  # seconds between tries to connect, at most
PENDING, SESSIONS = 32, 64  # who may be on the way in, and in, at the same time; more, where there are many neighbours


def line(run: str, sender: int, receiver: int) -> str:
    """The key of a directed link."""
    return f"shoal/{run}/{sender}/{receiver}"


def configuration(
    folder: Path,
    run: str,
    me: int,
    address: str,
    senders: Collection[int],
    receivers: Collection[int],
    addresses: Mapping[int, str],
    longest: int,
) -> dict[str, Any]:
    """What Zenoh is told: whom to listen and connect to, with which certificate, and who may use which key."""
    tls = {
        "root_ca_certificate": str(folder / AUTHORITY),
        "listen_certificate": str(folder / CERTIFICATE),
        "listen_private_key": str(folder / KEY),
        "connect_certificate": str(folder / CERTIFICATE),
        "connect_private_key": str(folder / KEY),
        "enable_mtls": True,
        "close_link_on_expiration": True,
    }
    neighbours = sorted({*senders, *receivers})
    rules, policies, subjects = [], [], []
    for peer in neighbours:
        # A neighbour asks on its own line to us, if it has one, and we on ours to it.
        keys = [line(run, peer, me)] * (peer in senders) + [line(run, me, peer)] * (peer in receivers)
        subjects.append({"id": f"agent-{peer}", "cert_common_names": [common_name(run, peer)]})
        for at, key in enumerate(keys):
            theirs = peer in senders and at == 0
            for flow, messages in flows(theirs):
                name = f"{peer}-{'in' if theirs else 'out'}-{flow}"
                rules.append(
                    {"id": name, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": [key]}
                )
                policies.append({"rules": [name], "subjects": [f"agent-{peer}"]})
    retry = {"period_init_ms": 200, "period_max_ms": int(CONNECT * 1000), "period_increase_factor": 2}
    access = {"enabled": True, "default_permission": "deny", "rules": rules, "subjects": subjects, "policies": policies}
    return {
        "mode": "peer",
        "listen": {"endpoints": [f"tls/{address}"], "exit_on_failure": True, "timeout_ms": 0},
        "connect": {
            "endpoints": [f"tls/{addresses[peer]}" for peer in neighbours],
            "exit_on_failure": False,
            "timeout_ms": -1,
            "retry": retry,
        },
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "unicast": {
                "open_timeout": 10000,
                "accept_timeout": 10000,
                "accept_pending": PENDING,
                "max_sessions": max(SESSIONS, 2 * len(neighbours)),
            },
            "link": {"protocols": ["tls"], "tls": tls, "rx": {"max_message_size": longest + 4096}},
        },
        "access_control": access if rules else {**access, "rules": None, "subjects": None, "policies": None},
    }


def flows(theirs: bool) -> list[tuple[str, list[str]]]:
    """What goes in and out over a line: of theirs to us queries come in, and replies go out."""
    asking, telling = ["query"], ["reply", "declare_queryable"]
    return [("ingress", asking), ("egress", telling)] if theirs else [("egress", asking), ("ingress", telling)]


def files_allowed() -> None:
    """Let this process have as many files and connections as the system allows it, often 1,024 unless it asks: who only
    connects has one of them for ten seconds or more, and the agent must still write its own."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Zenoh:
    """The lines of one agent over Zenoh."""

    def __init__(
        self, run: str, me: int, senders: Collection[int], receivers: Collection[int], settings: Mapping[str, Any]
    ) -> None:
        self.run, self.me, self.settings = run, me, settings
        self.senders, self.receivers = tuple(senders), tuple(receivers)
        self.session: Any = None
        self.queryables: list[Any] = []

    def open(self, deliver: Deliver) -> None:
        import zenoh

        files_allowed()
        config = zenoh.Config.from_json5(json.dumps(self.settings))
        try:
            self.session = zenoh.open(config)
        except zenoh.ZError as error:
            address = self.settings["listen"]["endpoints"][0].removeprefix("tls/")
            raise UserError(
                f"cannot listen at {address}: {str(error).splitlines()[0][:200]}; is another process there, or is the "
                "address of another host? `[live]` in fleet.toml says which it is"
            ) from None
        for peer in self.senders:
            self.queryables.append(
                self.session.declare_queryable(line(self.run, peer, self.me), self.taking(peer, deliver))
            )

    def taking(self, peer: int, deliver: Deliver) -> Any:
        """What is done with a frame of a neighbour."""

        def take(query: Any) -> None:
            with query:
                frame = bytes(query.payload) if query.payload is not None else b""
                try:
                    said = deliver(peer, frame)
                except Exception:  # whatever it is, the letter stays with its sender, and the agent goes on
                    logging.getLogger("shoal.live").exception("a letter of agent %s could not be kept", peer)
                    said = LATER
                query.reply(line(self.run, peer, self.me), said)

        return take

    def send(self, peer: int, frame: bytes, patience: float = PATIENCE) -> bytes | None:
        import zenoh

        if self.session is None or peer not in self.receivers:
            return None
        try:
            replies = self.session.get(line(self.run, self.me, peer), payload=frame, timeout=patience)
            for reply in replies:
                if reply.ok is not None:
                    return bytes(reply.ok.payload)
        except zenoh.ZError:
            return None
        return None

    def close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()


def caller(folder: Path, run: str, sender: int, receiver: int, address: str) -> Zenoh:
    """The line to one agent of somebody with the certificate in a folder who says that it is some sender."""
    said = configuration(folder.resolve(), run, sender, f"{LOCAL}:0", [], [receiver], {receiver: address}, 65536)
    return Zenoh(run, sender, [], [receiver], said)
