"""What a reader makes of a leave and of a deadline. Pure, no LiveKit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from .classify import RoomLeft, classify
from .contract import AgentExit, AgentStatus, Exit, Next, Reason

Outcome = Literal["intentional", "crash", "unclear", "unmanaged"]

ROOM_OVER: Final = frozenset({"room_deleted", "room_closed", "server_shutdown"})
"""Disconnect reasons that hold for everyone in the room."""

NO_RETURN: Final = frozenset({"participant_removed", "room_deleted", "room_closed"})
"""Disconnect reasons after which no client tries to come back."""

_MEANT: Final = ROOM_OVER | NO_RETURN | {"duplicate_identity"}


@dataclass(frozen=True, kw_only=True)
class AgentEnd:
    """How an agent's leave is to be read.

    Attributes:
        outcome: ``intentional`` or ``crash`` as in the contract; ``unclear`` where the reader was
            cut off itself and can't know; ``unmanaged`` where the agent promises nothing.
        exit: The contract's record; only there for the first two.
    """

    outcome: Outcome
    exit: AgentExit | None = None


def decide_end(status: AgentStatus, reason: str, *, cut_off: bool) -> AgentEnd:
    """Name the ending of an agent that has left.

    Args:
        status: What its attributes said last.
        reason: LiveKit's disconnect reason in lower case; empty where it is not known.
        cut_off: Whether the reader itself was disconnected around the time.
    """
    if not status.managed:
        return AgentEnd(outcome="unmanaged")
    if status.exit is not None:
        return end_from(status.exit)
    if cut_off:
        return AgentEnd(outcome="unclear")
    if reason in _MEANT:
        return end_from(classify(RoomLeft(reason)))
    return end_from(
        AgentExit(
            exit=Exit.CRASH,
            reason=Reason.UNKNOWN.value,
            detail=reason,
            next=Next.REJOIN.value,
        )
    )


def end_from(exit_: AgentExit) -> AgentEnd:
    """The ending that an exit tells, written or derived."""
    return AgentEnd(outcome="intentional" if exit_.intentional else "crash", exit=exit_)


def milliseconds_left(
    deadline: int | None, window: int | None, *, fresh: bool, now: int
) -> int | None:
    """How long a deadline is away when it is read.

    Args:
        deadline: Unix time in ms.
        window: The same in ms from the moment of writing.
        fresh: Whether it was written just now, so that ``window`` holds whatever the clock says.
        now: The reader's clock, Unix time in ms.

    Returns:
        ms, never below 0 and never above ``window``; None where nothing runs out.
    """
    if deadline is None:
        return None
    if window is None:
        return max(0, deadline - now)
    return window if fresh else min(max(0, deadline - now), window)
