"""A process that the kernel kills for want of memory: a SIGKILL like any other, but counted."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import ACTOR, call, running_worker, words
from tests.lacking import lacking

VERSION_1 = Path("/sys/fs/cgroup/memory")
VERSION_2 = Path("/sys/fs/cgroup")
MB = 1024 * 1024


class ControlGroup:
    """One of our own, with a memory limit."""

    def __init__(self) -> None:
        self._old = VERSION_1.is_dir()
        self.folder = (VERSION_1 if self._old else VERSION_2) / f"lifecycle-{uuid.uuid4().hex[:8]}"
        self.folder.mkdir()
        if not (self.folder / self._name("memory.limit_in_bytes", "memory.max")).exists():
            msg = "no memory controller here"
            raise OSError(msg)

    def _name(self, version_1: str, version_2: str) -> str:
        return version_1 if self._old else version_2

    def allow(self, more: int) -> None:
        """Limit it to what it uses now and so many bytes more."""
        used = self.folder / self._name("memory.usage_in_bytes", "memory.current")
        limit = self.folder / self._name("memory.limit_in_bytes", "memory.max")
        limit.write_text(str(int(used.read_text()) + more))

    def remove(self) -> None:
        """Once all in it have ended, which the kernel sees a moment later."""
        deadline = time.monotonic() + 5
        while self.folder.exists():
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            assert time.monotonic() < deadline, "a process is left in it"


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    try:
        made = ControlGroup()
    except OSError as error:
        lacking(f"a control group of our own, with a memory limit ({error.strerror or error})")
    yield made
    made.remove()


@ending("killed/oom", "the kernel kills for the memory limit of the control group")
async def test_the_kernels_kill_for_memory_is_told_from_anybody_elses(
    livekit_server: LiveKitServer, group: ControlGroup
) -> None:
    start = [sys.executable, "-m", "livekit.agents", "start", str(ACTOR), "--log-level", "DEBUG"]
    command = ["sh", "-c", f'echo $$ > {group.folder}/cgroup.procs && exec "$@"', "sh", *start]
    with running_worker(livekit_server, command=command) as worker:
        async with call(livekit_server, worker) as other, call(livekit_server, worker) as made:
            group.allow(150 * MB)
            await made.do("eat", mb=600)
            exit_, left = await made.ending()
            assert words(exit_) == ("crash", "killed", "oom", "rejoin")
            assert exit_.at <= left.at
            line = await worker.wait_for_log("worker_hook", job=made.job)
            assert line["seen"] == ["crash", "killed", "oom", True]
            pid = (await other.do("nothing"))["pid"]
            os.kill(pid, 9)
            assert words((await other.ending())[0]) == ("crash", "killed", "SIGKILL", "rejoin")
