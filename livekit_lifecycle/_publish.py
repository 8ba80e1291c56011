"""Write the agent's own attributes: one write at a time, each with a deadline, never a raise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from livekit import rtc

from ._log import PUBLISH_FAILED, log

ECHO_TIMEOUT = 0.3
"""Seconds to wait for a value to come back once the server has answered: it takes a few ms."""

ServerWrite = Callable[[Mapping[str, str]], Awaitable[None]]
"""Writes the same attributes by the server API: the second way, where the first one fails."""


class Publisher:
    """The one writer of an agent's own attributes.

    Args:
        room: The agent's room; nothing is written while it is not connected.
        timeout: Longest wait for one write, in seconds.
        server_write: The second way. None: there is no second way.
    """

    def __init__(
        self, room: rtc.Room, *, timeout: float, server_write: ServerWrite | None = None
    ) -> None:
        self._room = room
        self._timeout = timeout
        self._server_write = server_write
        self._pending: dict[str, str] = {}
        self._unconfirmed: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._warned = False
        self._echo = asyncio.Event()
        self._echoes = True
        room.on("participant_attributes_changed", self._on_attributes)

    def _on_attributes(self, *_: object) -> None:
        self._echo.set()

    def post(self, attributes: Mapping[str, str]) -> None:
        """Write soon and don't wait. Of several changes to a key the last one is written."""
        self._pending.update(attributes)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain_pending(), name="lifecycle_publish")

    async def publish(self, attributes: Mapping[str, str]) -> bool:
        """Write now, ahead of whatever waits, together with it.

        Returns:
            Whether the server has it. After ``timeout`` seconds at the latest.
        """
        await self.aclose()
        write = {**self._unconfirmed, **self._pending, **attributes}
        self._pending.clear()
        return await self._write(write)

    def expect_no_echo(self) -> None:
        """Nobody reads the room's events any more: take the server's answer for it."""
        self._echoes = False

    async def aclose(self) -> None:
        """Stop writing. What was posted and is not written yet is kept for `publish`."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _drain_pending(self) -> None:
        while self._pending and self._room.isconnected():
            self._unconfirmed |= self._pending
            self._pending = {}
            if await self._write(self._unconfirmed):
                self._unconfirmed = {}

    async def _write(self, attributes: Mapping[str, str]) -> bool:
        if not self._room.isconnected():
            return False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        # LiveKit's own call has no time-out. Half of the time is left for the second way.
        own_share = self._timeout / 2 if self._server_write else self._timeout
        error = await _bounded(self._set_own(attributes), own_share)
        if error and self._server_write is not None and self._room.isconnected():
            second = await _bounded(self._server_write(attributes), deadline - loop.time())
            error = second and f"{error}, then {second}"
        if error and self._room.isconnected() and not self._warned:
            self._warned = True
            log.warning(PUBLISH_FAILED, keys=",".join(sorted(attributes)), error=error)
        return not error

    async def _set_own(self, attributes: Mapping[str, str]) -> None:
        participant = self._room.local_participant
        await participant.set_attributes(dict(attributes))
        if not self._echoes:
            return
        # LiveKit does not look at the answer: without the right to write, nothing comes back
        try:
            await asyncio.wait_for(self._come_back(participant, attributes), ECHO_TIMEOUT)
        except asyncio.TimeoutError:
            raise PermissionError from None

    async def _come_back(
        self, participant: rtc.LocalParticipant, attributes: Mapping[str, str]
    ) -> None:
        while any(participant.attributes.get(k, "") != v for k, v in attributes.items()):
            self._echo.clear()
            await self._echo.wait()


async def _bounded(write: Awaitable[None], seconds: float) -> str:
    """Await ``write`` for so many seconds; return what went wrong, by class name."""
    try:
        await asyncio.wait_for(write, seconds)
    except asyncio.TimeoutError:
        return "timeout"
    except Exception as error:  # noqa: BLE001 - the user's job must not see a failure of ours
        return type(error).__name__
    return ""
