"""The attributes on the wire, version 1: their names, their values, and both directions.

This is the only module that knows how a status is written as participant attributes. It does no
I/O and imports nothing of LiveKit, so that a reader in any process can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

PREFIX: Final = "lifecycle."
"""Every key of ours starts with it. Apps must not use it for attributes of their own."""

KEY_VERSION: Final = "lifecycle.version"
KEY_JOB: Final = "lifecycle.job"
KEY_PREVIOUS: Final = "lifecycle.previous"
KEY_STATE: Final = "lifecycle.state"
KEY_DEADLINE: Final = "lifecycle.deadline"
KEY_WINDOW: Final = "lifecycle.window"
KEY_DRAIN: Final = "lifecycle.drain"
KEY_DRAIN_WINDOW: Final = "lifecycle.drain_window"
KEY_STALLED: Final = "lifecycle.stalled"
KEY_EXIT: Final = "lifecycle.exit"
KEY_REASON: Final = "lifecycle.reason"
KEY_DETAIL: Final = "lifecycle.detail"
KEY_NEXT: Final = "lifecycle.next"

VERSION: Final = "1"
MAX_DETAIL_BYTES: Final = 128
"""Longest ``detail`` in bytes of UTF-8."""

_MAX_DIGITS: Final = 15
"""Longest number accepted from the wire: whatever has 15 digits is exact in JavaScript too."""


class _Word(str, Enum):
    """A word of the contract; prints as itself on every Python (3.11 changed ``Enum.__str__``)."""

    def __str__(self) -> str:
        return str(self.value)


class State(_Word):
    """What the agent is doing for its user."""

    STARTING = "starting"
    ACTIVE = "active"
    WAITING = "waiting"
    CLOSING = "closing"
    CLOSED = "closed"


class Exit(_Word):
    """Whether an ending was meant."""

    INTENTIONAL = "intentional"
    CRASH = "crash"


class Next(_Word):
    """What a client should do once the agent has gone."""

    END = "end"
    WAIT = "wait"
    REJOIN = "rejoin"


class Reason(_Word):
    """Why an agent left. `INTENTIONAL_REASONS` says which of them are meant."""

    COMPLETED = "completed"
    CLOSE_ON_DISCONNECT = "close_on_disconnect"
    TIMEOUT = "timeout"
    DRAIN = "drain"
    HANDOFF = "handoff"
    REPLACED = "replaced"
    REMOVED = "removed"
    ROOM_CLOSED = "room_closed"
    SERVER_SHUTDOWN = "server_shutdown"
    EXCEPTION = "exception"
    SESSION_ERROR = "session_error"
    KILLED = "killed"
    EXITED = "exited"
    WORKER_LOST = "worker_lost"
    CONNECTION_LOST = "connection_lost"
    UNKNOWN = "unknown"


INTENTIONAL_REASONS: Final = frozenset(
    {
        Reason.COMPLETED,
        Reason.CLOSE_ON_DISCONNECT,
        Reason.TIMEOUT,
        Reason.DRAIN,
        Reason.HANDOFF,
        Reason.REPLACED,
        Reason.REMOVED,
        Reason.ROOM_CLOSED,
        Reason.SERVER_SHUTDOWN,
    }
)
"""A closed list: what is not known to be intended is a crash."""


@dataclass(frozen=True, kw_only=True)
class AgentExit:
    """How an agent ended, in the contract's words.

    ``reason`` and ``next`` are plain strings, since a reader may meet words of a later version.

    Attributes:
        exit: ``intentional`` or ``crash``.
        reason: A word of `Reason`.
        detail: A token or the app's own short text; empty where there is none.
        next: A word of `Next`.
    """

    exit: Exit
    reason: str
    detail: str = ""
    next: str = Next.END.value

    @property
    def intentional(self) -> bool:
        """Whether the ending was meant."""
        return self.exit is Exit.INTENTIONAL

    @property
    def has_free_text(self) -> bool:
        """Whether ``detail`` is the app's own text, and nobody knows what an app puts there."""
        return self.reason in (Reason.COMPLETED, Reason.HANDOFF)


@dataclass(frozen=True, kw_only=True)
class ExitRecord(AgentExit):
    """An ending and whose it was: what hooks, logs, metrics and spans are given.

    Attributes:
        job_id: LiveKit's id of the job that ended.
        room: Name of its room.
        agent_name: The name it was dispatched by; empty for automatic dispatch.
        identity: The agent's participant identity.
        at: When it was decided, Unix time in seconds.
        published: Whether the exit was written onto the participant, where clients see it.
    """

    job_id: str
    room: str
    agent_name: str
    identity: str
    at: float
    published: bool


@dataclass(frozen=True, kw_only=True)
class AgentStatus:
    """What an agent's attributes say.

    Attributes:
        managed: Whether the agent runs under this contract at all. Where it does not, everything
            else is unset and its leave means nothing.
        version: The contract's version the agent speaks.
        job: LiveKit's job id; it tells two instances of one identity apart.
        previous: Job id of the instance that this one takes over from.
        state: What the agent does now.
        deadline_ms: When the present state runs out, Unix time in ms.
        window_ms: The same in ms from the moment of writing, for clients with a wrong clock.
        drain_ms: The agent will be gone by then, Unix time in ms: its worker was told to stop.
        drain_window_ms: The same in ms from the moment of writing.
        stalled_ms: Since when the agent's event loop does not answer, Unix time in ms.
        exit: How it ended, once that is decided.
    """

    managed: bool
    version: str = ""
    job: str = ""
    previous: str = ""
    state: State = State.ACTIVE
    deadline_ms: int | None = None
    window_ms: int | None = None
    drain_ms: int | None = None
    drain_window_ms: int | None = None
    stalled_ms: int | None = None
    exit: AgentExit | None = None


