"""A loop that hangs is noticed by a thread; one that is merely busy is not."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from livekit_lifecycle._watchdog import Watchdog
from tests.logs import our_records

AFTER = 0.5


class Told:
    """What a watchdog said."""

    def __init__(self) -> None:
        self.stalled: list[int] = []
        self.recovered = asyncio.Event()
        self.watchdog = Watchdog(
            AFTER, job_id="AJ_1", stalled=self._stalled, recovered=self.recovered.set
        )

    async def _stalled(self, since_ms: int) -> None:
        self.stalled.append(since_ms)


async def test_a_loop_that_hangs_is_told_with_where_and_since_when(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    await asyncio.sleep(0.2)
    before = time.time() * 1000
    time.sleep(3 * AFTER)  # noqa: ASYNC251 - the very fault
    await asyncio.wait_for(told.recovered.wait(), 5)
    told.watchdog.stop()
    (since,) = told.stalled
    assert abs(since - before) < 1000 * AFTER
    first, last = our_records(caplog)
    assert first.levelno == last.levelno == logging.WARNING
    assert first.message == "lifecycle.loop_stalled"
    assert "time.sleep(3 * AFTER)" in first.__dict__["stack"]
    assert last.message == "lifecycle.loop_recovered"


async def test_a_loop_that_is_merely_busy_is_not() -> None:
    told = Told()
    for _ in range(12):
        time.sleep(AFTER / 3)  # noqa: ASYNC251 - busy, again and again
        await asyncio.sleep(0.02)
    told.watchdog.stop()
    assert told.stalled == []


async def test_nobody_is_told_after_the_end() -> None:
    told = Told()
    told.watchdog.stop()
    time.sleep(3 * AFTER)  # noqa: ASYNC251 - the very fault
    await asyncio.sleep(0.1)
    assert told.stalled == []
