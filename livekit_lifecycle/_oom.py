"""Whether the kernel killed a process for want of memory: its own counter of the control group."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OURS: Final = Path("/proc/self/cgroup")


class OomKills:
    """Counts the kernel's kills in the control group of this process, where that is readable.

    A container's memory limit is one of its control group: beyond it the kernel sends a SIGKILL
    that looks like anybody else's. Neither does the kernel say whom it hit, so a process of the
    group that is no job's may be taken for one; where the whole group is killed, as Kubernetes can
    have it, nobody is left to ask.

    Args:
        cgroups: Where control groups are mounted.
        ours: Where the kernel says which is ours.
    """

    def __init__(self, cgroups: Path = _CGROUPS, ours: Path = _OURS) -> None:
        self._file = _find_counter(cgroups, ours)
        self._explained = self._count()

    def explain_one(self) -> bool:
        """Whether there was a kill that explains a SIGKILL, and no other one yet."""
        if self._count() <= self._explained:
            return False
        self._explained += 1
        return True

    def _count(self) -> int:
        try:
            lines = self._file.read_text().splitlines() if self._file else []
            return next((int(x.split()[1]) for x in lines if x.startswith("oom_kill ")), 0)
        except (OSError, ValueError):
            return 0


def _find_counter(cgroups: Path, ours: Path) -> Path | None:
    try:
        lines = [line.split(":", 2) for line in ours.read_text().splitlines()]
    except OSError:
        return None  # no Linux
    candidates: list[Path] = []
    for _, controllers, path in lines:
        inside = path.strip("/")
        if "memory" in controllers.split(","):  # version 1
            root, name = cgroups / "memory", "memory.oom_control"
        elif not controllers:  # version 2
            root, name = cgroups, "memory.events"
        else:
            continue
        # inside a container the path may be the host's, and the root what the container is given
        candidates += [root / inside / name, root / name]
    return next((file for file in candidates if file.is_file()), None)
