"""What one job says of itself: its attributes, by whichever way is open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from livekit import api
from livekit.agents import JobContext

from ._publish import Publisher
from .contract import parse, stalled_attributes, will_attributes


class Voice:
    """Writes the attributes of a job's own participant.

    Args:
        ctx: The job's. Nobody sees the attributes of a hidden agent: for one nothing is written.
        timeout: Longest wait for one write, in seconds.
    """

    def __init__(self, ctx: JobContext, timeout: float) -> None:
        self._ctx = ctx
        self._room = ctx.room
        self._timeout = timeout
        self._silent = not ctx.is_fake_job() and _is_hidden(ctx)
        second_way = self._server_write if has_credentials() else None
        self._publisher = Publisher(ctx.room, timeout=timeout, server_write=second_way)

    def post(self, attributes: Mapping[str, str]) -> None:
        """Write soon and don't wait."""
        if not self._silent:
            self._publisher.post(self._armed(attributes))

    async def publish(self, attributes: Mapping[str, str]) -> bool:
        """Write now; says whether the server has it."""
        return not self._silent and await self._publisher.publish(self._armed(attributes))

    def expect_no_echo(self) -> None:
        """Nobody reads the room's events any more: take the server's answer for it."""
        self._publisher.expect_no_echo()

    async def tell_stalled(self, since_ms: int) -> None:
        """Write from another thread, in a loop of its own, that the job's own loop hangs.

        Args:
            since_ms: Unix time in ms.
        """
        if not self._silent and has_credentials() and self._room.isconnected():
            async with api.LiveKitAPI() as lkapi:
                write = lkapi.room.update_participant(self._update(stalled_attributes(since_ms)))
                await asyncio.wait_for(write, self._timeout)

    def _armed(self, attributes: Mapping[str, str]) -> Mapping[str, str]:
        """Without a worker half nobody armed the agent: then the first write does."""
        room = self._room
        if room.isconnected() and parse(room.local_participant.attributes).managed:
            return attributes
        return {**will_attributes(self._ctx.job.id), **attributes}

    async def _server_write(self, attributes: Mapping[str, str]) -> None:
        await self._ctx.api.room.update_participant(self._update(attributes))

    def _update(self, attributes: Mapping[str, str]) -> api.UpdateParticipantRequest:
        return api.UpdateParticipantRequest(
            room=self._ctx.job.room.name,
            identity=self._ctx.local_participant_identity,
            attributes=dict(attributes),
        )


def has_credentials() -> bool:
    """Whether the environment has what the server API needs."""
    return all(os.environ.get(f"LIVEKIT_{name}") for name in ("URL", "API_KEY", "API_SECRET"))


def _is_hidden(ctx: JobContext) -> bool:
    claims = ctx.token_claims()
    return bool(claims.video and claims.video.hidden)
