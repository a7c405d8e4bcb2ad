"""A line that can be cut and held: it stands between two agents of one host, for demonstrations and tests."""

import selectors
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from shoal.live.places import host_of, split

PIECE = 65536


@dataclass
class Relay:
    """Listens at one address and hands all bytes on to another, both ways, unless it is cut or held."""

    address: str
    to: str
    cut: bool = False  # connections are closed, and no new ones are taken
    held: bool = False  # nothing is handed on, and nobody is told
    delay: float = 0.0  # seconds for each piece
    pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)
    over: bool = False

    def open(self) -> "Relay":
        host, port = host_of(self.address), split(self.address, "")[1]
        self.server = socket.create_server((host, port))
        self.server.settimeout(0.2)
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def serve(self) -> None:
        while not self.over:
            if self.cut:
                self.drop()
            try:
                near, _ = self.server.accept()
            except (TimeoutError, OSError):
                continue
            if self.cut:
                near.close()
                continue
            try:
                far = socket.create_connection((host_of(self.to), split(self.to, "")[1]), 2)
            except OSError:
                near.close()
                continue
            self.pairs.append((near, far))
            threading.Thread(target=self.pass_on, args=(near, far), daemon=True).start()
        self.drop()
        self.server.close()

    def pass_on(self, near: socket.socket, far: socket.socket) -> None:
        """Hand on what comes from either end until one of them ends."""
        with selectors.DefaultSelector() as ready, suppress(OSError, ValueError, KeyError):
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while not self.over:
                for key, _ in ready.select(0.2):
                    if self.held:
                        time.sleep(0.05)
                        continue
                    piece = key.fileobj.recv(PIECE)  # type: ignore[union-attr]
                    if not piece:
                        return
                    time.sleep(self.delay)
                    key.data.sendall(piece)
        near.close()
        far.close()

    def drop(self) -> None:
        """Close all connections."""
        while self.pairs:
            for end in self.pairs.pop():
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self) -> None:
        self.over = True
