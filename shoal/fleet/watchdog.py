"""The watchdog of a Ray of a run's own: a program beside the driver that ends what the driver has started, as soon as
the driver has ended, however that came.

It needs nothing but Python: it is run by its path, with the folder that Ray works in. Its input is a pipe from the
driver, which the kernel closes when the driver ends; a driver that ends well says so first.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "SHOAL_RAY"  # the variable that all of a Ray's processes inherit: the folder that it works in
WELL = b"well"
PATIENCE = 5.0  # seconds, in which whoever is started anew is ended too
ENDED = (
    "this run has ended without a word: it was killed, or a part of its Ray was. What it had started is ended, and "
    "what was saved is whole: `shoal resume` goes on from there"
)


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def at_work(folder: Path, driver: int) -> set[int]:
    """The processes of the Ray that works in a folder: those that bear its mark, or write files there, and all that
    they have started, but for its `driver`. Who only names the folder, or reads there, is none."""
    mark, every, spared = f"{MARK}={folder}".encode(), parents(), (driver, os.getpid())
    found = {one for one in every if one not in spared and (bears(one, mark) or writes(one, folder))}
    while more := {one for one, parent in every.items() if parent in found and one not in found}:
        found |= more
    return found


def bears(process: int, mark: bytes) -> bool:
    """Was a process started with a mark in its environment?"""
    with suppress(OSError):
        return mark in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return False


def writes(process: int, folder: Path) -> bool:
    """Has a process a file in a folder open to write to it?"""
    with suppress(OSError):
        for file in os.scandir(f"/proc/{process}/fd"):
            with suppress(OSError):
                if str(Path(file.path).readlink()).startswith(f"{folder}/"):
                    flags = Path(f"/proc/{process}/fdinfo/{file.name}").read_text().split("flags:")[1].split()[0]
                    if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                        return True
    return False


def sweep(folder: Path, driver: int) -> None:
    """End whoever works in a folder, but for the `driver`, and remove it."""
    limit = time.monotonic() + PATIENCE
    while (left := at_work(folder, driver)) and time.monotonic() < limit:
        for one in left:
            with suppress(OSError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are meant for the driver
        signal.signal(number, signal.SIG_IGN)
    folder, driver = Path(sys.argv[1]), int(sys.argv[2])
    if sys.stdin.buffer.read() != WELL:
        sweep(folder, driver)
        with suppress(OSError):
            print(ENDED, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
