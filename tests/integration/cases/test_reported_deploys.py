"""Reports of workers that are stopped, killed, or lose their idle processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass

import psutil
from livekit import api

from livekit_lifecycle import parse
from scripts.livekit_server import LiveKitServer
from tests.harness import Worker, call, dispatch, in_room, running_worker, server_api, words


async def test_code_is_told_once_that_its_worker_has_to_stop(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#1147: nothing tells the app of a SIGTERM, in worker or job."""
    with running_worker(livekit_server) as worker:
        async with call(livekit_server, worker) as made:
            at = worker.signal(signal.SIGTERM)
            await worker.wait_for_log("draining_hook", 1, job=made.job)
            told = await worker.wait_for_log("drain_hook", 1)
            assert told["at"] - at < 1
            worker.signal(signal.SIGINT)  # LiveKit's own second signal: at once
            await worker.wait_exit(15)
            await made.observer.wait_for_leave(made.agent)
            assert len(worker.log("drain_hook")) == 1
            assert len(worker.log("draining_hook", job=made.job)) == 1


async def test_a_platform_that_kills_after_its_time_finds_nobody_left_to_kill(
    livekit_server: LiveKitServer,
) -> None:
    """livekit-examples/agent-deployment#20: calls outlive the time that a platform gives."""
    kill_after = 6.0
    environment = {"ACTOR_LIFECYCLE": f'{{"drain": {{"kill_grace": {kill_after}}}}}'}
    with running_worker(livekit_server, environment=environment) as worker:
        async with call(livekit_server, worker, wait=True) as made:
            at = worker.signal_group(signal.SIGTERM)
            notice = await made.observer.wait_for(lambda s: "lifecycle.drain" in s.attributes)
            assert notice.at - at < 1
            assert 0 < float(notice.attributes["lifecycle.drain_window"]) < kill_after * 1000
            exit_, left = await made.ending(kill_after)
            assert words(exit_) == ("intentional", "drain", "drain_timeout", "rejoin")
            assert max(exit_.at, left.at) - at < kill_after
            line = await worker.wait_for_log("worker_hook", job=made.job)
            assert line["seen"] == ["intentional", "drain", "drain_timeout", True]
            with contextlib.suppress(ProcessLookupError):  # it may be gone by itself
                worker.signal_group(signal.SIGKILL)
            await worker.wait_exit()
            assert words(left) == words(exit_), "nothing came on top of it"
            assert len(worker.log("worker_hook", job=made.job)) == 1


async def test_where_all_is_killed_in_one_stroke_the_will_is_all_that_is_left(
    livekit_server: LiveKitServer,
) -> None:
    """livekit-examples/agent-deployment#20: a container that gets no time to say anything.

    Nothing can be published then. What stays is the mark without an exit, by which every reader
    knows a crash when the participant goes.
    """
    with running_worker(livekit_server) as worker:
        async with call(livekit_server, worker) as made:
            worker.signal_group(signal.SIGKILL)
            await worker.wait_exit()
            async with server_api(livekit_server) as lkapi:
                ghost = await lkapi.room.get_participant(
                    api.RoomParticipantIdentity(room=made.room, identity=made.agent)
                )
            status = parse(ghost.attributes)
            assert status.managed
            assert status.exit is None


async def stopped_after(worker: Worker) -> float:
    at = worker.signal(signal.SIGTERM)
    assert await worker.wait_exit(30) == 0
    return time.monotonic() - at


async def test_idle_threads_hold_up_no_stop(livekit_server: LiveKitServer) -> None:
    """livekit/agents#7226: a worker with idle thread runners never comes to its end."""
    seconds = {}
    for plain in ("1", "0"):
        environment = {"ACTOR_EXECUTOR": "thread", "ACTOR_IDLE": "8", "ACTOR_PLAIN": plain}
        with running_worker(livekit_server, environment=environment) as worker:
            seconds[plain] = await stopped_after(worker)
    assert seconds["0"] < seconds["1"] + 1


@dataclass(frozen=True)
class OtherThan:
    """Equal to everything else: finds a second log line."""

    value: object

    def __eq__(self, other: object) -> bool:
        """Whether it is another one."""
        return other != self.value

    def __hash__(self) -> int:
        """Never used; equality is not that of values."""
        return 0


async def test_idle_processes_that_die_cost_no_call(livekit_server: LiveKitServer) -> None:
    """livekit/agents#3841: prewarmed processes die and later jobs find none."""
    with running_worker(livekit_server, environment={"ACTOR_IDLE": "2"}) as worker:
        one = (await worker.wait_for_log("process initialized"))["pid"]
        two = (await worker.wait_for_log("process initialized", pid=OtherThan(one)))["pid"]
        processes = [psutil.Process(pid) for pid in (one, two)]
        for process in processes:
            process.kill()
        await worker.wait_for_log("lifecycle.idle_process_died", reason="killed", detail="SIGKILL")
        _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 10)
        assert not alive
        assert not worker.log("worker_hook"), "nobody's job ended"
        async with call(livekit_server, worker) as made:
            await made.do("shutdown", reason="done")
            assert words(await made.observer.wait_for_exit(made.agent))[2] == "done"
        assert worker.returncode is None
        assert not worker.log("lifecycle.internal_error")


async def test_a_job_that_dies_before_it_joined_is_told_to_the_worker(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#3841: a job that was assigned and never joined its room."""
    with running_worker(livekit_server) as worker:
        async with in_room(livekit_server, "user") as user:
            await dispatch(livekit_server, user.room_name, worker.name, {"delay_connect": 30})
            waits = await worker.wait_for_log("actor_waits")
            os.kill(waits["pid"], signal.SIGKILL)
            line = await worker.wait_for_log("worker_hook", job=waits["job_id"])
            assert line["seen"] == ["crash", "killed", "SIGKILL", False]
            assert user.seen == [], "nobody was there to be marked"
