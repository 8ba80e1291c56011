"""Endings that are not meant: named by whoever still can, never a goodbye."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from typing import Any

import pytest

from livekit_lifecycle import reader
from scripts.livekit_server import LiveKitServer
from tests.endings import NEVER_THERE, ending
from tests.harness import (
    Call,
    Seen,
    Worker,
    call,
    dispatch,
    in_room,
    running_worker,
    server_api,
    words,
)

SOON = 2.0
"""Generous for a machine under load; `make bench` shows the real figures."""


async def crash(made: Call, at: float) -> tuple[Seen, Seen]:
    exit_, left = await made.ending()
    assert exit_.at <= left.at
    assert exit_.at - at < SOON
    assert not any("secret text" in str(seen) for seen in made.observer.seen)
    return exit_, left


async def job_in(server: LiveKitServer, worker: Worker, room: str, **how: Any) -> str:
    """Dispatch an actor that may never join; its job's id."""
    how["room"] = room
    await dispatch(server, room, worker.name, how)
    started = await worker.wait_for_log("actor_starts", metadata=json.dumps(how))
    return str(started["job"])


@ending("exception/PhoneBoothError", "the entrypoint raises while it waits")
async def test_an_exception_while_the_entrypoint_waits(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, wait=True) as made:
        at = (await made.do("raise"))["at"]
        exit_, left = await crash(made, at)
        assert words(exit_) == ("crash", "exception", "PhoneBoothError", "rejoin")
        assert left.reason == "agent_error"
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["crash", "exception", "PhoneBoothError", True]
        # the app's own hook ran, while the agent was still in the room
        await worker.wait_for_log("session_end_hook", job=made.job, in_room=True)