UNMANAGED: Final = AgentStatus(managed=False)


def clip_detail(text: str) -> str:
    """Return ``text`` fit for the wire: one line, at most 128 bytes of UTF-8, no character cut.

    Args:
        text: Any text, also one with control characters or lone surrogates, which become spaces
            and question marks.
    """
    # nothing beyond the first few hundred characters can survive, so don't walk 10 MB of text
    head = text[: MAX_DETAIL_BYTES * 4]
    line = "".join(" " if c < " " or "\x7f" <= c <= "\x9f" else c for c in head)
    return _cut(line.strip()).rstrip()


def will_attributes(job_id: str, previous: str = "") -> dict[str, str]:
    """The last will: an agent that carries it and leaves without an exit crashed."""
    attributes = {KEY_VERSION: VERSION, KEY_JOB: job_id, KEY_STATE: State.STARTING.value}
    if previous:
        attributes[KEY_PREVIOUS] = previous
    return attributes


def state_attributes(
    state: State, deadline_ms: int | None = None, window_ms: int | None = None
) -> dict[str, str]:
    """A change of state. An empty value deletes its key, as LiveKit has it."""
    return {
        KEY_STATE: state.value,
        KEY_DEADLINE: _number(deadline_ms),
        KEY_WINDOW: _number(window_ms),
    }


def exit_attributes(exit_: AgentExit, state: State = State.CLOSING) -> dict[str, str]:
    """An ending, in one write with the state that goes with it."""
    return {
        **state_attributes(state),
        KEY_EXIT: exit_.exit.value,
        KEY_REASON: str(exit_.reason),
        KEY_DETAIL: clip_detail(exit_.detail),
        KEY_NEXT: str(exit_.next),
    }


def drain_attributes(deadline_ms: int, window_ms: int) -> dict[str, str]:
    """The notice that the agent's worker has been told to stop."""
    return {KEY_DRAIN: _number(deadline_ms), KEY_DRAIN_WINDOW: _number(window_ms)}


def stalled_attributes(since_ms: int | None) -> dict[str, str]:
    """Since when the agent's event loop does not answer; None once it does again."""
    return {KEY_STALLED: _number(since_ms)}


def encode(status: AgentStatus) -> dict[str, str]:
    """Return all attributes that say ``status``. ``parse(encode(x)) == x``.

    Args:
        status: What to say. An unmanaged agent says nothing.
    """
    if not status.managed:
        return {}
    attributes = {
        **will_attributes(status.job, status.previous),
        **state_attributes(status.state, status.deadline_ms, status.window_ms),
        KEY_DRAIN: _number(status.drain_ms),
        KEY_DRAIN_WINDOW: _number(status.drain_window_ms),
        KEY_STALLED: _number(status.stalled_ms),
        KEY_VERSION: status.version,
    }
    if status.exit is not None:
        attributes |= exit_attributes(status.exit)
        attributes |= state_attributes(status.state, status.deadline_ms, status.window_ms)
    return {key: value for key, value in attributes.items() if value}


def parse(attributes: Mapping[str, str]) -> AgentStatus:
    """Return what a participant's attributes say. Never raises.

    What a later version may add is accepted: an unknown reason counts by its ``exit``, an unknown
    ``exit`` as a crash, an unknown state as ``active``, a higher version by the same rules.

    Args:
        attributes: All attributes of the participant, other people's too.
    """
    version = _text(attributes, KEY_VERSION)
    if not version:
        return UNMANAGED
    return AgentStatus(
        managed=True,
        version=version,
        job=_text(attributes, KEY_JOB),
        previous=_text(attributes, KEY_PREVIOUS),
        state=_state(_text(attributes, KEY_STATE)),
        deadline_ms=_integer(attributes, KEY_DEADLINE),
        window_ms=_integer(attributes, KEY_WINDOW),
        drain_ms=_integer(attributes, KEY_DRAIN),
        drain_window_ms=_integer(attributes, KEY_DRAIN_WINDOW),
        stalled_ms=_integer(attributes, KEY_STALLED),
        exit=_exit(attributes),
    )


def _exit(attributes: Mapping[str, str]) -> AgentExit | None:
    word = _text(attributes, KEY_EXIT)
    if not word:
        return None
    exit_ = Exit.INTENTIONAL if word == Exit.INTENTIONAL.value else Exit.CRASH
    default = Next.END if exit_ is Exit.INTENTIONAL else Next.REJOIN
    return AgentExit(
        exit=exit_,
        reason=_text(attributes, KEY_REASON) or Reason.UNKNOWN.value,
        detail=_cut(_text(attributes, KEY_DETAIL)),
        next=_text(attributes, KEY_NEXT) or default.value,
    )


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:MAX_DETAIL_BYTES].decode("utf-8", "ignore")


def _state(word: str) -> State:
    try:
        return State(word)
    except ValueError:
        return State.ACTIVE


def _text(attributes: Mapping[str, str], key: str) -> str:
    # a reader may be fed by JSON that somebody else made: what is no string says nothing
    value: object = attributes.get(key, "")
    return value if isinstance(value, str) else ""


def _integer(attributes: Mapping[str, str], key: str) -> int | None:
    text = _text(attributes, key)
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text)
    return None


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
