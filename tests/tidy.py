"""What a test must not leave behind: processes, listening sockets, what was never closed."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import time
import uuid
from collections.abc import Iterator
from typing import Final

import aiohttp
import psutil

MARK: Final = "LIFECYCLE_TEST_RUN"
"""In the environment of all that a test process starts, also of what it lost sight of since."""
PATIENCE: Final = 10.0
"""Seconds for what has been told to end, or was killed, to be gone."""
NEVER_CLOSED: Final = (
    "Unclosed client session",
    "Unclosed connector",
    "Task was destroyed but it is pending",
)
"""How asyncio and aiohttp log, without raising, what somebody forgot."""

complaints: list[str] = []
"""Such lines of this process and of the workers that it started, until somebody takes them."""


def take_complaints() -> list[str]:
    """Those so far; the next call returns the next ones."""
    taken = complaints.copy()
    del complaints[: len(taken)]
    return taken


def complain_of(line: str, who: str) -> None:
    """Note a log line of a worker if it tells of something that was never closed."""
    if any(words in line for words in NEVER_CLOSED):
        complaints.append(f"{who}: {line}")


class Complaints(logging.Handler):
    """Notes what asyncio itself complains of in this process; it never raises."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        complaints.append(f"this process: {record.getMessage()}")


def mark_this_run() -> str:
    """Give all that is started from now on a mark to be known by."""
    os.environ[MARK] = f"{os.getpid()}-{uuid.uuid4().hex}"
    return os.environ[MARK]


def leftovers(run: str, patience: float = PATIENCE) -> list[str]:
    """What is still there of a run, or of this process: one line each, none if it is tidy.

    Args:
        run: Its mark.
        patience: Seconds to wait for there to be nothing.
    """
    gc.collect()  # what nobody holds complains now
    deadline = time.monotonic() + patience
    while left := [*_processes(run), *_listening(), *_open_sessions()]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return [*take_complaints(), *left]


def _processes(run: str) -> Iterator[str]:
    mine = {child.pid for child in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        # gone meanwhile, or somebody else's zombie
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.pid in mine or process.environ().get(MARK) == run:
                yield f"process: {process.as_dict(['pid', 'status', 'name', 'cmdline'])}"


def _listening() -> Iterator[str]:
    for connection in psutil.Process().net_connections("inet"):
        if connection.status == psutil.CONN_LISTEN:
            yield f"listening: {connection.laddr}"


def _open_sessions() -> Iterator[str]:
    for one in gc.get_objects():
        if type(one) is aiohttp.ClientSession and not one.closed:
            yield f"open: {one}"
