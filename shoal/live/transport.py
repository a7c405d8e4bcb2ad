"""The seam to the network: frames go to a neighbour, and an acknowledgement comes back, or nothing. An empty frame is
no letter: it says that its sender is there.

`Lines` is the filling for one process, with what can go wrong on a network as switches; `shoal.live.over_zenoh` is the
one for hosts.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

# What a receiver makes of a frame that a neighbour has sent: an acknowledgement.
Deliver = Callable[[int, bytes], bytes]

KEPT = b"kept"  # the letter is safe with its receiver
KNOWN = b"known"  # it was there already
LATER = b"later"  # there is no room now; try again
REFUSED = b"refused:"  # it never will be taken; the reason follows


class Transport(Protocol):
    """A way to the neighbours of one agent."""

    def open(self, deliver: Deliver) -> None:
        """Begin to take frames; they are handed over in any thread."""

    def send(self, peer: int, frame: bytes) -> bytes | None:
        """Send a frame and wait for its acknowledgement; None: none has come, whether the frame has or not."""

    def close(self) -> None:
        """End all connections."""


@dataclass
class Lines:
    """All lines of a fleet in one process."""

    homes: dict[int, Deliver] = field(default_factory=dict)
    cut: set[tuple[int, int]] = field(default_factory=set)  # lines over which nothing goes
    deaf: set[tuple[int, int]] = field(default_factory=set)  # lines over which no acknowledgement comes back
    delay: float = 0.0  # seconds that a frame takes
    copies: list[tuple[int, int, bytes]] | None = None  # of all letters, if they are wanted

    def line(self, me: int) -> "Line":
        """The lines of one agent."""
        return Line(self, me)


@dataclass
class Line:
    """The lines of one agent, in one process with all others."""

    lines: Lines
    me: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, deliver: Deliver) -> None:
        self.lines.homes[self.me] = deliver

    def send(self, peer: int, frame: bytes) -> bytes | None:
        home = self.lines.homes.get(peer)
        if home is None or (self.me, peer) in self.lines.cut:
            time.sleep(0.01)
            return None
        if self.lines.copies is not None and frame:
            self.lines.copies.append((self.me, peer, bytes(frame)))
        if self.lines.delay:
            time.sleep(self.lines.delay)
        said = home(self.me, bytes(frame))
        return None if (self.me, peer) in self.lines.deaf else said

    def close(self) -> None:
        self.lines.homes.pop(self.me, None)
