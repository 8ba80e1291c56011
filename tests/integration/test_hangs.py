"""What hangs is noticed, told where it does, and ended; the verdict stays what it was."""

from __future__ import annotations

import asyncio
import json
import signal

import psutil
import pytest

from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import call, running_worker, words

HASTY = {
    "ACTOR_LIFECYCLE": json.dumps({"closing_timeout": 2, "exit_timeout": 3}),
    "ACTOR_SHUTDOWN_TIMEOUT": "3.5",
}


@pytest.mark.parametrize(
    ("how", "where"),
    [("awaiting", "await asyncio.Event().wait()"), ("blocking", "time.sleep(120)")],
)
async def test_a_process_that_said_goodbye_and_never_ends_is_ended(
    livekit_server: LiveKitServer, how: str, where: str
) -> None:
    with running_worker(livekit_server, environment=HASTY) as worker:
        async with call(livekit_server, worker, hang=how) as made:
            done = await made.do("shutdown", reason="done")
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "completed", "done", "end")
            assert left.at - exit_.at < 2
            await worker.wait_for_log("callback_hangs", job_id=made.job)
            await worker.wait_for_log("lifecycle.process_hangs", 6, job_id=made.job)
            told = await worker.wait_for_log("lifecycle.process_hangs_here", job_id=made.job)
            assert where in told["stack"] + told["tasks"]
            await worker.wait_for_log("killing process", job_id=made.job)
            await asyncio.to_thread(psutil.wait_procs, _alive(done["pid"]), 5)
            assert not psutil.pid_exists(done["pid"])
        async with call(livekit_server, worker) as after:
            assert after.agent, "its worker takes the next call"
        hook = await worker.wait_for_only_log("worker_hook", job=made.job)
        assert hook["seen"] == ["intentional", "completed", "done", True]
        assert not worker.log("lifecycle.crash_reported", job_id=made.job)
        assert not worker.log("lifecycle.internal_error")


def _alive(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid)] if psutil.pid_exists(pid) else []


async def test_a_process_that_ends_in_time_is_let_be(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server, environment=HASTY) as worker:
        async with call(livekit_server, worker) as made:
            await made.do("shutdown", reason="done")
            await worker.wait_for_log("process exiting", job_id=made.job)
            await asyncio.sleep(4)
            assert not worker.log("lifecycle.process_hangs")


@ending(
    "killed/shutdown_timeout",
    "a shutdown callback that never returns, in a job that our half could not attach to",
    client="a leave without an exit: a crash",
    hook="unpublished",
    written=False,
)
async def test_a_job_that_nobody_watched_is_told_of_by_the_workers_reason_for_its_kill(
    livekit_server: LiveKitServer,
) -> None:
    # where our own half fails to attach, the job goes on without us
    environment = {**HASTY, "ACTOR_UNWATCHED": "1", "ACTOR_DRAIN_TIMEOUT": "1"}
    with running_worker(livekit_server, environment=environment) as worker:
        async with call(livekit_server, worker, active=False, hang="awaiting") as made:
            await worker.wait_for_log("lifecycle.not_attached", job_id=made.job)
            await worker.wait_for_log("actor_starts", job=made.job)
            await made.observer.wait_for(lambda s: "lk.agent.state" in s.attributes)
            worker.signal(signal.SIGTERM)
            line = await worker.wait_for_log("worker_hook", 20, job=made.job)
            assert line["seen"] == ["crash", "killed", "shutdown_timeout", False]
            await worker.wait_exit()


async def test_a_job_that_nobody_watched_and_that_ended_by_itself_is_no_crash(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server, environment={"ACTOR_UNWATCHED": "1"}) as worker:
        async with call(livekit_server, worker, active=False) as made:
            await worker.wait_for_log("lifecycle.not_attached", job_id=made.job)
            await made.observer.wait_for(
                lambda s: s.attributes.get("lk.agent.state") == "listening"
            )
            await made.do("shutdown", reason="done")
            await made.observer.wait_for_leave(made.agent)
            await worker.wait_for_log("process exiting", job_id=made.job)
        worker.signal(signal.SIGTERM)
        assert await worker.wait_exit() == 0
        assert not worker.log("worker_hook")
        assert not worker.log("lifecycle.crash_reported")
