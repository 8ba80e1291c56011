"""A job with several sessions, as one for each participant: it ends with the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.livekit_server import LiveKitServer
from tests.harness import (
    ACTOR,
    Call,
    Client,
    Worker,
    call,
    do,
    in_room,
    running_worker,
    token_for,
    words,
)

SEVERAL = ACTOR.parent / "several.py"


@pytest.fixture(scope="module")
def several(livekit_server: LiveKitServer) -> Iterator[Worker]:
    with running_worker(livekit_server, file=SEVERAL) as worker:
        yield worker


async def second_user(made: Call, bob: Client) -> None:
    await bob.publish_audio()
    await made.worker.wait_for_log("started", job=made.job, who="bob")


async def serves(made: Call, bob: Client) -> None:
    """The agent is there, for clients and for Bob."""
    await asyncio.sleep(2)
    assert all(seen.exit is None for seen in bob.seen)
    agent = bob.room.remote_participants[made.agent]
    assert agent.attributes["lifecycle.state"] == "active"
    assert not made.worker.log("worker_hook", job=made.job)
    look = await do(bob, made.worker, made.agent, "look", who="bob")
    assert look["linked"] == "bob"


async def test_the_leave_of_one_user_ends_nobody_elses_session(
    livekit_server: LiveKitServer, several: Worker
) -> None:
    async with (
        call(livekit_server, several) as made,
        in_room(livekit_server, "bob", room=made.room) as bob,
    ):
        await second_user(made, bob)
        await made.user_leaves()
        await several.wait_for_log("closed", job=made.job, who="user")
        await serves(made, bob)
        await bob.room.disconnect()
        exit_, _ = await made.ending()
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
        await several.wait_for_only_log("exit_hook", job=made.job)


async def test_each_session_has_a_grace_of_its_own(
    livekit_server: LiveKitServer, several: Worker
) -> None:
    how: dict[str, Any] = {"preset": "web", "options": {"grace": 3}}
    async with (
        call(livekit_server, several, **how) as made,
        in_room(livekit_server, "bob", room=made.room) as bob,
    ):
        await second_user(made, bob)
        await made.user_leaves()
        await several.wait_for_log("closed", job=made.job, who="user")
        states = [seen.attributes["lifecycle.state"] for seen in bob.seen if seen.attributes]
        assert "waiting" not in states, "an agent that serves somebody does not wait"
        await serves(made, bob)
        await bob.room.disconnect()
        await made.wait_for_state("waiting")
        exit_, _ = await made.ending()
        assert words(exit_) == ("intentional", "timeout", "grace", "end")


async def test_each_user_may_say_goodbye(livekit_server: LiveKitServer, several: Worker) -> None:
    how: dict[str, Any] = {"preset": "web"}
    async with (
        call(livekit_server, several, **how) as made,
        in_room(livekit_server, "bob", room=made.room) as bob,
    ):
        await second_user(made, bob)
        assert await made.user.bye(made.agent) == "bye"
        await several.wait_for_log("closed", job=made.job, who="user")
        await serves(made, bob)
        assert await bob.bye(made.agent) == "bye"
        exit_, _ = await made.ending()
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_bye", "end")


async def test_the_app_ends_them_all(livekit_server: LiveKitServer, several: Worker) -> None:
    async with (
        call(livekit_server, several) as made,
        in_room(livekit_server, "bob", room=made.room) as bob,
    ):
        await second_user(made, bob)
        await made.do("close", who="user")
        await several.wait_for_log("closed", job=made.job, who="user")
        await serves(made, bob)
        await made.do("shutdown")
        exit_, _ = await made.ending()
        assert words(exit_) == ("intentional", "completed", "done", "end")


async def test_a_session_in_another_room_keeps_no_agent(
    livekit_server: LiveKitServer, several: Worker
) -> None:
    token = token_for(livekit_server, "elsewhere", "agent-elsewhere", "agent")
    consult = {"url": livekit_server.url, "token": token}
    async with (
        in_room(livekit_server, "expert", room="elsewhere") as expert,
        call(livekit_server, several, consult=consult) as made,
    ):
        await several.wait_for_log("started", job=made.job, who="expert")
        await made.user_leaves()
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
        assert left.at - exit_.at < 2
        await expert.wait_for_leave("agent-elsewhere")
