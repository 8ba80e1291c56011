"""Other people's callbacks: bounded, caught, and each on its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from livekit_lifecycle._hooks import run_hook
from tests.logs import our_records


async def test_calls_sync_and_async_hooks_with_the_argument() -> None:
    told: list[str] = []

    async def later(word: str) -> None:
        await asyncio.sleep(0)
        told.append(word)

    await run_hook("h", told.append, "now", timeout=1)
    await run_hook("h", later, "later", timeout=1)
    assert told == ["now", "later"]


async def test_what_a_hook_raises_is_one_warning_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: str) -> None:
        msg = "Alice's secret"
        raise LookupError(msg)

    await run_hook("on_exit", broken, "x", timeout=1)
    (record,) = our_records(caplog)
    assert (record.levelno, record.message) == (logging.WARNING, "lifecycle.hook_failed")
    assert record.__dict__["error"] == "LookupError"
    # no figures: times and ids of a record may have any
    assert "Alice" not in str(record.__dict__)
    assert "secret" not in str(record.__dict__)


async def test_a_hook_that_hangs_is_cancelled_at_its_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancelled = asyncio.Event()

    async def hangs(_: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await run_hook("on_exit", hangs, "x", timeout=0.05)
    assert cancelled.is_set()
    (record,) = our_records(caplog)
    assert record.__dict__["error"] == "timeout"


async def test_a_sync_hook_in_a_thread_does_not_hold_up_the_loop() -> None:
    threads: list[threading.Thread] = []

    def blocks(_: str) -> None:
        threads.append(threading.current_thread())
        time.sleep(0.2)

    started = asyncio.get_running_loop().time()
    await run_hook("on_exit", blocks, "x", timeout=0.05, in_thread=True)
    assert asyncio.get_running_loop().time() - started < 0.15
    assert threads[0] is not threading.main_thread()


async def test_cancelling_the_caller_goes_through() -> None:
    async def hangs(_: str) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(run_hook("h", hangs, "x", timeout=10))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
