"""Who may dispatch: a queue that the server keeps, and the agents that are on their way already.

LiveKit has no dispatch that fails if there is one. What it has is a list of dispatches for each
room, in the order of one clock: a dispatch of a name that no agent has is a place in a queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from livekit import api

CLAIM_PREFIX: Final = "lifecycle.claim:"
"""Begins the names of agents that nobody has."""

CLAIM_SECONDS: Final = 10.0
"""After that a claim counts no more. It is held for milliseconds, unless its caller died."""


@contextlib.asynccontextmanager
async def claim(
    lkapi: api.LiveKitAPI, room: str, agent_name: str
) -> AsyncGenerator[api.AgentDispatch, None]:
    """Take a place in the queue of those who want to dispatch an agent of that name."""
    made = await lkapi.agent_dispatch.create_dispatch(
        api.CreateAgentDispatchRequest(agent_name=CLAIM_PREFIX + agent_name, room=room)
    )
    try:
        yield made
    finally:
        # what can't be deleted is no harm: it runs out
        with contextlib.suppress(api.TwirpError):
            await lkapi.agent_dispatch.delete_dispatch(made.id, room)


def is_second(claim: api.AgentDispatch, listed: Iterable[api.AgentDispatch]) -> bool:
    """Whether an elder claim for the same agent is listed. Times are all of the server's clock."""
    mine = claim.state.created_at, claim.id
    oldest = claim.state.created_at - CLAIM_SECONDS * 1e9
    return any(
        other.agent_name == claim.agent_name
        and other.state.created_at > oldest
        and (other.state.created_at, other.id) < mine
        for other in listed
    )


def pending_seconds(
    listed: Iterable[api.AgentDispatch],
    agents: Iterable[api.ParticipantInfo],
    agent_name: str,
    now_ns: int,
    patience: float,
) -> float:
    """How long to wait yet for the agent of a dispatch that is listed; 0 or less for not at all.

    LiveKit does not say whether a dispatch has had its agent. One that came in after it, although
    it may have ended since, is taken for its agent.

    Args:
        listed: All dispatches of the room.
        agents: The agents of that name that are listed, ended ones too.
        agent_name: The name that the agent is dispatched by.
        now_ns: The server's clock, Unix time in ns, as for ``created_at``.
        patience: Seconds that a dispatch has to bring its agent.
    """
    joined_ms = max((one.joined_at_ms for one in agents), default=0)
    created = [
        one.state.created_at
        for one in listed
        if one.agent_name == agent_name and one.state.created_at // 1_000_000 > joined_ms
    ]
    return patience - (now_ns - max(created)) / 1e9 if created else 0.0
