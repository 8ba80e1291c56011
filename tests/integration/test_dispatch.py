"""Is the agent still serving, or must one be dispatched again? Asked of a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable

import psutil
import pytest
from livekit import api, rtc

from livekit_lifecycle import _ping
from livekit_lifecycle.contract import State, state_attributes, will_attributes
from livekit_lifecycle.dispatch import RoomAgentStatus, agent_status, ensure_agent
from livekit_lifecycle.guard import elders, has_to_leave
from scripts.livekit_server import LiveKitServer
from tests.harness import ROOT, Client, Worker, call, do, in_room, running_worker, server_api


@pytest.fixture
def room() -> str:
    return f"room-{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def lkapi(livekit_server: LiveKitServer) -> AsyncIterator[api.LiveKitAPI]:
    async with server_api(livekit_server) as connection:
        yield connection


@contextlib.asynccontextmanager
async def visitor(
    server: LiveKitServer, room: str, identity: str = "user"
) -> AsyncIterator[Client]:
    async with in_room(server, identity, room=room) as client:
        await client.publish_audio()
        yield client


async def becomes(
    lkapi: api.LiveKitAPI, room: str, name: str, verdict: str, timeout: float = 10.0
) -> RoomAgentStatus:
    """Look until it is so."""
    deadline = time.monotonic() + timeout
    while True:
        status = await agent_status(lkapi, room, name)
        if status.verdict == verdict:
            return status
        assert time.monotonic() < deadline, f"{verdict} was not seen, but {status}"
        await asyncio.sleep(0.05)


async def agents(lkapi: api.LiveKitAPI, room: str) -> list[str]:
    answer = await lkapi.room.list_participants(api.ListParticipantsRequest(room=room))
    kind = api.ParticipantInfo.Kind.AGENT
    return [one.identity for one in answer.participants if one.kind == kind]


async def dispatches(lkapi: api.LiveKitAPI, room: str) -> list[str]:
    """Names of all dispatches but the one of automatic dispatch, which each room has."""
    listed = await lkapi.agent_dispatch.list_dispatch(room)
    return [one.agent_name for one in listed if one.agent_name]


async def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def stop(pid: int) -> None:
    """Until it has stopped, which takes its first thread a turn on a busy processor."""
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)


async def test_no_room_and_a_user_alone(
    livekit_server: LiveKitServer, lkapi: api.LiveKitAPI, room: str
) -> None:
    at = time.monotonic()
    assert (await agent_status(lkapi, room, "nobody")).verdict == "absent"
    async with visitor(livekit_server, room):
        status = await agent_status(lkapi, room, "nobody")
        assert (status.verdict, status.should_dispatch) == ("absent", True)
    assert time.monotonic() - at < 3, "LiveKit takes 3 s for some questions about no room"


async def test_the_life_of_an_agent(
    livekit_server: LiveKitServer, worker: Worker, lkapi: api.LiveKitAPI, room: str
) -> None:
    status = await ensure_agent(lkapi, room, worker.name, metadata='{"wait": true}')
    assert (status.verdict, status.should_dispatch) == ("starting", False), "no user is there"
    async with visitor(livekit_server, room) as user:
        serving = await becomes(lkapi, room, worker.name, "serving")
        assert serving.identity == status.identity
        assert serving.identity == f"agent-{serving.job}"
        assert (await agent_status(lkapi, room, "another")).verdict == "absent"
        await do(user, worker, serving.identity, "shutdown")
        closing = await becomes(lkapi, room, worker.name, "closing")
        assert (closing.job, closing.should_dispatch) == (serving.job, False)
        # LiveKit waits so long for an entrypoint
        await becomes(lkapi, room, worker.name, "absent", timeout=25)


async def test_a_crash_is_told_from_a_goodbye(
    livekit_server: LiveKitServer, worker: Worker, lkapi: api.LiveKitAPI
) -> None:
    async with call(livekit_server, worker, wait=True, on_session_end=1.5) as made:
        await made.do("raise")
        zombie = await becomes(lkapi, made.room, worker.name, "zombie")
        assert (zombie.job, zombie.should_dispatch) == (made.job, True)
        assert "exception" in zombie.why


async def test_one_whose_session_is_over_and_who_stays_is_replaced(
    livekit_server: LiveKitServer, lkapi: api.LiveKitAPI
) -> None:
    environment = {"ACTOR_LIFECYCLE": json.dumps({"leave_after": None})}
    with running_worker(livekit_server, environment=environment) as staying:
        async with call(livekit_server, staying) as made:
            await made.do("session_shutdown")
            closed = await becomes(lkapi, made.room, staying.name, "closed")
            assert (closed.job, closed.should_dispatch) == (made.job, True)
            new = await ensure_agent(lkapi, made.room, staying.name)
            assert new.verdict == "serving"
            assert new.job != made.job


async def test_an_agent_without_the_library(
    livekit_server: LiveKitServer, lkapi: api.LiveKitAPI
) -> None:
    with running_worker(livekit_server, environment={"ACTOR_PLAIN": "1"}) as plain:
        async with call(livekit_server, plain) as made:
            status = await ensure_agent(lkapi, made.room, plain.name)
            assert (status.verdict, status.should_dispatch) == ("unmanaged", False)
            assert status.identity == made.agent
            assert await dispatches(lkapi, made.room) == [plain.name]


async def test_a_stopped_process_does_not_answer(
    livekit_server: LiveKitServer, worker: Worker, lkapi: api.LiveKitAPI
) -> None:
    async with call(livekit_server, worker) as made:
        pid = (await made.do("nothing"))["pid"]
        at = time.monotonic()
        assert await _ping.answers(lkapi, made.room, made.agent, 1) is True
        assert time.monotonic() - at < 0.5
        try:
            await stop(pid)
            assert await _ping.answers(lkapi, made.room, made.agent, 1) is False
            assert (await agent_status(lkapi, made.room, worker.name)).verdict == "zombie"
        finally:
            os.kill(pid, signal.SIGCONT)
        await becomes(lkapi, made.room, worker.name, "serving")
        assert await _ping.answers(lkapi, made.room, "nobody", 1) is None


async def test_a_whole_worker_is_killed(
    livekit_server: LiveKitServer, lkapi: api.LiveKitAPI
) -> None:
    with running_worker(livekit_server) as doomed:
        async with call(livekit_server, doomed) as made:
            doomed.signal_group(signal.SIGKILL)
            zombie = await becomes(lkapi, made.room, doomed.name, "zombie", timeout=4)
            assert (zombie.job, zombie.should_dispatch) == (made.job, True)
            await becomes(lkapi, made.room, doomed.name, "absent", timeout=40)
            with running_worker(livekit_server, name=doomed.name):
                new = await ensure_agent(lkapi, made.room, doomed.name)
                assert new.verdict == "serving"
                await asyncio.sleep(3)
                # the observer of a call is there as an agent too
                assert set(await agents(lkapi, made.room)) == {new.identity, "observer"}


async def test_the_successor_need_not_wait_until_the_dead_one_is_gone(
    livekit_server: LiveKitServer, lkapi: api.LiveKitAPI
) -> None:
    with running_worker(livekit_server) as doomed:
        async with call(livekit_server, doomed) as made:
            with running_worker(livekit_server, name=doomed.name) as second:
                doomed.signal_group(signal.SIGKILL)
                at = time.monotonic()
                new = await ensure_agent(lkapi, made.room, doomed.name)
                assert new.verdict == "serving"
                assert new.job != made.job
                assert time.monotonic() - at < 15
                assert len(second.log("received job request")) == 1


async def test_ten_callers_in_a_row(
    livekit_server: LiveKitServer, worker: Worker, lkapi: api.LiveKitAPI, room: str
) -> None:
    async with visitor(livekit_server, room):
        jobs = {(await ensure_agent(lkapi, room, worker.name)).job for _ in range(10)}
        assert len(jobs) == 1
        assert len(await agents(lkapi, room)) == 1
        assert await dispatches(lkapi, room) == [worker.name]


@pytest.mark.parametrize("run", range(3))
async def test_ten_callers_at_once_from_two_processes(
    livekit_server: LiveKitServer, worker: Worker, lkapi: api.LiveKitAPI, room: str, run: int
) -> None:
    del run
    async with visitor(livekit_server, room):
        at = time.time() + 6  # an import of LiveKit takes its time
        arguments = [sys.executable, "-m", "tests.integration.ensure", room, worker.name, "5"]
        callers = [
            await asyncio.create_subprocess_exec(
                *arguments,
                str(at),
                cwd=ROOT,
                env={**os.environ, **livekit_server.environment},
                stdout=asyncio.subprocess.PIPE,
            )
            for _ in range(2)
        ]
        most = 0
        while time.time() < at + 10:
            most = max(most, len(await agents(lkapi, room)))
            await asyncio.sleep(0.1)
        outputs = [(await caller.communicate())[0] for caller in callers]
        statuses = [status for output in outputs for status in json.loads(output)]
        assert len(statuses) == 10
        assert {verdict for verdict, _ in statuses} == {"serving"}
        assert len({job for _, job in statuses}) == 1
        assert (most, len(await agents(lkapi, room))) == (1, 1)
        assert await dispatches(lkapi, room) == [worker.name]


async def test_a_dispatch_that_no_worker_was_there_for(
    livekit_server: LiveKitServer, lkapi: api.LiveKitAPI, room: str
) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    async with visitor(livekit_server, room):
        first = await ensure_agent(lkapi, room, name, timeout=0)
        assert (first.verdict, first.should_dispatch) == ("absent", False)
        with running_worker(livekit_server, name=name) as late:
            # that dispatch is lost, but nobody can know until its time is up
            status = await ensure_agent(lkapi, room, name)
            assert status.verdict == "serving"
            assert len(late.log("received job request")) == 1
            assert await dispatches(lkapi, room) == [name, name]


# -- the guard -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def agent_like(
    server: LiveKitServer, room: str, name: str, job: str
) -> AsyncIterator[rtc.Room]:
    attributes = {**will_attributes(job), **state_attributes(State.ACTIVE), "lk.agent_name": name}
    token = (
        api.AccessToken(server.api_key, server.api_secret)
        .with_identity(f"agent-{job}")
        .with_kind("agent")
        .with_attributes({key: value for key, value in attributes.items() if value})
        .with_grants(api.VideoGrants(room_join=True, room=room, agent=True))
        .to_jwt()
    )
    connection = rtc.Room()
    await connection.connect(server.url, token)
    try:
        yield connection
    finally:
        await connection.disconnect()


async def sees(room: rtc.Room, identity: str) -> None:
    await until(lambda: identity in room.remote_participants)


async def test_of_two_agents_the_later_has_to_leave(
    livekit_server: LiveKitServer, room: str
) -> None:
    async with (
        agent_like(livekit_server, room, "desk", "AJ_2") as earlier,
        agent_like(livekit_server, room, "desk", "AJ_1") as later,
    ):
        await asyncio.gather(sees(earlier, "agent-AJ_1"), sees(later, "agent-AJ_2"))
        assert await has_to_leave(later, "desk")
        assert not await has_to_leave(earlier, "desk")
        assert not await has_to_leave(later, "another desk")


async def test_a_dead_predecessor_is_no_ground_to_leave(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server) as doomed:
        async with (
            call(livekit_server, doomed) as made,
            agent_like(livekit_server, made.room, doomed.name, "AJ_new") as new,
        ):
            await sees(new, made.agent)
            assert await has_to_leave(new, doomed.name)
            doomed.signal_group(signal.SIGKILL)
            others = new.remote_participants.values()
            assert elders(new.local_participant, others, doomed.name) == [made.agent]
            assert not await has_to_leave(new, doomed.name)


async def test_an_ended_predecessor_is_no_ground_to_leave(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, on_session_end=2) as made:
        await made.do("shutdown")
        await made.observer.wait_for_exit(made.agent)
        async with agent_like(livekit_server, made.room, worker.name, "AJ_new") as new:
            await sees(new, made.agent)
            assert not await has_to_leave(new, worker.name)