async def test_an_exception_right_after_the_start(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with in_room(livekit_server, "observer") as observer:
        await dispatch(livekit_server, observer.room_name, worker.name, {"raise": "after_start"})
        exit_ = await observer.wait_for(lambda s: s.exit is not None)
        assert words(exit_) == ("crash", "exception", "PhoneBoothError", "rejoin")


@ending(
    "exception/PhoneBoothError",
    "the entrypoint raises before it connects",
    client=NEVER_THERE,
    hook="unpublished",
    written=False,
)
async def test_an_exception_before_connect_reaches_the_workers_hook(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with in_room(livekit_server, "observer") as observer:
        job = await job_in(
            livekit_server, worker, observer.room_name, **{"raise": "before_connect"}
        )
        line = await worker.wait_for_log("worker_hook", job=job)
        assert line["seen"] == ["crash", "exception", "PhoneBoothError", False]
        assert observer.seen == []


@ending(
    "exception/ConnectError",
    "the connect to the room fails",
    client=NEVER_THERE,
    hook="unpublished",
    written=False,
)
async def test_a_connect_that_fails(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with in_room(livekit_server, "observer") as observer:
        job = await job_in(livekit_server, worker, observer.room_name, bad_connect=True)
        line = await worker.wait_for_log("worker_hook", job=job)
        assert line["seen"] == ["crash", "exception", "ConnectError", False]
        assert observer.seen == []


@ending(
    "removed/job_terminated",
    "DeleteDispatch of a job that never joined",
    client=NEVER_THERE,
    hook="unpublished",
    written=False,
)
async def test_a_job_that_never_joins(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with in_room(livekit_server, "observer") as observer:
        job = await job_in(livekit_server, worker, observer.room_name, never_joins=True)
        async with server_api(livekit_server) as lkapi:
            for made in await lkapi.agent_dispatch.list_dispatch(room_name=observer.room_name):
                await lkapi.agent_dispatch.delete_dispatch(made.id, observer.room_name)
        line = await worker.wait_for_log("worker_hook", job=job)
        assert line["seen"] == ["intentional", "removed", "job_terminated", False]
        assert observer.seen == []
        assert not worker.log("lifecycle.internal_error")


async def test_an_exception_in_a_background_task_is_no_end(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        await made.do("task_error")
        await asyncio.sleep(1)
        await made.do("nothing")  # it answers
        assert all(seen.exit is None for seen in made.observer.seen)


@ending("session_error/llm", "the language model fails for good")
async def test_a_session_that_closes_on_an_error(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        at = (await made.do("session_error"))["at"]
        exit_, left = await crash(made, at)
        assert words(exit_) == ("crash", "session_error", "llm", "rejoin")
        assert left.reason == "agent_error"


@pytest.mark.parametrize(
    ("act", "order", "reason", "detail"),
    [
        pytest.param(
            *("signal", {"name": "SIGKILL"}, "killed", "SIGKILL"),
            marks=ending("killed/SIGKILL", "SIGKILL of the job's process"),
        ),
        pytest.param(
            *("signal", {"name": "SIGSEGV"}, "killed", "SIGSEGV"),
            marks=ending("killed/SIGSEGV", "a fault in native code"),
        ),
        pytest.param(
            *("os_exit", {"code": 3}, "exited", "code:3"),
            marks=ending("exited/code:3", "`os._exit(3)`"),
        ),
        pytest.param(
            *("os_exit", {"code": 0}, "exited", "code:0"),
            marks=ending("exited/code:0", "`os._exit(0)`"),
        ),
    ],
)
async def test_a_process_that_dies_without_a_word(
    livekit_server: LiveKitServer,
    worker: Worker,
    act: str,
    order: dict[str, object],
    reason: str,
    detail: str,
) -> None:
    async with call(livekit_server, worker) as made:
        at = (await made.do(act, **order))["at"]
        exit_, left = await crash(made, at)
        assert words(exit_) == ("crash", reason, detail, "rejoin")
        assert left.at - at < 4, "the dead one is put out, not left for the server's time-out"
        assert left.attributes["lifecycle.state"] == "closed"
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["crash", reason, detail, True]
        event = await worker.wait_for_only_log("lifecycle.crash_reported", job_id=made.job)
        assert (event["reason"], event["detail"]) == (reason, detail)


@pytest.mark.parametrize("told", [False, True], ids=["at-once", "worker-knows"])
async def test_a_kill_after_the_goodbye_stays_a_goodbye(
    livekit_server: LiveKitServer, worker: Worker, told: bool
) -> None:
    async with call(livekit_server, worker, wait=True) as made:
        pid = (await made.do("shutdown", reason="done"))["pid"]
        await made.observer.wait_for_exit(made.agent)
        if told:
            await worker.wait_for_log("worker_hook", job=made.job)
        os.kill(pid, signal.SIGKILL)
        left = await made.observer.wait_for_leave(made.agent)
        assert words(left) == ("intentional", "completed", "done", "end")
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "completed", "done", True]


async def test_a_job_does_not_die_of_signals_that_are_its_workers_business(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        pid = (await made.do("nothing"))["pid"]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            os.kill(pid, number)
        await asyncio.sleep(1)
        assert (await made.do("nothing"))["pid"] == pid
        assert all(seen.exit is None for seen in made.observer.seen)


@ending("worker_lost", "SIGKILL of the worker", hook="nothing")
@pytest.mark.parametrize("wait", [False, True], ids=["returned", "waiting"])
async def test_the_worker_dies_under_its_jobs(livekit_server: LiveKitServer, wait: bool) -> None:
    with running_worker(livekit_server) as doomed:
        async with (
            call(livekit_server, doomed, wait=wait) as one,
            call(livekit_server, doomed, wait=wait) as other,
        ):
            at = doomed.signal(signal.SIGKILL)
            for made in (one, other):
                exit_, left = await crash(made, at)
                assert words(exit_) == ("crash", "worker_lost", "", "rejoin")
                assert left.reason == "agent_error"


@ending(
    "unknown",
    "SIGKILL of worker and job in one stroke",
    client="the mark without an exit: once LiveKit notices, some 20 s later, readers say it",
    hook="nothing",
    written=False,
)
async def test_where_nobody_is_left_to_say_why_readers_know_a_crash(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server) as doomed:
        async with call(livekit_server, doomed) as made:
            watcher = reader.watch(made.observer.room)
            told: asyncio.Future[reader.Agent] = asyncio.get_running_loop().create_future()
            watcher.on("exit", told.set_result)
            doomed.signal_group(signal.SIGKILL)
            agent = await asyncio.wait_for(told, 35)
            assert agent.status.job == made.job
            assert agent.end is not None
            assert agent.end.exit is not None
            exit_ = agent.end.exit
            assert (exit_.exit.value, exit_.reason, exit_.next) == ("crash", "unknown", "rejoin")


async def test_a_successor_of_the_same_identity_is_not_marked(
    livekit_server: LiveKitServer,
) -> None:
    environment = {"ACTOR_IDENTITY": "receptionist"}
    with running_worker(livekit_server, environment=environment) as named:
        async with in_room(livekit_server, "observer") as observer:
            await dispatch(livekit_server, observer.room_name, named.name, {})
            first = await observer.wait_for(lambda s: s.identity == "receptionist")
            job = first.attributes["lifecycle.job"]
            # the successor takes over the identity while the first one lives; then that is killed
            mark = len(observer.seen)
            await dispatch(livekit_server, observer.room_name, named.name, {})
            second = await observer.wait_for(
                lambda s: s.attributes.get("lifecycle.job", job) != job, since=mark
            )
            line = await named.wait_for_log("worker_hook", job=job)
            assert line["seen"][:3] == ["intentional", "replaced", "duplicate_identity"]
            await asyncio.sleep(1)
            now = observer.room.remote_participants["receptionist"].attributes
            assert now["lifecycle.job"] == second.attributes["lifecycle.job"]
            assert "lifecycle.exit" not in now


@pytest.mark.chaos
async def test_a_loop_that_hangs_is_told_and_so_is_its_recovery(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        at = (await made.do("block", seconds=20))["at"]
        stalled = await made.observer.wait_for(lambda s: "lifecycle.stalled" in s.attributes)
        # five seconds after the loop's last answer, which was up to a second before the deed
        assert 4 <= stalled.at - at < 7
        since = int(stalled.attributes["lifecycle.stalled"]) / 1000
        assert abs(since - (time.time() - (time.monotonic() - at))) < 1
        mark = made.observer.seen.index(stalled)
        over = await made.observer.wait_for(
            lambda s: s.identity == made.agent and "lifecycle.stalled" not in s.attributes,
            since=mark,
        )
        assert over.at - (at + 20) < 1
        assert over.exit is None
        line = await worker.wait_for_only_log("lifecycle.loop_stalled", job_id=made.job)
        assert "time.sleep" in line["stack"]


@pytest.mark.chaos
async def test_a_loop_that_is_merely_busy_is_not_taken_for_one_that_hangs(
    request: pytest.FixtureRequest, livekit_server: LiveKitServer, worker: Worker
) -> None:
    seconds = 60 if request.config.getoption("--times", 1) > 1 else 15
    async with call(livekit_server, worker) as made:
        await made.do("busy", seconds=seconds)
        await worker.wait_for_log("busy_is_over", seconds + 30, job_id=made.job)
        assert not any("lifecycle.stalled" in seen.attributes for seen in made.observer.seen)
        assert not worker.log("lifecycle.loop_stalled", job_id=made.job)
