"""What this machine has."""

import os
from pathlib import Path


def free() -> int | None:
    """Bytes of memory that this process may still take, if the system tells."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        most, used = (Path(f"/sys/fs/cgroup/memory.{one}") for one in ("max", "current"))
        if most.exists() and (said := most.read_text(encoding="utf-8").strip()) != "max":
            found.append(max(0, int(said) - int(used.read_text(encoding="utf-8"))))
    except (OSError, ValueError, IndexError):
        pass
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found) if found else None
