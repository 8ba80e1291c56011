"""Evidence to verdict: the one place that decides what an ending is called.

Whoever sees something happen (a session that closes, a room that is gone, a process that died)
describes it as one of the small facts below, in plain strings and numbers. `classify` names it,
and `supersedes` says which of two names for the same ending stands. Pure, total, no LiveKit.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Final, Literal

from .contract import INTENTIONAL_REASONS, AgentExit, Exit, Next, Reason, clip_detail

DEFAULT_SHUTDOWN_REASON: Final = "user requested"
"""What LiveKit calls a ``ctx.shutdown()`` to which the app gave no text; it counts as none."""


@dataclass(frozen=True)
class ShutdownCalled:
    """The app or a tool of its agent called ``ctx.shutdown(reason)``."""

    text: str = ""
    draining: bool = False


@dataclass(frozen=True)
class SessionClosed:
    """The agent session began to close.

    Attributes:
        cause: LiveKit's ``CloseReason``, such as ``participant_disconnected``.
        error: Type of the error it closed on, such as ``llm_error``; empty without one.
        user_left: LiveKit's disconnect reason of the linked user, in lower case.
        draining: Whether the worker had been told to stop.
    """

    cause: str
    error: str = ""
    user_left: str = ""
    draining: bool = False


@dataclass(frozen=True)
class UserGone:
    """Our own grace, or its absence, ended the session with its user.

    Attributes:
        reason: LiveKit's disconnect reason of the user, in lower case.
        said_bye: The user asked for the end.
    """

    reason: str = ""
    said_bye: bool = False


@dataclass(frozen=True)
class LimitReached:
    """A limit that was set beforehand ran out."""

    limit: Literal["grace", "max_duration", "idle", "no_show"]


@dataclass(frozen=True)
class EntrypointRaised:
    """The entrypoint raised; only the class's name is kept, its text may be private."""

    exception: str


@dataclass(frozen=True)
class RoomLeft:
    """The agent is out of the room, for LiveKit's disconnect reason in lower case."""

    reason: str


@dataclass(frozen=True)
class JobTerminated:
    """The server or an operator ended the job; nothing more is known."""


@dataclass(frozen=True)
class WorkerStopped:
    """The worker cut the job short."""

    how: Literal["drain_timeout", "shutdown"]


@dataclass(frozen=True)
class WorkerDied:
    """The worker's process is gone under a living job."""


@dataclass(frozen=True)
class Replaced:
    """Another instance of this agent serves the room.

    Attributes:
        by: One of the same name that was there before, or one that was sent in its place.
    """

    by: Literal["duplicate_agent", "successor"]


@dataclass(frozen=True)
class AppClaimed:
    """The app said so itself. It may claim these two and no others."""

    reason: Literal["completed", "handoff"]
    text: str = ""
    next: Literal["end", "wait", "rejoin"] = "end"


@dataclass(frozen=True)
class ProcessEnded:
    """A job's process ended with no goodbye.

    Attributes:
        exitcode: As `multiprocessing` has it: negative for a signal; None where there is none.
        killed: Whether the worker itself sent the kill.
        cause: Why the worker killed it, a detail of ``killed``; empty where it did not say.
    """

    exitcode: int | None
    killed: bool = False
    cause: str = ""


Evidence = (
    ShutdownCalled
    | SessionClosed
    | UserGone
    | LimitReached
    | EntrypointRaised
    | RoomLeft
    | JobTerminated
    | WorkerStopped
    | WorkerDied
    | Replaced
    | AppClaimed
    | ProcessEnded
)

_ROOM_LEFT: Final = {
    # the framework never leaves by itself without a cause that was told before: it was the app
    "client_initiated": (Reason.COMPLETED, ""),
    "duplicate_identity": (Reason.REPLACED, "duplicate_identity"),
    "participant_removed": (Reason.REMOVED, "participant_removed"),
    "room_deleted": (Reason.ROOM_CLOSED, "deleted"),
    "room_closed": (Reason.ROOM_CLOSED, "empty"),
    "server_shutdown": (Reason.SERVER_SHUTDOWN, ""),
}
_USER_LEFT: Final = {
    "user_rejected": "user_rejected",
    "participant_removed": "user_removed",
}
_SESSION_ERRORS: Final = {
    "llm_error": "llm",
    "stt_error": "stt",
    "tts_error": "tts",
    "realtime_model_error": "realtime",
}


