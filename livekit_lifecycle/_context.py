"""Where an ending begins in the app's own calls, before anything public fires.

Instances are wrapped, never LiveKit's classes: what an app calls on its own context or room.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from livekit import api
from livekit.agents import JobContext

Delete = Callable[[], asyncio.Future[api.DeleteRoomResponse]]


class ContextHooks:
    """What the calls of a job's context and room did before they were wrapped.

    Args:
        ctx: The job's.
    """

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx
        self.shutdown = ctx.shutdown
        self.disconnect = ctx.room.disconnect

    def wrap(
        self,
        *,
        ends: Callable[[str], None],
        settled: Callable[[], Awaitable[None]],
        keeps_room: Callable[[], bool],
        callback_added: Callable[[object], None],
    ) -> None:
        """Wrap them.

        Args:
            ends: Told when the app ends its job, with its text, before anything comes of it.
            settled: Waits, bounded, until the exit is out or can't be any more.
            keeps_room: Whether the room must not be deleted whatever the session's options say.
            callback_added: Told of each shutdown callback that somebody added.
        """
        ctx, room = self._ctx, self._ctx.room
        delete_room, add_shutdown_callback = ctx.delete_room, ctx.add_shutdown_callback

        @functools.wraps(self.shutdown)
        def shutdown(reason: str = "user requested") -> None:
            ends(reason)
            self.shutdown(reason)

        @functools.wraps(delete_room)
        def delete(room_name: str | None = None) -> asyncio.Future[api.DeleteRoomResponse]:
            if room_name not in (None, "", ctx.job.room.name):
                return delete_room(room_name)
            if keeps_room():
                kept: asyncio.Future[api.DeleteRoomResponse] = asyncio.Future()
                kept.set_result(api.DeleteRoomResponse())
                return kept
            ends("")
            return asyncio.ensure_future(_once(settled, lambda: delete_room(room_name)))

        @functools.wraps(add_shutdown_callback)
        def add(callback: Callable[..., Any]) -> None:
            add_shutdown_callback(callback)
            callback_added(callback)

        @functools.wraps(self.disconnect)
        async def disconnect(**kwargs: Any) -> None:
            if room.isconnected():
                ends("")
                await settled()
            await self.disconnect(**kwargs)

        ctx.shutdown = shutdown  # type: ignore[method-assign]
        ctx.delete_room = delete  # type: ignore[method-assign]
        ctx.add_shutdown_callback = add  # type: ignore[method-assign]
        room.disconnect = disconnect  # type: ignore[method-assign]


async def _once(settled: Callable[[], Awaitable[None]], delete: Delete) -> api.DeleteRoomResponse:
    await settled()
    return await delete()
