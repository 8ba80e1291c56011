"""The first decisive claim wins, is written once, and never changes after."""

from __future__ import annotations

import asyncio

import pytest

from livekit_lifecycle.classify import (
    EntrypointRaised,
    Evidence,
    JobTerminated,
    RoomLeft,
    SessionClosed,
    ShutdownCalled,
    UserGone,
    WorkerDied,
)
from livekit_lifecycle.contract import AgentExit
from livekit_lifecycle.ending import Ending
from tests.logs import our_records


class Wire:
    """Where exits are written: answers when it is let, with what it is told."""

    def __init__(self, *, answers: bool = True, hangs: bool = False) -> None:
        self.written: list[AgentExit] = []
        self.decided: list[tuple[AgentExit, bool]] = []
        self.answers = answers
        self.hangs = hangs

    async def publish(self, exit_: AgentExit) -> bool:
        self.written.append(exit_)
        if self.hangs:
            await asyncio.Event().wait()
        return self.answers

    def ending(self) -> Ending:
        return Ending(publish=self.publish, decided=self._decided)

    def _decided(self, exit_: AgentExit, published: bool) -> None:
        self.decided.append((exit_, published))


async def test_the_first_claim_is_written_once() -> None:
    wire = Wire()
    ending = wire.ending()
    ending.claim(ShutdownCalled("done"))
    ending.claim(ShutdownCalled("really done"))
    await ending.wait_done(1)
    ending.claim(EntrypointRaised("ValueError"))
    await asyncio.sleep(0)
    assert [exit_.detail for exit_ in wire.written] == ["done"]
    assert [(exit_.detail, published) for exit_, published in wire.decided] == [("done", True)]


async def test_an_error_of_the_same_moment_beats_the_shutdown_that_came_of_it() -> None:
    wire = Wire()
    ending = wire.ending()
    ending.claim(ShutdownCalled("cleaning up"))
    ending.claim(SessionClosed("error", error="tts_error"))
    await ending.wait_done(1)
    assert [exit_.reason for exit_ in wire.written] == ["session_error"]


@pytest.mark.parametrize(
    "first", [JobTerminated(), UserGone("room_deleted")], ids=["nameless", "a user's leave"]
)
async def test_the_rooms_own_word_is_waited_for(first: Evidence) -> None:
    wire = Wire()
    ending = wire.ending()
    ending.claim(first)
    await asyncio.sleep(0.01)
    ending.left_room()
    ending.claim(RoomLeft("room_deleted"))
    await ending.wait_done(1)
    assert wire.written == []
    decided = [(e.reason, e.detail, published) for e, published in wire.decided]
    assert decided == [("room_closed", "deleted", False)]


async def test_a_termination_that_stays_nameless_is_written_all_the_same() -> None:
    wire = Wire()
    ending = wire.ending()
    ending.claim(JobTerminated())
    await ending.wait_done(1)
    assert [(e.reason, published) for e, published in wire.decided] == [("removed", True)]


async def test_a_room_that_stays_after_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livekit_lifecycle.ending.ROOM_SETTLE", 0.05)
    wire = Wire()
    ending = wire.ending()
    ending.claim(UserGone("room_deleted"))
    await ending.wait_done(1)
    assert [(e.detail, published) for e, published in wire.decided] == [("deleted", True)]


async def test_a_write_that_hangs_ends_when_the_room_is_gone() -> None:
    wire = Wire(hangs=True)
    ending = wire.ending()
    ending.claim(ShutdownCalled())
    await asyncio.sleep(0.01)
    ending.left_room()
    ending.claim(RoomLeft("room_closed"))
    await ending.wait_done(1)
    assert [(e.reason, e.detail, p) for e, p in wire.decided] == [("room_closed", "empty", False)]


async def test_what_was_written_stands_although_a_better_name_came_meanwhile() -> None:
    wire = Wire()
    ending = wire.ending()
    ending.claim(ShutdownCalled())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the write is on its way
    ending.claim(EntrypointRaised("ValueError"))
    await ending.wait_done(1)
    assert [(e.reason, p) for e, p in wire.decided] == [("completed", True)]


async def test_a_write_that_fails_is_an_end_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decided: list[tuple[str, bool]] = []

    async def fails(_: AgentExit) -> bool:
        raise ConnectionResetError

    ending = Ending(publish=fails, decided=lambda exit_, told: decided.append((exit_.reason, told)))
    ending.claim(ShutdownCalled())
    await ending.wait_done(1)
    assert decided == [("completed", False)]
    assert [record.__dict__["error"] for record in our_records(caplog)] == ["ConnectionResetError"]


async def test_waiting_is_bounded() -> None:
    ending = Wire().ending()
    started = asyncio.get_running_loop().time()
    await ending.wait_done(0.05)
    await ending.wait_out_of_room(0.05)
    assert asyncio.get_running_loop().time() - started < 0.5
    assert not ending.done


async def test_it_is_seen_through_although_its_task_is_cancelled() -> None:
    wire = Wire()
    ending = wire.ending()
    ending.claim(WorkerDied())
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await ending.finish_now()
    assert [(e.reason, p) for e, p in wire.decided] == [("worker_lost", True)]


async def test_finishing_twice_writes_once() -> None:
    wire = Wire()
    ending = wire.ending()
    ending.claim(WorkerDied())
    await asyncio.gather(ending.finish_now(), ending.finish_now())
    assert len(wire.decided) == 1
