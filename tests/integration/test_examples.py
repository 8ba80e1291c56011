"""Each example runs as it stands and does what it says."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from scripts.livekit_server import LiveKitServer
from tests.harness import ROOT, call, in_room, running_worker, words

EXAMPLES = ROOT / "examples"
COVERED = {
    "front_desk.py",
    "front_desk_hooks.py",
    "managed_by_hand.py",
    "meeting.py",
    "page_reload.py",
    "phone.py",
}


def test_every_example_is_run_by_a_test() -> None:
    elsewhere = {"backend.py", "web_agent.py", "web_demo.py"}  # run in tests/web
    assert {file.name for file in EXAMPLES.glob("*.py")} - elsewhere == COVERED


@pytest.fixture
def any_load() -> dict[str, str]:
    """Examples listen on LiveKit's port and refuse calls on a busy machine; tests want neither."""
    return {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'integration' / 'any_load'}"}


@pytest.mark.parametrize("name", ["front_desk.py", "managed_by_hand.py"])
async def test_a_user_who_hangs_up(
    livekit_server: LiveKitServer, any_load: dict[str, str], name: str
) -> None:
    file: Path = EXAMPLES / name
    with running_worker(livekit_server, file=file, environment=any_load) as worker:
        async with call(livekit_server, worker) as made:
            await made.user.room.disconnect()
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
            assert exit_.at <= left.at


async def test_the_hooks_and_the_polite_deploy(
    livekit_server: LiveKitServer, any_load: dict[str, str]
) -> None:
    file = EXAMPLES / "front_desk_hooks.py"
    with running_worker(livekit_server, file=file, environment=any_load) as worker:
        async with call(livekit_server, worker) as made:
            worker.signal(signal.SIGTERM)
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "drain", "wrapped_up", "end")
            assert exit_.at <= left.at
        assert await worker.wait_exit() == 0
        assert worker.log("draining, 3600 s left")
        assert worker.log("wrapping up, 3600 s left")
        assert worker.log("said goodbye: drain")
        assert worker.log("call over: drain")


async def test_a_page_that_is_reloaded(
    livekit_server: LiveKitServer, any_load: dict[str, str]
) -> None:
    file = EXAMPLES / "page_reload.py"
    with running_worker(livekit_server, file=file, environment=any_load) as worker:
        async with call(livekit_server, worker) as made:
            await made.user_leaves()
            await made.wait_for_state("waiting")
            await made.user_returns()
            await worker.wait_for_log("welcome back")
            assert made.agent in made.observer.room.remote_participants


async def test_a_phone_that_hangs_up(
    livekit_server: LiveKitServer, any_load: dict[str, str]
) -> None:
    file = EXAMPLES / "phone.py"
    with running_worker(livekit_server, file=file, environment=any_load) as worker:
        async with call(livekit_server, worker) as made:
            await made.user_leaves()
            exit_ = await made.observer.wait_for_exit(made.agent)
            assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")


async def test_a_meeting_in_which_one_stays(
    livekit_server: LiveKitServer, any_load: dict[str, str]
) -> None:
    file = EXAMPLES / "meeting.py"
    with running_worker(livekit_server, file=file, environment=any_load) as worker:
        async with (
            call(livekit_server, worker) as made,
            in_room(livekit_server, "bob", room=made.room) as bob,
        ):
            await bob.wait_for(lambda s: s.identity == made.agent)
            await worker.wait_for_log("RoomIO linked to participant")
            await made.user_leaves()
            bobs: dict[str, Any] = {"lk.pii.participant_identity": "bob"}
            await worker.wait_for_log("RoomIO linked to participant", **bobs)
            assert all(seen.exit is None for seen in made.observer.seen)
