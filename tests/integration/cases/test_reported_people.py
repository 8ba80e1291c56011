"""Reports of users who leave, come back, keep silent, or are no users at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from livekit import api, rtc

from scripts.livekit_server import LiveKitServer
from tests.endings import CLIENT_DERIVES, ending
from tests.harness import (
    ACTOR,
    Call,
    Client,
    Worker,
    call,
    dispatch,
    in_room,
    server_api,
    token_for,
    words,
)

PASSER_BY = ACTOR.parent / "passer_by.py"
SLACK = 0.5


@ending(
    "room_closed/empty",
    "the room's departure timeout runs out",
    client=CLIENT_DERIVES,
    hook="unpublished",
    written=False,
)
async def test_a_room_that_times_out_empty_ends_its_agent_without_a_crash(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/livekit#4271: rooms close under agents that would wait. Also livekit/agents#1027."""
    options = {"close_on_disconnect": False}
    async with call(livekit_server, worker, departure_timeout=4, options=options) as made:
        await made.user_leaves()
        line = await worker.wait_for_log("worker_hook", 25, job=made.job)
        assert line["seen"] == ["intentional", "room_closed", "empty", False]
        assert not worker.log("lifecycle.crash_reported", job_id=made.job)
        # who comes now finds nobody, and gets an agent by asking for one
        user = await made.user_returns()
        assert made.agent not in user.room.remote_participants
        await dispatch(livekit_server, made.room, worker.name, {})
        joined = await user.wait_for(lambda s: s.attributes.get("lifecycle.state") == "active")
        assert joined.identity != made.agent


@pytest.mark.parametrize("kind", ["egress", "ingress"])
async def test_a_recorder_does_not_keep_an_agent(
    livekit_server: LiveKitServer, worker: Worker, kind: str
) -> None:
    """livekit/agents#1569: recorders are participants too, and agents are not told of them."""
    async with (
        call(livekit_server, worker, preset="meeting", options={"grace": 2}) as made,
        in_room(livekit_server, "recorder", room=made.room, kind=kind),
    ):
        await worker.wait_for_log("saw_join", who="recorder", room=made.room)
        await made.user_leaves()
        gone = await worker.wait_for_log("saw_leave", room=made.room, who="user")
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "timeout", "grace", "end")
        assert abs(exit_.at - gone["at"] - 2) < SLACK


@contextlib.asynccontextmanager
async def phone_call(server: LiveKitServer, worker: Worker, **how: Any) -> AsyncIterator[Call]:
    """As `harness.call`, with a user that is a telephone."""
    room = f"room-{time.monotonic_ns()}"
    made = Call(server, worker, room, Client(server, room, "+1-555"), Client(server, room, "eye"))
    try:
        await made.user.connect(kind="sip")
        await made.user.publish_audio()
        await dispatch(server, room, worker.name, how)
        await wait_until_served(made)
        yield made
    finally:
        await asyncio.gather(made.user.aclose(), made.observer.aclose())


async def wait_until_served(made: Call) -> None:
    await made.observer.connect(kind="agent")
    active = await made.observer.wait_for(lambda s: s.attributes.get("lifecycle.state") == "active")
    made.agent, made.job = active.identity, active.attributes["lifecycle.job"]


@pytest.mark.parametrize("preset", ["telephony", "web"])
@pytest.mark.parametrize(
    ("how", "detail"),
    [
        ("CLIENT_INITIATED", "user_left"),
        ("USER_REJECTED", "user_rejected"),
        ("USER_UNAVAILABLE", "user_left"),  # for which LiveKit's own option does not close
        ("removed", "user_removed"),
    ],
)
async def test_a_telephone_that_is_gone_for_any_reason_ends_the_call(
    livekit_server: LiveKitServer, worker: Worker, preset: str, how: str, detail: str
) -> None:
    """livekit/sip#294, livekit/agents#7253: hang-ups without a reason, or with one not foreseen."""
    options = {} if preset == "telephony" else {"grace": 2}
    async with phone_call(livekit_server, worker, preset=preset, options=options) as made:
        if how != "removed":
            # livekit-sip gives such reasons for its telephones
            reason = rtc.DisconnectReason.Value(how)
            await made.user.room.disconnect(reason=reason)
        else:
            async with server_api(livekit_server) as lkapi:
                who = api.RoomParticipantIdentity(room=made.room, identity=made.user.identity)
                await lkapi.room.remove_participant(who)
        gone = await worker.wait_for_log("saw_leave", room=made.room, who=made.user.identity)
        exit_ = await made.observer.wait_for_exit(made.agent)
        if preset == "telephony":
            assert words(exit_) == ("intentional", "close_on_disconnect", detail, "end")
            assert exit_.at - gone["at"] < 1
        else:
            assert words(exit_) == ("intentional", "timeout", "grace", "end")
            assert abs(exit_.at - gone["at"] - 2) < SLACK


