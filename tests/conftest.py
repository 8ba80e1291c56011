"""Shared fixtures."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from scripts.livekit_server import LiveKitServer, MissingServerError, running
from tests.harness import Worker, running_worker
from tests.lacking import lacking


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
