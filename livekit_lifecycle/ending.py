"""How one job ends: the first decisive claim wins, is written once, and never changes after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from ._log import INTERNAL_ERROR, log
from .classify import Evidence, JobTerminated, classify, supersedes
from .contract import AgentExit, Reason

TERMINATION_SETTLE: Final = 0.1
"""Seconds to wait for the room's own word after a nameless termination.

The server sends the same termination for a deleted dispatch, a removed agent and a deleted room;
in the last two cases the agent's disconnect, which names the cause, follows within 20 ms.
"""
ROOM_SETTLE: Final = 1.0
"""Seconds to wait for the agent's own disconnect from a room that others were put out of.

A user's leave may be told first when a room is deleted. What is written then reaches nobody,
though it may still come back as if it did.
"""

_TERMINATED: Final = classify(JobTerminated())


class Ending:
    """Decides how a job ended, out of what its observers claim.

    Args:
        publish: Writes an exit where clients see it; says whether it is there. Bounded.
        decided: Called once, with the exit and whether it was published.
        complete: Adds to an exit, right before it is written, what has to be looked up. Bounded.
    """

    def __init__(
        self,
        *,
        publish: Callable[[AgentExit], Awaitable[bool]],
        decided: Callable[[AgentExit, bool], None],
        complete: Callable[[AgentExit], Awaitable[AgentExit]] | None = None,
    ) -> None:
        self._publish = publish
        self._complete = complete
        self._decided = decided
        self._done = asyncio.Event()
        self._out_of_room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._claim: AgentExit | None = None

    @property
    def claimed(self) -> AgentExit | None:
        """The best name so far, final once `done`."""
        return self._claim

    @property
    def done(self) -> bool:
        """Whether it is decided and was written, if it could be."""
        return self._done.is_set()

    def claim(self, evidence: Evidence) -> None:
        """Say what was seen. Harmless when called often, and after the end."""
        if self.done:
            return
        claim = classify(evidence)
        if self._claim is None or supersedes(claim, self._claim):
            self._claim = claim
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="lifecycle_ending")

    @property
    def out_of_room(self) -> bool:
        """Whether nothing can be written any more."""
        return self._out_of_room.is_set()

    def left_room(self) -> None:
        """Nothing can be written any more."""
        self._out_of_room.set()

    async def wait_out_of_room(self, seconds: float) -> None:
        """Wait until the agent is out of its room, at most so long."""
        await _wait(self._out_of_room, seconds)

    async def wait_done(self, seconds: float) -> None:
        """Wait until the exit is out, or can't be any more, at most so long."""
        await _wait(self._done, seconds)

    async def finish_now(self) -> None:
        """See it through although the event loop is being taken down, our own task with it."""
        if self._task is not None:
            await asyncio.wait({self._task})
        if not self.done and self._claim is not None:
            await self._run()

    async def _run(self) -> None:
        await asyncio.sleep(0)  # a better name may come in the same turn of the loop
        if self._claim == _TERMINATED:
            await self.wait_out_of_room(TERMINATION_SETTLE)
        if self._claim is not None and self._claim.reason == Reason.ROOM_CLOSED:
            await self.wait_out_of_room(ROOM_SETTLE)
        written = await self._completed()
        published = await self._write(written)
        # what was written stands; what could not be may have got a better name meanwhile
        self._claim = written if published else self._claim or written
        self._done.set()
        self._decided(self._claim, published)

    async def _completed(self) -> AgentExit:
        while True:
            claim = self._claim
            assert claim is not None  # noqa: S101 - `claim` sets it before it starts `_run`
            if self._complete is None:
                return claim
            completed = await self._complete(claim)
            if claim is self._claim:  # else a better name came meanwhile
                self._claim = completed
                return completed

    async def _write(self, exit_: AgentExit) -> bool:
        if self._out_of_room.is_set():
            return False
        write = asyncio.ensure_future(self._publish(exit_))
        gone = asyncio.ensure_future(self._out_of_room.wait())
        try:
            # on a room that is dying the write would hang until its own deadline
            await asyncio.wait({write, gone}, return_when=asyncio.FIRST_COMPLETED)
            return write.done() and write.result()
        except Exception as error:  # noqa: BLE001 - an ending goes on, published or not
            log.warning(INTERNAL_ERROR, error=type(error).__name__)
            return False
        finally:
            write.cancel()
            gone.cancel()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
