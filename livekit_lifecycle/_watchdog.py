"""A thread that notices when the job's event loop hangs, which nobody else does for a minute."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType

from ._log import STALLED, STALLED_OVER, WHERE, log
from ._stacks import stack_from, stack_of, stacks_of_tasks


class Watchdog:
    """Watches the event loop that it is started in.

    Where native code holds Python's global lock this thread can't run either, and sees nothing.

    Args:
        after: Seconds without an answer of the loop after which it counts as stalled.
        job_id: For the log.
        stalled: Called in the thread, to be awaited in a loop of its own, with the Unix time in ms
            since when the loop hangs.
        recovered: Called in the watched loop once it answers again.
    """

    def __init__(
        self,
        after: float,
        *,
        job_id: str,
        stalled: Callable[[int], Awaitable[None]],
        recovered: Callable[[], None],
    ) -> None:
        self._after = after
        self._period = min(1.0, after / 5)
        self._job_id = job_id
        self._stalled, self._recovered = stalled, recovered
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(self._period, self._answer)
        self._over = threading.Event()
        thread = threading.Thread(target=self._watch, name="lifecycle_watchdog", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Stop watching. In the watched loop."""
        self._over.set()
        self._timer.cancel()

    def _answer(self) -> None:
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(self._period, self._answer)

    def _watch(self) -> None:
        hangs, looked = False, time.monotonic()
        while not self._over.wait(self._period):
            now = time.monotonic()
            if now - looked > self._period + self._after / 2:
                # we did not run either: the whole process was frozen, or the machine asleep
                self._beat = max(self._beat, now - self._after / 2)
            looked = now
            silent = now - self._beat
            if not hangs and silent > self._after:
                hangs = True
                self._report(silent)
            elif hangs and silent < self._after:
                hangs = False
                log.warning(STALLED_OVER, job_id=self._job_id)
                if not self._over.is_set():
                    self._loop.call_soon_threadsafe(self._recovered)

    def _report(self, silent: float) -> None:
        stack = stack_of(self._watched)
        log.warning(STALLED, job_id=self._job_id, seconds=round(silent, 1), stack=stack)
        try:
            asyncio.run(_awaited(self._stalled(round((time.time() - silent) * 1000))))
        except Exception as error:  # noqa: BLE001 - the thread goes on watching
            log.debug(STALLED, job_id=self._job_id, error=type(error).__name__)


def tell_where_it_hangs(job_id: str) -> Callable[[FrameType | None], None]:
    """A handler for the moment before this process is killed: it logs where it is.

    Args:
        job_id: For the log.
    """
    loop = asyncio.get_running_loop()

    def tell(frame: FrameType | None) -> None:
        stack = stack_from(frame)

        def write() -> None:
            log.warning(WHERE, job_id=job_id, stack=stack, tasks=stacks_of_tasks(loop))

        # a thread, since what the signal came upon may hold a lock of the log; it has half a second
        threading.Thread(target=write, name="lifecycle_where", daemon=True).start()

    return tell


async def _awaited(result: Awaitable[None]) -> None:
    await result
