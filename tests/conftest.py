"""Shared fixtures."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from scripts.livekit_server import LiveKitServer, MissingServerError, running
from tests.harness import Worker, running_worker
from tests.lacking import lacking
from tests.tidy import Complaints, leftovers, mark_this_run, take_complaints


@pytest.fixture(autouse=True, scope="session")
def nothing_is_left() -> Iterator[None]:
    """Fail a run that leaves something behind; made first, so it looks when all else is undone."""
    run = mark_this_run()
    handler = Complaints()
    logging.getLogger("asyncio").addHandler(handler)
    yield
    left = leftovers(run)
    logging.getLogger("asyncio").removeHandler(handler)
    assert not left, "\n".join(["left behind:", *left])


@pytest.fixture(autouse=True)
def nothing_was_forgotten() -> Iterator[None]:
    """Fail a test whose processes, or this one, complain of what was never closed."""
    yield
    forgotten = take_complaints()
    assert not forgotten, "\n".join(["never closed:", *forgotten])


@pytest.fixture(autouse=True)
def no_blocking_call_in_the_loop() -> Iterator[None]:
    """Fail where code of ours blocks the event loop that the call runs in."""
    with blockbuster_ctx("livekit_lifecycle"):
        yield


@pytest.fixture(scope="session")
def livekit_server() -> Iterator[LiveKitServer]:
    """A real livekit-server on free ports, one for each test process."""
    log = Path(tempfile.gettempdir()) / f"livekit-server-{os.getpid()}.log"
    try:
        with running(log) as server:
            yield server
    except MissingServerError as missing:
        lacking(str(missing))


@pytest.fixture(scope="module")
def worker(livekit_server: LiveKitServer) -> Iterator[Worker]:
    """The actor's worker, registered, for all tests of a file that leave it alive."""
    with running_worker(livekit_server) as running_one:
        yield running_one