async def test_a_telephone_whose_link_breaks_has_its_short_grace(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/sip#294: a caller who is just gone. LiveKit itself needs 20 s to notice."""
    room = f"room-{time.monotonic_ns()}"
    observer = Client(livekit_server, room, "eye")
    made = Call(livekit_server, worker, room, observer, observer)
    token = token_for(livekit_server, room, "+1-555", "sip")
    phone = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PASSER_BY),
        token,
        env={**os.environ, **livekit_server.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert phone.stdout is not None
        assert await phone.stdout.readline() == b"joined\n"
        await dispatch(livekit_server, room, worker.name, {"preset": "telephony"})
        await wait_until_served(made)
        phone.kill()
        gone = await worker.wait_for_log("saw_leave", 40, room=room, who="+1-555")
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "timeout", "grace", "end")
        assert abs(exit_.at - gone["at"] - 5) < SLACK
    finally:
        with contextlib.suppress(ProcessLookupError):
            phone.kill()
        await phone.wait()
        await observer.aclose()


async def test_a_silent_user_is_warned_and_then_let_go(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/agents#2947: "away" is only a state and ends nothing. Also #2829, #2819."""
    limits = {"idle": 4, "warn_before": 2}
    async with call(livekit_server, worker, preset="web", limits=limits, away=1) as made:
        await worker.wait_for_log("grace_hook", job=made.job, event="limit_warning")
        last = await made.heard("still here")  # in the last moment: it all starts anew
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "timeout", "idle", "end")
        away = worker.log("user_state", to="away")
        assert away, "LiveKit's word for silence came, and counted as nothing"
        warnings = worker.log("grace_hook", job=made.job, event="limit_warning")
        assert len(warnings) >= 2
        assert abs(exit_.at - last["at"] - 4) < SLACK
        assert abs(exit_.at - warnings[-1]["at"] - 2) < SLACK


async def test_a_call_ends_at_its_limit_in_the_middle_of_a_sentence(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """elevenlabs/elevenlabs-swift-sdk#96: the time is up and the app is not told.

    Also livekit/client-sdk-react-native#274.
    """
    limits = {"max_duration": 5, "warn_before": 2}
    async with call(livekit_server, worker, preset="web", limits=limits, speak=60) as made:
        await made.observer.wait_for(lambda s: s.attributes.get("lk.agent.state") == "speaking")
        warned = await made.observer.wait_for(lambda s: "lifecycle.deadline" in s.attributes)
        assert warned.exit is None
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "timeout", "max_duration", "end")
        assert abs(exit_.at - warned.at - 2) < SLACK
        assert abs(int(warned.attributes["lifecycle.window"]) - 2000) < 500
        assert left.at - exit_.at < 1.5


async def test_a_chat_without_a_microphone_is_reloaded_like_any_other_call(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """elevenlabs/elevenlabs-flutter#7, elevenlabs-swift-sdk#143: the agent leaves a text chat."""
    options = {"audio_input": False, "audio_output": False}
    async with call(livekit_server, worker, preset="web", options=options, track=False) as made:
        await made.heard("one")
        await made.user_leaves()
        waiting = await made.wait_for_state("waiting")
        await made.user_returns(track=False)
        await made.wait_for_state("active", since=made.observer.seen.index(waiting))
        assert (await made.heard("two"))["count"] >= 2
        assert all(seen.exit is None for seen in made.observer.seen)


async def test_a_reload_in_the_middle_of_a_sentence_leaves_nobody_deaf(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/agents#2894: after a reload the agent finishes its sentence and hears no one."""
    async with call(livekit_server, worker, preset="web", speak=60) as made:
        speaking = {"lk.agent.state": "speaking"}
        await made.observer.wait_for(lambda s: speaking.items() <= s.attributes.items())
        await made.user_leaves()
        waiting = await made.wait_for_state("waiting")
        assert speaking.items() <= waiting.attributes.items(), "it goes on"
        await made.user_returns()
        assert (await made.heard("are you still there?"))["who"] == "user"
        assert made.agent in made.observer.room.remote_participants
