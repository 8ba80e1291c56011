"""For those who read: an agent's attributes, its leave, and what the two together mean.

Three ways in: `parse` for a participant's attributes, `watch` to follow the agents of a room, and
`from_webhook` for a back end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from livekit.protocol.webhook import WebhookEvent

from ._watch import Agent, AgentWatcher, Room, is_agent, reason_word
from .contract import AgentExit, parse
from .reading import AgentEnd, decide_end, milliseconds_left

__all__ = [
    "Agent",
    "AgentEnd",
    "AgentWatcher",
    "decide_end",
    "from_webhook",
    "milliseconds_left",
    "parse",
    "watch",
]

SETTLE_SECONDS: Final = 4.0
"""LiveKit tells joins of participants without a track up to 3 s late, and we allow for the way."""

_LEFT: Final = frozenset({"participant_left", "participant_connection_aborted"})


def watch(
    room: Room,
    *,
    settle: float = SETTLE_SECONDS,
    wall_clock: Callable[[], float] = time.time,
) -> AgentWatcher:
    """Follow every agent of ``room``, an `rtc.Room`, connected already or not yet.

    It knows what the room knows: LiveKit's SDK (1.1.21) may lose the leave of one who goes in the
    middle of a full reconnect of ours, and go on listing them. `agent_status` asks the server.

    Args:
        room: The room, in whose event loop this is called.
        settle: Seconds to wait before a leave without an exit is judged: an agent that reconnects,
            or a reader that does, looks the same for that long.
        wall_clock: Unix time in seconds, for deadlines that were written before we came.
    """
    return AgentWatcher(room, settle, wall_clock)


def from_webhook(event: WebhookEvent) -> AgentExit | None:
    """How an agent ended, from a webhook.

    One event can't tell whether the agent comes back: after ``crash``/``unknown`` a
    ``participant_joined`` with the same ``lifecycle.job`` says that it was a reconnect.

    Args:
        event: What `livekit.api.WebhookReceiver` returned, which has verified its sender.

    Returns:
        None for every event that is not the leave of an agent under this contract.
    """
    participant = event.participant
    if event.event not in _LEFT or not is_agent(participant.kind, participant.attributes):
        return None
    reason = reason_word(participant.disconnect_reason)
    return decide_end(parse(participant.attributes), reason, cut_off=False).exit
