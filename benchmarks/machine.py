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


def tree_rss_mb() -> float:
    """Resident memory of this process and all its descendants, in MB."""
    children: dict[int, list[int]] = {}
    rss: dict[int, float] = {}
    page = os.sysconf("SC_PAGE_SIZE") / 1e6
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            pages = int((entry / "statm").read_text().split()[1])
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        rss[int(entry.name)] = pages * page
    total, todo = 0.0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += rss.get(pid, 0.0)
        todo += children.get(pid, [])
    return total
