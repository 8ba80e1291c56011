"""One bounded write at a time, the exit ahead of all others, and never a raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest
from livekit import rtc

from livekit_lifecycle._publish import Publisher
from tests.fakes import FakeRoom
from tests.logs import our_records


def publisher(room: FakeRoom, **arguments: Any) -> Publisher:
    return Publisher(cast("rtc.Room", room), **{"timeout": 0.5, **arguments})


async def test_says_that_it_is_there_once_the_value_came_back() -> None:
    room = FakeRoom()
    room.local_participant.echo_delay = 0.05
    assert await publisher(room).publish({"a": "1"})
    assert room.local_participant.attributes == {"a": "1"}


async def test_a_write_without_permission_goes_the_second_way() -> None:
    room = FakeRoom()
    room.local_participant.refuses = True
    second: list[Mapping[str, str]] = []

    async def server_write(attributes: Mapping[str, str]) -> None:
        second.append(attributes)

    assert await publisher(room, timeout=2.0, server_write=server_write).publish({"a": "1"})
    assert second == [{"a": "1"}]


async def test_a_write_without_permission_and_second_way_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = FakeRoom()
    room.local_participant.refuses = True
    writer = publisher(room)
    assert not await writer.publish({"a": "secret"})
    assert not await writer.publish({"a": "secret"})
    warnings = our_records(caplog)
    assert [(r.levelno, r.message, r.__dict__["error"]) for r in warnings] == [
        (logging.WARNING, "lifecycle.publish_failed", "PermissionError")
    ]
    assert "secret" not in str(warnings[0].__dict__)


async def test_a_write_that_hangs_ends_at_its_deadline() -> None:
    room = FakeRoom()
    room.local_participant.hangs = True
    started = asyncio.get_running_loop().time()
    assert not await publisher(room, timeout=0.2).publish({"a": "1"})
    assert asyncio.get_running_loop().time() - started < 1.0


async def test_nothing_is_written_outside_of_a_room() -> None:
    room = FakeRoom()
    room.connected = False
    writer = publisher(room)
    writer.post({"a": "1"})
    assert not await writer.publish({"b": "1"})
    assert room.local_participant.writes == []


async def test_of_many_changes_the_last_value_is_written() -> None:
    room = FakeRoom()
    writer = publisher(room)
    for number in range(200):
        writer.post({"state": str(number)})
        if number % 50 == 0:
            await asyncio.sleep(0)
    assert await writer.publish({"exit": "crash"})
    assert room.local_participant.attributes == {"state": "199", "exit": "crash"}
    assert len(room.local_participant.writes) < 10


async def test_the_exit_does_not_wait_behind_a_write_that_hangs() -> None:
    room = FakeRoom()
    room.local_participant.hangs = True
    writer = publisher(room, timeout=30.0)
    writer.post({"state": "active"})
    await asyncio.sleep(0.01)
    room.local_participant.hangs = False
    assert await asyncio.wait_for(writer.publish({"exit": "crash"}), 1)
    # what was under way and never confirmed goes along
    assert room.local_participant.attributes == {"state": "active", "exit": "crash"}


async def test_without_a_reader_of_the_rooms_events_the_answer_is_enough() -> None:
    room = FakeRoom()
    room.local_participant.refuses = True
    writer = publisher(room)
    writer.expect_no_echo()
    assert await writer.publish({"a": "1"})
