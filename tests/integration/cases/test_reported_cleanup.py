"""Reports of clean-up that is late, cut off or never run: the goodbye does not depend on it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import Any

import psutil
from livekit import api
from livekit.agents import AgentServer

from livekit_lifecycle import LifecycleServer
from scripts.livekit_server import LiveKitServer
from tests.harness import (
    ACTOR,
    Worker,
    call,
    dispatch,
    in_room,
    running_worker,
    server_api,
    words,
)

CALLER = ACTOR.parent / "caller.py"
KILLS = ("process did not exit in time", "process is unresponsive", "killing process")


def killed(worker: Worker, job: str) -> list[dict[str, Any]]:
    return [line for kill in KILLS for line in worker.log(kill, job_id=job)]


async def hooks_ran_once(worker: Worker, job: str) -> bool:
    """To the end of the job's process, which nobody had to kill."""
    exiting = await worker.wait_for_log("process exiting", 20, job_id=job)
    await worker.wait_for_log("shutdown_callback", job=job)
    with contextlib.suppress(psutil.NoSuchProcess):
        await asyncio.to_thread(psutil.Process(exiting["pid"]).wait, 20)
    hooks = [worker.log(hook, job=job) for hook in ("shutdown_callback", "worker_hook")]
    return [len(hook) for hook in hooks] == [1, 1] and not killed(worker, job)


async def test_the_hooks_run_although_the_one_who_was_called_never_came(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/agents#4152: after a call that rings out, no clean-up. Also livekit/agents#4392."""
    async with in_room(livekit_server, "observer", kind="agent") as observer:
        how = {"preset": "telephony", "limits": {"no_show": 3}, "expect": "+1-nobody"}
        await dispatch(livekit_server, observer.room_name, worker.name, how)
        exit_ = await observer.wait_for(lambda s: s.exit is not None)
        job = exit_.attributes["lifecycle.job"]
        assert words(exit_) == ("intentional", "timeout", "no_show", "end")
        assert await hooks_ran_once(worker, job)


async def test_a_room_that_is_deleted_before_the_session_starts_is_no_crash(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/agents#3771: a room that closes while the agent starts gives no event at all."""
    # longer than the server may keep the join of one without a track to itself
    async with call(livekit_server, worker, active=False, pause=6) as made:
        await worker.wait_for_log("caller_pauses", job=made.job)
        async with server_api(livekit_server) as lkapi:
            await lkapi.room.delete_room(api.DeleteRoomRequest(room=made.room))
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "room_closed", "deleted", False]
        assert await hooks_ran_once(worker, made.job)
        assert not worker.log("lifecycle.crash_reported", job_id=made.job)


async def test_a_close_that_hangs_holds_back_neither_the_goodbye_nor_the_leave(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#5497: the user leaves in mid-speech and the close never comes to its end."""
    environment = {"ACTOR_LIFECYCLE": '{"closing_timeout": 3}'}
    with running_worker(livekit_server, file=CALLER, environment=environment) as worker:
        async with call(livekit_server, worker, hang=True, speak=60) as made:
            speaking = {"lk.agent.state": "speaking"}
            await made.observer.wait_for(lambda s: speaking.items() <= s.attributes.items())
            await made.user_leaves()
            gone = await worker.wait_for_log("saw_leave", room=made.room)
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
            assert exit_.at - gone["at"] < 2
            assert left.at - exit_.at < 3 + 1.5
            assert worker.log("exit_hangs"), "it did hang"
            line = await worker.wait_for_log("worker_hook", job=made.job)
            assert line["seen"] == ["intentional", "close_on_disconnect", "user_left", True]
            assert not worker.log("lifecycle.crash_reported", job_id=made.job)


async def test_clean_up_that_is_killed_for_its_length_stays_a_goodbye(
    livekit_server: LiveKitServer,
) -> None:
    """livekit/agents#4850: less time for clean-up than promised, then a kill."""
    environment = {"ACTOR_DRAIN_TIMEOUT": "1"}
    with running_worker(livekit_server, file=CALLER, environment=environment) as worker:
        async with call(livekit_server, worker, callback=15) as made:
            worker.signal(signal.SIGTERM)
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "drain", "drain_timeout", "rejoin")
            assert exit_.at <= left.at
            await worker.wait_for_log("slow_callback", job=made.job)
            kill = await worker.wait_for_log("process did not exit in time", 20, job_id=made.job)
            assert kill
            await worker.wait_exit()
            assert not worker.log("slow_callback_done", job=made.job)
            told = await worker.wait_for_only_log("worker_hook", job=made.job)
            assert told["seen"] == ["intentional", "drain", "drain_timeout", True]
            assert not worker.log("lifecycle.crash_reported", job_id=made.job)


def test_one_option_changes_no_other() -> None:
    """livekit/agents#6123: setting one option put three time-outs back to their defaults."""

    def settings(server: AgentServer) -> dict[str, Any]:
        plain = (int, float, str, bool, type(None))
        return {key: value for key, value in vars(server).items() if isinstance(value, plain)}

    ours, livekits = LifecycleServer(drain_timeout=77), AgentServer(drain_timeout=77)
    mine = {key: value for key, value in settings(ours).items() if key in vars(livekits)}
    assert mine == settings(livekits)
    assert {"_drain_timeout", "_shutdown_process_timeout", "_session_end_timeout"} <= mine.keys()


async def test_a_room_that_app_and_session_both_delete_is_deleted_once_in_peace(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/agents#3588, #3600: the second deletion of a room raises."""
    async with call(livekit_server, worker, options={"delete_room_on_close": True}) as made:
        await made.do("delete_room_and_close")
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "completed", "", "end")
        out = await made.observer.wait_for(lambda s: s.kind in ("left", "disconnected"))
        assert exit_.at <= out.at
        assert await hooks_ran_once(worker, made.job)
        told = {line["message"] for line in worker.lines if line.get("job_id") == made.job}
        assert not [message for message in told if "rror" in message or "xception" in message]


async def test_the_hooks_run_when_the_room_is_deleted_under_one_who_waits(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/agents#4152: a call that is cut while it rings. Also livekit/agents-js#896."""
    async with call(livekit_server, worker, active=False, expect="+1-nobody") as made:
        await worker.wait_for_log("caller_expects", job=made.job)
        at = time.monotonic()
        async with server_api(livekit_server) as lkapi:
            await lkapi.room.delete_room(api.DeleteRoomRequest(room=made.room))
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "room_closed", "deleted", False]
        assert line["at"] - at < 2
        assert await hooks_ran_once(worker, made.job)
