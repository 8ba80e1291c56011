"""Whether an agent that crashed is dispatched again, and that dispatch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from livekit import api
from livekit.protocol.agent import Job, JobType

from ._log import NO_SUCCESSOR, SUCCESSOR_SENT, log
from .contract import parse
from .dispatch import is_user, judge, list_participants, see_to_agent
from .lineage import join_metadata, split_metadata
from .options import RestartPolicy

T = TypeVar("T")

_SOMEBODY_IS_THERE = frozenset({"serving", "starting", "unmanaged"})


async def plan_successor(
    lkapi: api.LiveKitAPI, job: Job, metadata: str, policy: RestartPolicy
) -> str | None:
    """Whether a successor is to be sent, and with which metadata.

    Args:
        lkapi: A connection to the server.
        job: The job that crashed.
        metadata: Its dispatch's, with what was handed down to it.
        policy: How many are too many.

    Returns:
        The metadata; None where none is to be sent, and the log says why.

    Raises:
        TwirpError: The server refuses, or can't be asked.
    """
    own, lineage = split_metadata(metadata)
    handed_down = lineage.after_crash(policy, job.id, time.time())
    people = await list_participants(lkapi, job.room.name)
    others = [one for one in people if parse(one.attributes).job != job.id]
    why = ""
    if not job.agent_name or job.type != JobType.JT_ROOM:
        why = "only agents that are dispatched by name to a room can be dispatched again"
    elif not any(map(is_user, others)):
        why = "no user is in the room"
    elif judge(others, job.agent_name).verdict in _SOMEBODY_IS_THERE:
        why = "another agent of that name is in the room"
    elif handed_down is None:
        why = f"it crashed more than {policy.max_restarts} times in {policy.within:g} s"
    if why or handed_down is None:
        log.warning(NO_SUCCESSOR, job_id=job.id, agent_name=job.agent_name, why=why)
        return None
    return join_metadata(own, handed_down)


async def send_successor(lkapi: api.LiveKitAPI, job: Job, metadata: str) -> None:
    """Dispatch a successor, once more if that brings nobody, and wait until it serves. Bounded.

    Args:
        lkapi: A connection to the server.
        job: The job that crashed.
        metadata: Of `plan_successor`.

    Raises:
        TwirpError: The server refuses, or can't be asked.
    """
    status = await see_to_agent(
        lkapi, job.room.name, job.agent_name, metadata=metadata, over=job.dispatch_id
    )
    if status.verdict in _SOMEBODY_IS_THERE:
        log.info(SUCCESSOR_SENT, job_id=job.id, successor=status.job, verdict=status.verdict)
    else:
        log.warning(NO_SUCCESSOR, job_id=job.id, agent_name=job.agent_name, why=status.why)


class Succession:
    """The same for a job that can still tell of its crash itself. Never raises.

    Args:
        lkapi: A connection to the server.
        job: The job.
        metadata: Its dispatch's, with what was handed down to it.
        policy: How many are too many.
    """

    def __init__(
        self, lkapi: api.LiveKitAPI, job: Job, metadata: str, policy: RestartPolicy
    ) -> None:
        self._api = lkapi
        self._job = job
        self._metadata = metadata
        self._policy = policy
        self._planned: str | None = None

    async def plan(self, seconds: float) -> bool:
        """Whether a successor is to be sent, found out in so many seconds or not at all."""
        plan = plan_successor(self._api, self._job, self._metadata, self._policy)
        self._planned = await self._bounded(plan, seconds)
        return self._planned is not None

    async def dispatch(self, seconds: float) -> None:
        """Ask for the one that was planned, once: there is no worker to see to it."""
        if self._planned is None:
            return
        request = api.CreateAgentDispatchRequest(
            agent_name=self._job.agent_name, room=self._job.room.name, metadata=self._planned
        )
        dispatching = self._api.agent_dispatch.create_dispatch(request)
        if await self._bounded(dispatching, seconds) is not None:
            log.info(SUCCESSOR_SENT, job_id=self._job.id, successor="", verdict="absent")

    async def _bounded(self, call: Awaitable[T], seconds: float) -> T | None:
        try:
            return await asyncio.wait_for(call, seconds)
        except Exception as error:  # noqa: BLE001 - whatever the network raises: none is promised
            log.warning(NO_SUCCESSOR, job_id=self._job.id, why=type(error).__name__)
            return None
