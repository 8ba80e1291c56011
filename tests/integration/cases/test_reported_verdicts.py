"""Reports of endings whose cause got lost: each has a name now, and a crash is never a goodbye."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from livekit import api

from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import (
    ACTOR,
    Call,
    Worker,
    call,
    dispatch,
    in_room,
    running_worker,
    server_api,
    words,
)

CALLER: Path = ACTOR.parent / "caller.py"
SOON = 2.0
"""Generous for a machine under load; `make bench` shows the real figures."""


async def goodbye_at_the_leave(made: Call) -> bool:
    """All that a client without a library has: the attributes when the agent is gone."""
    left = await made.observer.wait_for_leave(made.agent, 15)
    return left.attributes.get("lifecycle.exit") == "intentional"


async def test_one_line_in_a_client_tells_a_goodbye_from_a_crash(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/components-js#1228: a client has to take every leave of an agent for a failure."""
    acts: list[tuple[str, dict[str, Any], bool]] = [
        ("shutdown", {"reason": "done"}, True),
        ("raise", {}, False),
        ("signal", {"name": "SIGKILL"}, False),
    ]
    for act, order, meant in acts:
        async with call(livekit_server, worker, wait=act == "raise") as made:
            await made.do(act, **order)
            assert await goodbye_at_the_leave(made) is meant, act
    async with call(livekit_server, worker) as made:
        await made.user_leaves()
        assert await goodbye_at_the_leave(made)
    with running_worker(livekit_server, environment={"ACTOR_DRAIN_TIMEOUT": "1"}) as deployed:
        async with call(livekit_server, deployed) as made:
            deployed.signal(signal.SIGTERM)
            assert await goodbye_at_the_leave(made)


