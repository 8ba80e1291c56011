"""With ``one_per_room``: of two living agents of one name the later one makes way."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator

import pytest

from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import Worker, call, dispatch, in_room, is_serving, running_worker, words

GUARDED = {"ACTOR_LIFECYCLE": json.dumps({"one_per_room": True})}


@pytest.fixture(scope="module")
def two_workers(livekit_server: LiveKitServer) -> Iterator[str]:
    """Name of an agent that two workers have: one of them would refuse a second job at once."""
    with (
        running_worker(livekit_server, environment=GUARDED) as one,
        running_worker(livekit_server, environment=GUARDED, name=one.name),
    ):
        yield one.name


@ending("replaced/duplicate_agent", "a second dispatch under `one_per_room`")
@pytest.mark.parametrize("wait", [False, True], ids=["returned", "waiting"])
@pytest.mark.parametrize("between", [0, 0.05, 2])
async def test_of_two_dispatches_one_agent_remains(
    livekit_server: LiveKitServer, two_workers: str, between: float, wait: bool
) -> None:
    async with in_room(livekit_server, "observer") as observer:
        for _ in range(2):
            await dispatch(livekit_server, observer.room_name, two_workers, {"wait": wait})
            await asyncio.sleep(between)
        exit_ = await observer.wait_for(lambda s: s.exit is not None)
        assert words(exit_) == ("intentional", "replaced", "duplicate_agent", "wait")
        left = await observer.wait_for_leave(exit_.identity)
        assert left.at - exit_.at < 4
        first = await observer.wait_for(
            lambda s: s.identity.startswith("agent-") and s.identity != exit_.identity
        )
        await asyncio.sleep(1)
        assert list(observer.room.remote_participants) == [first.identity]
        assert "lifecycle.exit" not in observer.room.remote_participants[first.identity].attributes


async def test_a_killed_predecessor_is_no_reason_to_leave(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server, environment=GUARDED) as doomed:
        second: Worker
        with running_worker(livekit_server, environment=GUARDED, name=doomed.name) as second:
            async with call(livekit_server, doomed) as made:
                # whichever has the call
                having, other = (
                    (doomed, second)
                    if doomed.log("received job request", job_id=made.job)
                    else (second, doomed)
                )
                having.signal_group(signal.SIGKILL)
                await dispatch(livekit_server, made.room, doomed.name, {})
                new = await made.user.wait_for(
                    lambda s: s.identity not in (made.agent, "observer") and is_serving(s)
                )
                await asyncio.sleep(5)
                assert new.identity in made.user.room.remote_participants
                assert not other.log("lifecycle.exit")
