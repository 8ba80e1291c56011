"""A LiveKit server that does not answer holds up nobody."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from scripts.livekit_server import LiveKitServer, running
from tests.harness import Worker, call, running_worker


@pytest.fixture
def own_server(livekit_server: LiveKitServer) -> Iterator[LiveKitServer]:
    """A server that may be frozen and killed."""
    if livekit_server.process is None:
        pytest.skip("the server of LIVEKIT_URL is not ours to stop")
    with running() as server:
        yield server


async def took(server: LiveKitServer, *, plain: str, fault: signal.Signals) -> tuple[float, Worker]:
    """Seconds from a job's shutdown, its server at fault, until the framework leaves the room.

    Leaving itself can take LiveKit's own client longer than a minute then.
    """
    assert server.process is not None
    with running_worker(server, environment={"ACTOR_PLAIN": plain}) as worker:
        async with call(server, worker) as made:
            deed = await made.do("shutdown", reason="done", after=1.0)
            os.kill(server.process.pid, fault)
            try:
                await worker.wait_for_log("process exiting", job_id=made.job, timeout=40)
                seconds = time.monotonic() - (deed["at"] + 1.0)
            finally:
                if fault is signal.SIGSTOP:
                    os.kill(server.process.pid, signal.SIGCONT)
        return seconds, worker


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL])
async def test_the_job_ends_within_the_publish_deadline(
    own_server: LiveKitServer, fault: signal.Signals
) -> None:
    # what the framework takes by itself is measured on a server of its own
    with running() as other:
        without, _ = await took(other, plain="1", fault=fault)
    with_us, worker = await took(own_server, plain="0", fault=fault)
    assert with_us < without + 2.5
    assert not [line for line in worker.raw if "Traceback" in line and "livekit_lifecycle" in line]
    hook = await worker.wait_for_only_log("worker_hook")
    assert hook["seen"] == ["intentional", "completed", "done", False], "told, though not published"