async def test_what_an_agent_says_at_its_end_beats_what_livekit_still_shows(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/components-js#1227: a dead agent is shown as listening, with no reason."""
    async with call(livekit_server, worker) as made:
        at = (await made.do("signal", name="SIGKILL"))["at"]
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert exit_.at - at < SOON
        assert exit_.kind == "attributes", "while it is still listed"
        assert exit_.attributes["lk.agent.state"] == "listening"
        assert exit_.attributes["lifecycle.state"] == "closed"
        assert words(exit_) == ("crash", "killed", "SIGKILL", "rejoin")


async def test_no_two_ways_out_have_the_same_name_and_none_has_none(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#3671: jobs exit with an empty reason. Also livekit/agents#6284."""
    environment = {"ACTOR_DRAIN_TIMEOUT": "1"}
    seen: dict[str, list[Any]] = {}
    with running_worker(livekit_server, environment=environment) as worker:
        for way in ("shutdown", "dispatch deleted", "room deleted", "deploy"):
            async with call(livekit_server, worker) as made:
                await end(livekit_server, made, way)
                line = await worker.wait_for_log("worker_hook", job=made.job)
                seen[way] = line["seen"]
    assert seen == {
        "shutdown": ["intentional", "completed", "", True],
        "dispatch deleted": ["intentional", "removed", "job_terminated", True],
        "room deleted": ["intentional", "room_closed", "deleted", False],
        "deploy": ["intentional", "drain", "drain_timeout", True],
    }


async def end(server: LiveKitServer, made: Call, way: str) -> None:
    if way == "shutdown":
        await made.do("shutdown")
    elif way == "deploy":
        made.worker.signal(signal.SIGTERM)
    async with server_api(server) as lkapi:
        if way == "room deleted":
            await lkapi.room.delete_room(api.DeleteRoomRequest(room=made.room))
        elif way == "dispatch deleted":
            (one,) = [
                dispatched
                for dispatched in await lkapi.agent_dispatch.list_dispatch(room_name=made.room)
                if dispatched.agent_name == made.worker.name
            ]
            await lkapi.agent_dispatch.delete_dispatch(one.id, made.room)


async def test_an_agent_that_fails_right_after_its_join_is_seen_to_fail(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/livekit#3857: agents that join and are gone at once leave no cause behind."""
    async with in_room(livekit_server, "observer") as observer:
        await dispatch(livekit_server, observer.room_name, worker.name, {"raise": "after_connect"})
        exit_ = await observer.wait_for(lambda s: s.exit is not None)
        assert words(exit_) == ("crash", "exception", "PhoneBoothError", "rejoin")
        left = await observer.wait_for_leave(exit_.identity)
        assert exit_.at <= left.at
        assert "secret text" not in str(observer.seen)


@ending(
    "killed/memory_limit",
    "the job exceeds `job_memory_limit_mb`",
    client="the exit when LiveKit has killed it, up to 5 s later",
)
async def test_a_job_that_eats_too_much_memory_has_a_cause_of_its_own(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#1136: a job above its memory limit is killed and nothing says why."""
    environment = {"ACTOR_MEMORY_LIMIT": "500"}
    with running_worker(livekit_server, environment=environment) as limited:
        async with call(livekit_server, limited) as made:
            await made.do("eat", mb=500)
            exit_, left = await made.ending(20)
            assert words(exit_) == ("crash", "killed", "memory_limit", "rejoin")
            assert exit_.at <= left.at
            line = await limited.wait_for_log("worker_hook", job=made.job)
            assert line["seen"] == ["crash", "killed", "memory_limit", True]


async def test_a_native_fault_is_named_by_its_signal(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit-examples/vision-demo#9: an exit code of -4 and no traceback is all there is."""
    async with call(livekit_server, worker) as made:
        await made.do("signal", name="SIGILL")
        exit_, left = await made.ending()
        assert words(exit_) == ("crash", "killed", "SIGILL", "rejoin")
        assert exit_.at <= left.at


@ending(
    "killed/unresponsive",
    "the job's event loop hangs for longer than LiveKit's ping time-out",
    client="`lifecycle.stalled` after 5 s, the exit when LiveKit has killed it",
)
async def test_a_job_that_does_not_answer_is_killed_by_that_name(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#3637: blocked jobs are killed in live calls. Also livekit/agents#617, #4455.

    The stack dump that comes before the kill is no cause; `SIGUSR1` must not be named.
    """
    environment = {"CALLER_PING_TIMEOUT": "3"}
    with running_worker(livekit_server, file=CALLER, environment=environment) as strict:
        async with call(livekit_server, strict) as made:
            await made.do("block", seconds=60)
            killed = await strict.wait_for_log("process is unresponsive", job_id=made.job)
            at = time.monotonic()
            exit_, left = await made.ending(15)
            assert killed["pid"]
            assert exit_.at - at < 5
            assert words(exit_) == ("crash", "killed", "unresponsive", "rejoin")
            assert exit_.at <= left.at
            line = await strict.wait_for_log("worker_hook", job=made.job)
            assert line["seen"][2] == "unresponsive"


@pytest.mark.parametrize(
    ("broken", "act"),
    [
        pytest.param(  # fails by itself as soon as it hears
            *("stt", ""), marks=ending("session_error/stt", "the ears fail for good")
        ),
        pytest.param(
            *("tts", "say"), marks=ending("session_error/tts", "the voice fails for good")
        ),
        pytest.param(
            *("realtime", "session_error"),
            marks=ending("session_error/realtime", "the realtime model fails for good"),
        ),
        pytest.param(
            *("other", "session_error"),
            marks=ending("session_error/other", "an error of a third party's own type"),
        ),
    ],
)
async def test_a_session_that_a_provider_ends_names_the_part_that_failed(
    livekit_server: LiveKitServer, worker: Worker, broken: str, act: str
) -> None:
    """livekit/agents#5113, #5665: an expired voice or a failing ear ends sessions silently."""
    # nothing to hear yet, or it could be over before the observer is there
    async with call(livekit_server, worker, track=False, broken=broken) as made:
        if act:
            await made.do(act)
        else:
            await made.user.publish_audio()
        exit_, left = await made.ending()
        closed = await worker.wait_for_log("saw_close", job=made.job)
        assert words(exit_) == ("crash", "session_error", broken, "rejoin")
        assert exit_.at - closed["at"] < 1
        assert exit_.at <= left.at
        assert left.reason == "agent_error"
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["crash", "session_error", broken, True]


async def test_an_error_that_breaks_the_close_of_its_session_leaves_no_zombie(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/agents#2897: the same for an error of a class that LiveKit's own event refuses."""
    async with call(livekit_server, worker, track=False, broken="foreign") as made:
        await made.do("session_error")
        exit_, left = await made.ending()
        assert words(exit_) == ("crash", "session_error", "other", "rejoin")
        assert left.at - exit_.at < SOON
        assert not worker.log("saw_close", job=made.job), "it did break"


async def test_an_agent_that_stays_after_its_session_failed_says_that_it_serves_nobody(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#2897: one read time-out ends the session, the agent stays, silent."""
    environment = {"ACTOR_LIFECYCLE": '{"leave_after": null}'}
    with running_worker(livekit_server, file=CALLER, environment=environment) as staying:
        async with call(livekit_server, staying, errors=1) as made:
            await made.do("session_error")
            await staying.wait_for_log("no such model")
            assert all(seen.exit is None for seen in made.observer.seen), "one may happen"
            await made.do("session_error")
            exit_ = await made.observer.wait_for_exit(made.agent)
            closed = await staying.wait_for_log("saw_close", job=made.job)
            assert words(exit_) == ("crash", "session_error", "llm", "rejoin")
            assert exit_.at - closed["at"] < 1
            await made.wait_for_state("closed")
            await made.do("nothing")  # the job lives
            assert made.agent in made.observer.room.remote_participants
