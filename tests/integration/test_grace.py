"""Reloads are survived, users who are gone are not waited for too long, and limits are kept."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from livekit import api, rtc

from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import Call, Worker, call, dispatch, in_room, server_api, words


def at_deadline(seen_at: float, left_at: float, grace: float, slack: float = 0.5) -> bool:
    return abs(seen_at - left_at - grace) < slack


@pytest.mark.parametrize(
    ("away", "track"), [(1, True), (1, False), (5, True)], ids=["1s", "1s-no-track", "5s"]
)
async def test_a_reload_is_survived_with_the_same_agent_and_its_memory(
    livekit_server: LiveKitServer, worker: Worker, away: float, track: bool
) -> None:
    async with call(livekit_server, worker, preset="web", track=track) as made:
        sid = made.observer.room.remote_participants[made.agent].sid
        assert (await made.heard("first"))["count"] == 1
        await made.user_leaves()
        await asyncio.sleep(away)
        await made.user_returns(track=track)
        heard = await made.heard("second")
        assert heard["count"] >= 2, "its memory is kept"
        if track and away > 1:
            waiting = await made.wait_for_state("waiting")
            assert int(waiting.attributes["lifecycle.deadline"]) > time.time() * 1000
            assert 14_000 < int(waiting.attributes["lifecycle.window"]) <= 15_000
            mark = made.observer.seen.index(waiting)
            active = await made.wait_for_state("active", since=mark)
            assert "lifecycle.deadline" not in active.attributes
        if track:
            reads = {"participant": "user", "room": made.room}
            while len(worker.log("start reading stream", **reads)) == 1:
                await worker.wait_for_news()
        now = made.observer.room.remote_participants[made.agent]
        assert now.sid == sid
        assert "lifecycle.exit" not in now.attributes


async def test_a_user_without_a_track_who_is_back_within_one_tick_was_never_away(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="web", track=False) as made:
        await made.user_leaves()
        await made.user_returns(track=False)
        await made.heard("still there?")
        assert made.agent in made.observer.room.remote_participants


@ending(
    "timeout/grace",
    "the user of `presets.web()` does not come back",
    client="`waiting` with its deadline, then the exit at the deadline",
)
async def test_no_return_ends_it_at_the_deadline(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="web", options={"grace": 4}) as made:
        await made.user_leaves()
        line = await worker.wait_for_log("saw_leave", room=made.room)
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "timeout", "grace", "end")
        assert at_deadline(exit_.at, line["at"], 4)
        assert left.at - exit_.at < 1.5
        waiting = worker.log("grace_hook", job=made.job, event="waiting")
        assert len(waiting) == 1


async def test_a_new_identity_is_heard_where_anyone_may_come(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="web", options={"follow": "any"}) as made:
        await made.heard("from the first page")
        await made.user_leaves()
        await made.wait_for_state("waiting")
        await made.user_returns("page-2")
        heard = await made.heard("from the second page")
        assert heard["who"] == "page-2"
        # and its audio: LiveKit says whose stream it begins to read
        await worker.wait_for_log("start reading stream", participant="page-2", room=made.room)
        line = await worker.wait_for_log("grace_hook", job=made.job, event="returned")
        assert line["what"] == "Returned(identity='page-2', previous='user', same=False)"


async def test_a_new_identity_is_not_listened_to_under_same(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="web", options={"grace": 5}) as made:
        await made.user_leaves()
        await made.wait_for_state("waiting")
        async with in_room(livekit_server, "stranger", room=made.room) as stranger:
            await stranger.publish_audio()
            await asyncio.sleep(1)
            await stranger.say("let me in")
            exit_ = await made.observer.wait_for_exit(made.agent)
            assert words(exit_) == ("intentional", "timeout", "grace", "end")
            assert not worker.log("heard", text="let me in")


@ending("close_on_disconnect/user_bye", "the RPC `lifecycle.bye`")
async def test_a_hang_up_button_ends_it_at_once(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="web") as made:
        at = time.monotonic()
        assert await made.user.bye(made.agent) == "bye"
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_bye", "end")
        assert exit_.at - at < 1
        assert left.at - exit_.at < 1.5


async def test_nobody_else_may_hang_up(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with call(livekit_server, worker, preset="web") as made:
        with pytest.raises(rtc.RpcError, match="only the user of this session can end it"):
            await made.observer.bye(made.agent)
        await made.heard("still here")


async def test_a_phone_that_hangs_up_ends_it_at_once_and_closes_the_room(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="telephony") as made:
        await made.user_leaves()
        line = await worker.wait_for_log("saw_leave", room=made.room)
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
        assert exit_.at - line["at"] < 1
        out = await made.observer.wait_for(lambda s: s.kind == "disconnected")
        assert out.reason == "room_deleted"


@ending("close_on_disconnect/user_removed", "RemoveParticipant of the user")
async def test_a_phone_that_was_removed_ends_it_too(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="telephony") as made:
        async with server_api(livekit_server) as lkapi:
            who = api.RoomParticipantIdentity(room=made.room, identity="user")
            await lkapi.room.remove_participant(who)
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_removed", "end")


async def test_in_a_meeting_the_leave_of_one_is_no_end(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="meeting", options={"grace": 3}) as made:
        async with in_room(livekit_server, "bob", room=made.room) as bob:
            await bob.publish_audio()
            await bob.wait_for(lambda s: s.identity == made.agent)
            await made.user_leaves()
            await worker.wait_for_log("grace_hook", job=made.job, event="returned")
            other = Call(livekit_server, worker, made.room, bob, made.observer)
            assert (await other.heard("bob speaking"))["who"] == "bob"
            await asyncio.sleep(3.5)
            assert made.agent in made.observer.room.remote_participants
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "timeout", "grace", "end")


async def test_a_grace_longer_than_the_room_is_cut_with_one_warning(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker, preset="mobile", departure_timeout=8) as made:
        warning = await worker.wait_for_only_log("lifecycle.grace_cut", job_id=made.job)
        assert (warning["grace"], warning["departure_timeout"], warning["cut_to"]) == (60, 8, 4)
        await made.user_leaves()
        line = await worker.wait_for_log("saw_leave", room=made.room)
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "timeout", "grace", "end")
        assert at_deadline(exit_.at, line["at"], 4)
        assert left.reason == "client_initiated", "the agent left before the room was closed"


async def test_in_a_room_that_is_made_for_it_a_long_grace_is_kept(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(
        livekit_server, worker, preset="web", options={"grace": 26}, departure_timeout=30
    ) as made:
        assert not worker.log("lifecycle.grace_cut", job_id=made.job)
        await made.user_leaves()
        await asyncio.sleep(23)  # longer than any room stays open by default
        await made.user_returns()
        await made.heard("back again")


@ending(
    "timeout/max_duration",
    "`Limits(max_duration=6)` runs out",
    client="the deadline 2 s ahead, then the exit",
)
@pytest.mark.parametrize("reader", ["a user", "nobody"])
async def test_the_longest_duration_is_told_ahead_and_kept(
    livekit_server: LiveKitServer, worker: Worker, reader: str
) -> None:
    limits = {"max_duration": 6, "warn_before": 2}
    async with call(livekit_server, worker, preset="web", limits=limits) as made:
        if reader == "nobody":
            await made.user_leaves()
        warned = await made.observer.wait_for(lambda s: "lifecycle.deadline" in s.attributes)
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "timeout", "max_duration", "end")
        deadline = int(warned.attributes["lifecycle.deadline"]) / 1000
        assert abs(deadline - (time.time() - (time.monotonic() - exit_.at))) < 0.5
        await worker.wait_for_log("grace_hook", job=made.job, event="limit_warning")
        assert left.at - exit_.at < 1.5


@ending("timeout/idle", "`Limits(idle=3)` runs out")
async def test_silence_ends_it_and_text_counts_as_speech(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    options = {"audio_input": False, "audio_output": False}
    limits = {"idle": 3, "warn_before": 1}
    async with call(
        livekit_server, worker, preset="web", options=options, limits=limits, track=False
    ) as made:
        last: dict[str, Any] = {}
        for number in range(3):
            last = await made.heard(f"word {number}")
            await asyncio.sleep(1.5)
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "timeout", "idle", "end")
        assert at_deadline(exit_.at, last["at"], 3)


@ending("timeout/no_show", "`Limits(no_show=3)` runs out")
async def test_nobody_ever_came(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with in_room(livekit_server, "observer", kind="agent") as observer:
        how = {"preset": "web", "limits": {"no_show": 3}}
        await dispatch(livekit_server, observer.room_name, worker.name, how)
        exit_ = await observer.wait_for(lambda s: s.exit is not None)
        assert words(exit_) == ("intentional", "timeout", "no_show", "end")
        starting = next(s for s in observer.seen if "lifecycle.deadline" in s.attributes)
        assert starting.attributes["lifecycle.state"] == "starting"


async def test_impossible_options_fail_the_start_with_the_numbers(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(
        livekit_server, worker, preset="web", options={"grace": -1}, active=False
    ) as made:
        exit_ = await made.user.wait_for_exit(made.agent)
        assert words(exit_) == ("crash", "exception", "ValueError", "rejoin")
        await worker.wait_for_log("grace is -1; it must be a number of seconds above 0")
