"""Whether an agent that crashed is dispatched again, and that dispatch."""

from __future__ import annotations

import time

from livekit import api
from livekit.protocol.agent import Job, JobType

from ._log import NO_SUCCESSOR, SUCCESSOR_SENT, log
from .contract import parse
from .dispatch import is_user, judge, list_participants, see_to_agent
from .lineage import join_metadata, split_metadata
from .options import RestartPolicy

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


async def dispatch_successor(lkapi: api.LiveKitAPI, job: Job, metadata: str) -> None:
    """The same for a job that has no time to wait, since its worker is gone.

    Raises:
        TwirpError: The server refuses, or can't be asked.
    """
    await lkapi.agent_dispatch.create_dispatch(
        api.CreateAgentDispatchRequest(
            agent_name=job.agent_name, room=job.room.name, metadata=metadata
        )
    )
    log.info(SUCCESSOR_SENT, job_id=job.id, successor="", verdict="absent")
