"""The participant of a job, written to by the worker where the job can't, and put out if dead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from livekit import api
from livekit.agents.job import RunningJobInfo

from ._log import PUBLISH_FAILED, log
from .contract import KEY_JOB, AgentStatus, parse

T = TypeVar("T")


class Coroner:
    """Speaks for jobs by the server API. Each call is bounded and never raises.

    Args:
        lkapi: A connection to the server; None: nothing can be said.
        timeout: Longest wait for one call, in seconds.
    """

    def __init__(self, lkapi: api.LiveKitAPI | None, timeout: float) -> None:
        self._api = lkapi
        self._timeout = timeout

    async def write(self, info: RunningJobInfo, attributes: dict[str, str]) -> AgentStatus | None:
        """Write onto the participant of a job, unless that has ended.

        Returns:
            What it said before; None where it is not in the room, is another job's, or can't be
            written to.
        """
        if self._api is None:
            return None
        return await self.bounded(info, self._write(self._api, info, attributes))

    async def put_out(self, info: RunningJobInfo) -> None:
        """Remove the participant of a dead job, which LiveKit would list for some 20 s more."""
        if self._api is not None:
            await self.bounded(info, self._put_out(self._api, info))

    async def bounded(self, info: RunningJobInfo, call: Awaitable[T]) -> T | None:
        """The result of a call about a job; None, and one warning, where it fails."""
        try:
            return await asyncio.wait_for(call, self._timeout)
        except asyncio.TimeoutError:
            log.warning(PUBLISH_FAILED, job_id=info.job.id, error="timeout")
        except Exception as error:  # noqa: BLE001 - whatever the network raises: one warning
            log.warning(PUBLISH_FAILED, job_id=info.job.id, error=type(error).__name__)
        return None

    async def _status(self, lkapi: api.LiveKitAPI, info: RunningJobInfo) -> AgentStatus | None:
        try:
            participant = await lkapi.room.get_participant(_who(info))
        except api.TwirpError as error:
            if error.code == api.TwirpErrorCode.NOT_FOUND:
                return None
            raise
        status = parse(participant.attributes)
        return status if status.job == info.job.id else None

    async def _write(
        self, lkapi: api.LiveKitAPI, info: RunningJobInfo, attributes: dict[str, str]
    ) -> AgentStatus | None:
        before = await self._status(lkapi, info)
        if before is None or before.exit is not None:
            return before
        room, identity = info.job.room.name, info.accept_arguments.identity
        update = api.UpdateParticipantRequest(room=room, identity=identity, attributes=attributes)
        after = await lkapi.room.update_participant(update)
        if after.attributes.get(KEY_JOB) != info.job.id:
            # a successor took over the identity in these two milliseconds: take it back
            undo = dict.fromkeys(attributes, "")
            await lkapi.room.update_participant(
                api.UpdateParticipantRequest(room=room, identity=identity, attributes=undo)
            )
            return None
        return before

    async def _put_out(self, lkapi: api.LiveKitAPI, info: RunningJobInfo) -> None:
        if await self._status(lkapi, info) is not None:
            await lkapi.room.remove_participant(_who(info))


def _who(info: RunningJobInfo) -> api.RoomParticipantIdentity:
    return api.RoomParticipantIdentity(
        room=info.job.room.name, identity=info.accept_arguments.identity
    )
