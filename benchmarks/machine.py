"""What a benchmark ran on."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from pathlib import Path


def cpu_model() -> str:
    """The processor's name as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown CPU"


def describe(*packages: str) -> str:
    """One line: date, processor, cores, Python and the packages' versions."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    today = datetime.date.today().isoformat()
    return f"{today}, {cpu_model()}, {cores} cores, Python {platform.python_version()}, {versions}"


def descendants(pid: int) -> list[int]:
    """Ids of all processes that this one started, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        todo += (more := children.get(todo.pop(), []))
        found += more
    return found


def tree_memory_mb() -> tuple[float, float]:
    """Memory of this process and all its descendants, in MB.

    Returns:
        (proportional, resident): pages shared by n processes count 1/n in each, or once per process.
    """
    total = {"Pss": 0.0, "Rss": 0.0}
    for pid in [os.getpid(), *descendants(os.getpid())]:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it ended meanwhile
        for line in lines:
            name, _, rest = line.partition(":")
            if name in total:
                total[name] += int(rest.split()[0]) * 1024 / 1e6
    return total["Pss"], total["Rss"]
