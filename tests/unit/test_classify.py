"""Evidence to verdict: every row of the table of reasons."""

from __future__ import annotations

import signal

import pytest

from livekit_lifecycle.classify import (
    AppClaimed,
    EntrypointRaised,
    Evidence,
    JobTerminated,
    LimitReached,
    ProcessEnded,
    Replaced,
    RoomLeft,
    SessionClosed,
    ShutdownCalled,
    UserGone,
    WorkerDied,
    WorkerStopped,
    classify,
    supersedes,
)
from livekit_lifecycle.contract import INTENTIONAL_REASONS, Exit, Reason

LEFT = "participant_disconnected"

ROWS: list[tuple[Evidence, str, str, str, str]] = [
    (ShutdownCalled("done"), "intentional", "completed", "done", "end"),
    (ShutdownCalled(""), "intentional", "completed", "", "end"),
    (ShutdownCalled("user requested"), "intentional", "completed", "", "end"),
    (ShutdownCalled("", draining=True), "intentional", "drain", "wrapped_up", "end"),
    (ShutdownCalled("user requested", draining=True), "intentional", "drain", "wrapped_up", "end"),
    (ShutdownCalled("sold out", draining=True), "intentional", "completed", "sold out", "end"),
    (SessionClosed("user_initiated"), "intentional", "completed", "", "end"),
    (SessionClosed("task_completed"), "intentional", "completed", "", "end"),
    (SessionClosed("of_a_later_livekit"), "intentional", "completed", "", "end"),
    (SessionClosed("user_initiated", draining=True), "intentional", "drain", "wrapped_up", "end"),
    (SessionClosed("job_shutdown"), "intentional", "removed", "job_terminated", "end"),
    (
        SessionClosed(LEFT, user_left="client_initiated"),
        "intentional",
        "close_on_disconnect",
        "user_left",
        "end",
    ),
    (
        SessionClosed(LEFT, user_left="user_rejected"),
        "intentional",
        "close_on_disconnect",
        "user_rejected",
        "end",
    ),
    (
        SessionClosed(LEFT, user_left="participant_removed"),
        "intentional",
        "close_on_disconnect",
        "user_removed",
        "end",
    ),
    (
        SessionClosed(LEFT, user_left="client_initiated", draining=True),
        "intentional",
        "close_on_disconnect",
        "user_left",
        "end",
    ),
    (SessionClosed(LEFT, user_left="room_deleted"), "intentional", "room_closed", "deleted", "end"),
    (SessionClosed("error", error="llm_error"), "crash", "session_error", "llm", "rejoin"),
    (SessionClosed("error", error="stt_error"), "crash", "session_error", "stt", "rejoin"),
    (SessionClosed("error", error="tts_error"), "crash", "session_error", "tts", "rejoin"),
    (
        SessionClosed("error", error="realtime_model_error"),
        "crash",
        "session_error",
        "realtime",
        "rejoin",
    ),
    (SessionClosed("error"), "crash", "session_error", "other", "rejoin"),
    (UserGone("client_initiated"), "intentional", "close_on_disconnect", "user_left", "end"),
    (UserGone("sip_trunk_failure"), "intentional", "close_on_disconnect", "user_left", "end"),
    (UserGone("user_rejected"), "intentional", "close_on_disconnect", "user_rejected", "end"),
    (UserGone("participant_removed"), "intentional", "close_on_disconnect", "user_removed", "end"),
    (UserGone("room_deleted"), "intentional", "room_closed", "deleted", "end"),
    (UserGone("server_shutdown"), "intentional", "server_shutdown", "", "end"),
    (UserGone(said_bye=True), "intentional", "close_on_disconnect", "user_bye", "end"),
    (LimitReached("grace"), "intentional", "timeout", "grace", "end"),
    (LimitReached("max_duration"), "intentional", "timeout", "max_duration", "end"),
    (LimitReached("idle"), "intentional", "timeout", "idle", "end"),
    (LimitReached("no_show"), "intentional", "timeout", "no_show", "end"),
    (EntrypointRaised("ValueError"), "crash", "exception", "ValueError", "rejoin"),
    (RoomLeft("client_initiated"), "intentional", "completed", "", "end"),
    (RoomLeft("duplicate_identity"), "intentional", "replaced", "duplicate_identity", "wait"),
    (RoomLeft("participant_removed"), "intentional", "removed", "participant_removed", "end"),
    (RoomLeft("room_deleted"), "intentional", "room_closed", "deleted", "end"),
    (RoomLeft("room_closed"), "intentional", "room_closed", "empty", "end"),
    (RoomLeft("server_shutdown"), "intentional", "server_shutdown", "", "end"),
    (RoomLeft("signal_close"), "crash", "connection_lost", "signal_close", "rejoin"),
    (RoomLeft("unknown_reason"), "crash", "connection_lost", "unknown_reason", "rejoin"),
    (RoomLeft("connection_timeout"), "crash", "connection_lost", "connection_timeout", "rejoin"),
    (JobTerminated(), "intentional", "removed", "job_terminated", "end"),
    (WorkerStopped("drain_timeout"), "intentional", "drain", "drain_timeout", "rejoin"),
    (WorkerStopped("shutdown"), "intentional", "drain", "shutdown", "rejoin"),
    (WorkerDied(), "crash", "worker_lost", "", "rejoin"),
    (Replaced("duplicate_agent"), "intentional", "replaced", "duplicate_agent", "wait"),
    (AppClaimed("completed", "all set"), "intentional", "completed", "all set", "end"),
    (AppClaimed("handoff", "to Ann", "wait"), "intentional", "handoff", "to Ann", "wait"),
    (ProcessEnded(-9), "crash", "killed", "SIGKILL", "rejoin"),
    (ProcessEnded(-11), "crash", "killed", "SIGSEGV", "rejoin"),
    (ProcessEnded(-4), "crash", "killed", "SIGILL", "rejoin"),
    (ProcessEnded(-200), "crash", "killed", "SIG200", "rejoin"),
    (ProcessEnded(3), "crash", "exited", "code:3", "rejoin"),
    (ProcessEnded(0), "crash", "exited", "code:0", "rejoin"),
    (
        ProcessEnded(-9, killed=True, cause="memory_limit"),
        "crash",
        "killed",
        "memory_limit",
        "rejoin",
    ),
    (
        ProcessEnded(-signal.SIGUSR1, cause="unresponsive"),
        "crash",
        "killed",
        "unresponsive",
        "rejoin",
    ),
    (ProcessEnded(None, killed=True), "crash", "killed", "SIGKILL", "rejoin"),
    (ProcessEnded(None), "crash", "unknown", "", "rejoin"),
]


