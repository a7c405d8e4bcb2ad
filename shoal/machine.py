"""What this machine has."""

import os
from contextlib import suppress
from pathlib import Path

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def free() -> int | None:
    """Bytes of memory that this process may still take, if the system tells: what the machine has left, or what is left
    of a container's limit, in which copies of files count as free."""
    found = []
    with suppress(OSError, ValueError, LookupError):
        found.append(1024 * int(table(MEMINFO)["MemAvailable:"]))
    with suppress(OSError, ValueError, LookupError):
        most = int((CGROUP / "memory.max").read_text(encoding="utf-8"))  # `max`, which is no number: no limit
        used = int((CGROUP / "memory.current").read_text(encoding="utf-8"))
        files = table(CGROUP / "memory.stat")
        found.append(max(0, most - used + int(files["active_file"]) + int(files["inactive_file"])))
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found) if found else None


def table(file: Path) -> dict[str, str]:
    """The first and the second word of every line."""
    return {
        words[0]: words[1] for line in file.read_text(encoding="utf-8").splitlines() if len(words := line.split()) > 1
    }
