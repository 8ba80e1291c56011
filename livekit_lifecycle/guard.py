"""Of two agents of one name in a room the later one makes way, if the earlier one lives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Protocol

from livekit import rtc

from ._ping import METHOD, UNANSWERED
from ._watch import is_agent
from .contract import State, parse
from .dispatch import ANSWER_WITHIN, name_of

_LIVING: Final = frozenset({State.STARTING, State.ACTIVE, State.WAITING})


class Participant(Protocol):
    """As much of a participant, local or remote, as is needed."""

    @property
    def identity(self) -> str: ...
    @property
    def kind(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    @property
    def joined_at(self) -> datetime | None: ...


def elders(me: Participant, others: Iterable[Participant], agent_name: str) -> list[str]:
    """Identities of the agents to which this one has to make way, if they live. Pure.

    Those are agents of the same name that came before and say that they serve. One with an exit,
    one that stalls, one that does not run under this library, and the one that this agent takes
    over from is no ground to leave. Of two that came in the same millisecond the greater job id
    leaves, so that it is never both.

    Args:
        me: The agent itself.
        others: Everyone else in the room.
        agent_name: The name that it was dispatched by; empty for automatic dispatch.
    """
    mine = _place(me)
    if mine is None:
        return []
    return [
        one.identity
        for one in others
        if is_agent(one.kind, one.attributes)
        and name_of(one.attributes) == agent_name
        and _serves(one, besides=parse(me.attributes).previous)
        and (place := _place(one)) is not None
        and place < mine
    ]


async def has_to_leave(room: rtc.Room, agent_name: str) -> bool:
    """Whether an agent of the same name was there before, and lives. Bounded, never raises.

    A killed agent is listed for some 20 s with all its attributes, so each is asked.

    Args:
        room: The agent's own room, connected.
        agent_name: The name that it was dispatched by.
    """
    me = room.local_participant
    found = elders(me, room.remote_participants.values(), agent_name)
    return any(await asyncio.gather(*(_lives(me, identity) for identity in found)))


async def _lives(me: rtc.LocalParticipant, identity: str) -> bool:
    ask = me.perform_rpc(
        destination_identity=identity, method=METHOD, payload="", response_timeout=ANSWER_WITHIN
    )
    try:
        await asyncio.wait_for(ask, ANSWER_WITHIN)
    except rtc.RpcError as error:
        return error.code not in UNANSWERED
    except Exception:  # noqa: BLE001 - no answer, for whatever reason, is no ground to leave
        return False
    return True


def _serves(one: Participant, *, besides: str) -> bool:
    status = parse(one.attributes)
    unhindered = status.exit is None and status.stalled_ms is None
    living = status.managed and unhindered and status.state in _LIVING
    return living and status.job != besides


def _place(one: Participant) -> tuple[datetime, str] | None:
    return (one.joined_at, parse(one.attributes).job) if one.joined_at is not None else None