@pytest.mark.parametrize(("evidence", "exit_", "reason", "detail", "next_"), ROWS)
def test_names(evidence: Evidence, exit_: str, reason: str, detail: str, next_: str) -> None:
    verdict = classify(evidence)
    assert (verdict.exit, verdict.reason, verdict.detail, verdict.next) == (
        exit_,
        reason,
        detail,
        next_,
    )


def test_every_reason_has_a_row() -> None:
    assert {row[2] for row in ROWS} == {reason.value for reason in Reason}


def test_intentional_is_a_closed_list() -> None:
    for evidence, *_ in ROWS:
        verdict = classify(evidence)
        listed = verdict.reason in {reason.value for reason in INTENTIONAL_REASONS}
        assert (verdict.exit is Exit.INTENTIONAL) is listed


def test_an_error_beats_the_shutdown_that_came_of_it() -> None:
    shutdown = classify(ShutdownCalled("llm is down"))
    error = classify(SessionClosed("error", error="llm_error"))
    assert supersedes(error, shutdown)
    assert not supersedes(shutdown, error)


@pytest.mark.parametrize("general", [ShutdownCalled(), JobTerminated(), SessionClosed("x")])
def test_a_specific_reason_refines_a_general_one(general: Evidence) -> None:
    specific = classify(RoomLeft("room_deleted"))
    assert supersedes(specific, classify(general))
    assert not supersedes(classify(general), specific)


def test_between_equals_the_first_stands() -> None:
    first, second = classify(ShutdownCalled("a")), classify(ShutdownCalled("b"))
    assert not supersedes(second, first)
    assert not supersedes(classify(EntrypointRaised("A")), classify(EntrypointRaised("B")))