def classify(evidence: Evidence) -> AgentExit:  # noqa: C901, PLR0911 - one arm for each kind of evidence
    """Name an ending.

    Args:
        evidence: What was seen.

    Returns:
        Exactly one verdict, whatever the evidence: what is not known to be intended is a crash.
    """
    if isinstance(evidence, ShutdownCalled):
        text = "" if evidence.text == DEFAULT_SHUTDOWN_REASON else evidence.text
        return _ended_by_app(text, draining=evidence.draining)
    if isinstance(evidence, SessionClosed):
        return _session_closed(evidence)
    if isinstance(evidence, UserGone):
        return _user_gone(evidence.reason, said_bye=evidence.said_bye)
    if isinstance(evidence, LimitReached):
        return _verdict(Reason.TIMEOUT, evidence.limit)
    if isinstance(evidence, EntrypointRaised):
        return _verdict(Reason.EXCEPTION, evidence.exception)
    if isinstance(evidence, RoomLeft):
        reason, detail = _ROOM_LEFT.get(evidence.reason, (Reason.CONNECTION_LOST, evidence.reason))
        return _verdict(reason, detail)
    if isinstance(evidence, JobTerminated):
        return _verdict(Reason.REMOVED, "job_terminated")
    if isinstance(evidence, WorkerStopped):
        return _verdict(Reason.DRAIN, evidence.how, Next.REJOIN)
    if isinstance(evidence, WorkerDied):
        return _verdict(Reason.WORKER_LOST)
    if isinstance(evidence, Replaced):
        return _verdict(Reason.REPLACED, evidence.by)
    if isinstance(evidence, AppClaimed):
        return _verdict(Reason(evidence.reason), evidence.text, Next(evidence.next))
    return _process_ended(evidence)


def with_successor(exit_: AgentExit) -> AgentExit:
    """The same ending, where a successor has been asked for."""
    return replace(exit_, next=Next.WAIT.value)


def supersedes(new: AgentExit, old: AgentExit) -> bool:
    """Whether ``new`` names the same ending better than ``old``, which is not written yet.

    A specific reason refines a general one, and an error beats the shutdown that came of it.
    Between equals the first one stands.
    """
    return _weight(new) > _weight(old)


def _weight(exit_: AgentExit) -> int:
    if exit_.exit is Exit.CRASH:
        return 2
    general = (exit_.reason == Reason.COMPLETED and not exit_.detail) or (
        exit_.reason == Reason.REMOVED and exit_.detail == "job_terminated"
    )
    return 0 if general else 1


def _session_closed(evidence: SessionClosed) -> AgentExit:
    if evidence.cause == "error" or evidence.error:
        return _verdict(Reason.SESSION_ERROR, _SESSION_ERRORS.get(evidence.error, "other"))
    if evidence.cause == "participant_disconnected":
        return _user_gone(evidence.user_left)
    if evidence.cause == "job_shutdown":
        return _verdict(Reason.REMOVED, "job_terminated")
    return _ended_by_app("", draining=evidence.draining)


def _user_gone(reason: str, *, said_bye: bool = False) -> AgentExit:
    if reason == "room_deleted":
        return _verdict(Reason.ROOM_CLOSED, "deleted")
    if reason == "server_shutdown":
        return _verdict(Reason.SERVER_SHUTDOWN)
    detail = "user_bye" if said_bye else _USER_LEFT.get(reason, "user_left")
    return _verdict(Reason.CLOSE_ON_DISCONNECT, detail)


def _ended_by_app(text: str, *, draining: bool) -> AgentExit:
    # an app that ends a call during a drain and says nothing of its own did it because of the
    # notice; one that gives its own text had a reason of its own
    if draining and not clip_detail(text):
        return _verdict(Reason.DRAIN, "wrapped_up")
    return _verdict(Reason.COMPLETED, text)


def _process_ended(evidence: ProcessEnded) -> AgentExit:
    if evidence.cause:
        return _verdict(Reason.KILLED, evidence.cause)
    if evidence.exitcode is not None and evidence.exitcode < 0:
        return _verdict(Reason.KILLED, _signal_name(-evidence.exitcode))
    if evidence.killed:
        return _verdict(Reason.KILLED, "SIGKILL")
    if evidence.exitcode is not None:
        return _verdict(Reason.EXITED, f"code:{evidence.exitcode}")
    return _verdict(Reason.UNKNOWN)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _verdict(reason: Reason, detail: str = "", next_: Next | None = None) -> AgentExit:
    if reason in INTENTIONAL_REASONS:
        exit_, default = Exit.INTENTIONAL, Next.END
    else:
        exit_, default = Exit.CRASH, Next.REJOIN
    if reason is Reason.REPLACED:
        default = Next.WAIT
    return AgentExit(
        exit=exit_,
        reason=reason.value,
        detail=clip_detail(detail),
        next=(next_ or default).value,
    )
