"""What the cases share: a worker whose agent gets into the situations that people report."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.livekit_server import LiveKitServer
from tests.harness import ACTOR, Worker, running_worker

CALLER = ACTOR.parent / "caller.py"


@pytest.fixture(scope="module")
def worker(livekit_server: LiveKitServer) -> Iterator[Worker]:
    """One worker for all cases of a file that leave it alive."""
    with running_worker(livekit_server, file=CALLER) as running_one:
        yield running_one
