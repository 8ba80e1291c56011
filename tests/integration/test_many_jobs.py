"""Twenty jobs on one worker: the last room is told in time, and each of its own agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from scripts.livekit_server import LiveKitServer
from tests.harness import Call, Client, Worker, call, dispatch, is_serving, running_worker, words

pytestmark = pytest.mark.timeout(300)  # twenty jobs start one after the other

JOBS = 20
IDLE = 2
# nothing to listen to: twenty idle VADs would be all that is measured
QUIET = {"options": {"audio_input": False}}


@pytest.fixture
def slower() -> float:
    """How much longer all takes where others want the same processors, taken before our own jobs.

    The promise is one for a machine that has nothing else to do.
    """
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.fixture
def worker(livekit_server: LiveKitServer) -> Iterator[Worker]:
    with running_worker(livekit_server, environment={"ACTOR_IDLE": str(IDLE)}) as running_one:
        yield running_one


@contextlib.asynccontextmanager
async def twenty_calls(server: LiveKitServer, worker: Worker) -> AsyncIterator[list[Call]]:
    """A room for each job with an observer, made one after the other: bursts are partly lost."""
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for _ in range(JOBS):
            room = f"room-{uuid.uuid4().hex[:10]}"
            observer = Client(server, room, "observer")
            stack.push_async_callback(observer.aclose)
            await observer.connect()
            await dispatch(server, room, worker.name, QUIET)
            agent = await observer.wait_for(is_serving)
            job = agent.attributes["lifecycle.job"]
            calls.append(Call(server, worker, room, observer, observer, agent.identity, job))
        assert len({made.job for made in calls}) == JOBS
        # the next idle processes are made by now: they would take the time of what is measured
        await worker.wait_for_logs("process initialized", JOBS + IDLE)
        yield calls


async def test_the_last_of_twenty_rooms_hears_of_a_drain_within_a_second(
    slower: float, livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with twenty_calls(livekit_server, worker) as calls:
        at = worker.signal(signal.SIGTERM)
        notices = await asyncio.gather(
            *(made.observer.wait_for(lambda s: "lifecycle.drain" in s.attributes) for made in calls)
        )
        assert max(seen.at for seen in notices) - at < 1.0 * slower
        for made, seen in zip(calls, notices, strict=True):
            assert seen.attributes["lifecycle.job"] == made.job
            assert seen.exit is None


async def test_twenty_jobs_killed_at_once_are_each_marked_with_their_own_end(
    slower: float, livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with twenty_calls(livekit_server, worker) as calls:
        pids = [(await made.do("nothing"))["pid"] for made in calls]
        at = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        endings = await asyncio.gather(*(made.ending() for made in calls))
        assert max(exit_.at for exit_, _ in endings) - at < 2.0 * slower
        for made, (exit_, left) in zip(calls, endings, strict=True):
            assert words(exit_) == ("crash", "killed", "SIGKILL", "rejoin")
            assert exit_.attributes["lifecycle.job"] == made.job
            assert left.at - at < 4 * slower, "put out, not left for the server's time-out"
        told = await worker.wait_for_logs("worker_hook", JOBS)
        assert sorted(line["job"] for line in told) == sorted(made.job for made in calls)
        assert all(line["seen"] == ["crash", "killed", "SIGKILL", True] for line in told)
        async with call(livekit_server, worker) as fresh:
            await fresh.do("nothing")
