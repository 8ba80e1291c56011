"""Endings that are meant: said before the leave, with their name, and then the agent is gone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from livekit import rtc

from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import Call, Seen, Worker, call, in_room, running_worker, words

TOLD_WITHIN = 1.0
"""Generous for a machine under load; `make bench` shows the real figures."""
GONE_WITHIN = 1.5
"""1 s for the agent to leave, and what the server takes to tell of it."""


async def goodbye(made: Call, at: float) -> Seen:
    """The exit as the observer saw it: before the leave, soon, and the same to the end."""
    exit_, left = await made.ending()
    assert exit_.at <= left.at
    assert exit_.at - at < TOLD_WITHIN
    assert left.attributes["lifecycle.exit"] == exit_.attributes["lifecycle.exit"]
    told = {
        (s.attributes["lifecycle.reason"], s.attributes["lifecycle.detail"])
        if "lifecycle.detail" in s.attributes
        else s.attributes["lifecycle.reason"]
        for s in made.observer.seen
        if "lifecycle.exit" in s.attributes
    }
    assert len(told) == 1, "an exit never changes once it is written"
    for seen in made.observer.seen:
        closes = seen.attributes.get("lifecycle.state") in ("closing", "closed")
        assert closes == ("lifecycle.exit" in seen.attributes), "one write for all"
    return exit_


@pytest.mark.parametrize(
    ("order", "detail"),
    [
        pytest.param(
            {"reason": "done"},
            "done",
            marks=ending("completed/done", '`ctx.shutdown("done")`'),
        ),
        pytest.param({}, "", marks=ending("completed", "`ctx.shutdown()`")),
        ({"reason": ""}, ""),
        ({"reason": "x" * 10_000}, "x" * 128),
        ({"reason": "auf Wiederhören, 再见 " * 20}, None),
    ],
    ids=["text", "default", "empty", "10kB", "non-ascii"],
)
async def test_the_app_ends_it(
    livekit_server: LiveKitServer, worker: Worker, order: dict[str, Any], detail: str | None
) -> None:
    async with call(livekit_server, worker) as made:
        at = (await made.do("shutdown", **order))["at"]
        exit_ = await goodbye(made, at)
        exit_word, reason, shown, next_ = words(exit_)
        assert (exit_word, reason, next_) == ("intentional", "completed", "end")
        if detail is None:
            assert order["reason"].startswith(shown)
            assert 100 < len(shown.encode()) <= 128
        else:
            assert shown == detail


async def test_it_is_told_at_once_although_the_entrypoint_still_waits(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, wait=True) as made:
        at = (await made.do("shutdown", reason="done"))["at"]
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert exit_.at - at < TOLD_WITHIN
        assert words(exit_) == ("intentional", "completed", "done", "end")


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(
            "session_shutdown", marks=ending("completed", "`session.shutdown()`: an end-call tool")
        ),
        pytest.param("session_aclose", marks=ending("completed", "`session.aclose()`")),
    ],
)
@pytest.mark.parametrize("wait", [False, True], ids=["returned", "waiting"])
async def test_no_zombie_stays_when_the_session_is_over(
    livekit_server: LiveKitServer, worker: Worker, act: str, wait: bool
) -> None:
    async with call(livekit_server, worker, wait=wait) as made:
        at = (await made.do(act))["at"]
        exit_ = await goodbye(made, at)
        assert words(exit_) == ("intentional", "completed", "", "end")
        left = await made.observer.wait_for_leave(made.agent)
        assert left.at - at < GONE_WITHIN
        assert left.attributes["lifecycle.state"] == "closed"


@ending("close_on_disconnect/user_left", "the user leaves, no grace")
@pytest.mark.parametrize("wait", [False, True], ids=["returned", "waiting"])
async def test_the_user_leaves(livekit_server: LiveKitServer, worker: Worker, wait: bool) -> None:
    async with call(livekit_server, worker, wait=wait) as made:
        await made.user.room.disconnect()
        line = await worker.wait_for_log("saw_leave", room=made.room)
        exit_ = await goodbye(made, line["at"])
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
        closed = await worker.wait_for_log("saw_close", job=made.job)
        left = await made.observer.wait_for_leave(made.agent)
        assert left.at - closed["at"] < GONE_WITHIN


@ending("close_on_disconnect/user_rejected", "the user is a telephone and rejects the call")
async def test_the_user_rejects_the_call(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with call(livekit_server, worker) as made:
        # as livekit-sip does for a telephone
        await made.user.room.disconnect(reason=rtc.DisconnectReason.USER_REJECTED)
        line = await worker.wait_for_log("saw_leave", room=made.room)
        exit_ = await goodbye(made, line["at"])
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_rejected", "end")


async def test_an_app_may_let_its_agent_stay(livekit_server: LiveKitServer) -> None:
    environment = {"ACTOR_LIFECYCLE": '{"leave_after": null}'}
    with running_worker(livekit_server, environment=environment) as staying:
        async with call(livekit_server, staying) as made:
            await made.do("session_shutdown")
            closed = await made.observer.wait_for(
                lambda s: s.attributes.get("lifecycle.state") == "closed"
            )
            assert words(closed) == ("intentional", "completed", "", "end")
            await asyncio.sleep(3)
            assert made.agent in made.observer.room.remote_participants


async def test_an_agent_that_is_to_stay_outlives_its_closing(
    livekit_server: LiveKitServer,
) -> None:
    environment = {"ACTOR_LIFECYCLE": '{"leave_after": null, "closing_timeout": 2}'}
    with running_worker(livekit_server, environment=environment) as staying:
        async with call(livekit_server, staying) as made:
            await made.do("session_shutdown")
            await made.wait_for_state("closed")
            with pytest.raises(AssertionError, match="did not see it"):
                await made.observer.wait_for_leave(made.agent, 4)


@pytest.mark.parametrize("run", range(5))
async def test_the_exit_is_seen_before_the_room_is_deleted(
    livekit_server: LiveKitServer, worker: Worker, run: int
) -> None:
    del run
    async with call(livekit_server, worker) as made:
        at = (await made.do("delete_room"))["at"]
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "completed", "", "end")
        assert exit_.at - at < TOLD_WITHIN
        out = await made.observer.wait_for(lambda s: s.kind in ("left", "disconnected"))
        assert exit_.at <= out.at
        assert out.reason == "room_deleted"


@pytest.mark.parametrize("run", range(5))
async def test_the_exit_is_seen_before_delete_room_on_close(
    livekit_server: LiveKitServer, worker: Worker, run: int
) -> None:
    del run
    options = {"delete_room_on_close": True}
    async with call(livekit_server, worker, options=options) as made:
        await made.do("session_shutdown")
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "completed", "", "end")
        out = await made.observer.wait_for(lambda s: s.kind in ("left", "disconnected"))
        assert exit_.at <= out.at


@ending("completed", "`ctx.room.disconnect()`")
async def test_the_app_disconnects_its_room(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with call(livekit_server, worker) as made:
        at = (await made.do("disconnect"))["at"]
        assert words(await goodbye(made, at)) == ("intentional", "completed", "", "end")


async def test_the_app_may_name_its_end_and_what_comes_next(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        at = (await made.do("end", detail="all booked", next="wait"))["at"]
        assert words(await goodbye(made, at)) == ("intentional", "completed", "all booked", "wait")


@ending("handoff/to a human", '`get_lifecycle().handoff("to a human")`')
async def test_a_handoff_leaves_the_room_to_the_others(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    options = {"delete_room_on_close": True}
    async with call(livekit_server, worker, options=options) as made:
        at = (await made.do("handoff", detail="to a human"))["at"]
        assert words(await goodbye(made, at)) == ("intentional", "handoff", "to a human", "end")
        await asyncio.sleep(1)
        assert made.user.room.isconnected()
        assert made.observer.room.isconnected()


async def test_an_agent_without_a_session_says_goodbye_too(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, active=False, session=False) as made:
        at = (await made.do("shutdown", reason="done"))["at"]
        assert words(await goodbye(made, at)) == ("intentional", "completed", "done", "end")


async def test_an_agent_is_armed_from_the_first_moment_and_active_once_it_serves(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        joined = next(s for s in made.user.seen if s.identity == made.agent)
        assert joined.attributes["lifecycle.version"] == "1"
        assert joined.attributes["lifecycle.job"] == made.job
        active = await made.observer.wait_for(
            lambda s: s.attributes.get("lifecycle.state") == "active"
        )
        assert active.exit is None
        # one who comes later sees the same
        async with in_room(livekit_server, "late", room=made.room) as late:
            seen = await late.wait_for(lambda s: s.identity == made.agent)
            assert seen.attributes["lifecycle.state"] == "active"


async def test_hooks_in_job_and_worker_are_told_once(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        await made.do("shutdown", reason="done")
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "completed", "done", True]
        await worker.wait_for_log("exit_hook", job=made.job, reason_seen="completed")
        await worker.wait_for_log("process exiting", job_id=made.job)
        await worker.wait_for_only_log("worker_hook", job=made.job)
        await worker.wait_for_only_log("exit_hook", job=made.job)
        event = await worker.wait_for_only_log("lifecycle.exit", job_id=made.job)
        assert (event["exit"], event["reason"], event["next"]) == (
            "intentional",
            "completed",
            "end",
        )
        assert event["lifecycle.pii.detail"] == "done"


async def test_a_slow_on_session_end_does_not_keep_the_agent_in_the_room(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, on_session_end=4) as made:
        at = (await made.do("session_shutdown"))["at"]
        left = await made.observer.wait_for_leave(made.agent)
        assert left.at - at < GONE_WITHIN
        await worker.wait_for_log(
            "session_end_hook", job=made.job
        )  # it ran to its end all the same
        assert time.monotonic() - at > 3.5


async def test_a_closing_that_does_not_come_to_an_end_is_bounded(
    livekit_server: LiveKitServer,
) -> None:
    environment = {"ACTOR_LIFECYCLE": '{"closing_timeout": 3}'}
    with running_worker(livekit_server, environment=environment) as bounded:
        # the framework alone waits 15 s for an entrypoint that does not return
        async with call(livekit_server, bounded, wait=True) as made:
            at = (await made.do("shutdown", reason="done"))["at"]
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "completed", "done", "end")
            assert exit_.at - at < TOLD_WITHIN
            assert 2.9 < left.at - at < 3 + GONE_WITHIN
