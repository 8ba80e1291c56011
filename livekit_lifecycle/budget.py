"""The sums of times, done at start: what can't fit is refused, what is tight is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .options import LifecycleOptions

ENTRYPOINT_SECONDS: Final = 15.0
"""LiveKit's bound for an entrypoint that still waits when its job ends."""
SESSION_CLOSE_SECONDS: Final = 60.0
"""LiveKit's bound for the close of a session when its job ends."""


@dataclass(frozen=True, kw_only=True)
class ServerTimes:
    """Times of the server that ours have to fit into, in seconds.

    Attributes:
        drain_timeout: How long a drain lasts at most; 0 for no limit.
        shutdown_process_timeout: How long a job has to end once its worker closes.
        session_end_timeout: How long ``on_session_end`` may run.
        given: Names of those that the app has set itself. Nothing is said about LiveKit's defaults
            among themselves.
    """

    drain_timeout: float
    shutdown_process_timeout: float
    session_end_timeout: float
    given: frozenset[str] = frozenset()


def check_budget(options: LifecycleOptions, times: ServerTimes) -> list[str]:
    """Hold the lifecycle's times against the server's.

    Args:
        options: Valid in themselves.
        times: Of the server.

    Returns:
        What works but is tight: a sentence with the numbers for each.

    Raises:
        ValueError: What can't work.
    """
    end_before, window = options.drain.end_before, options.drain_seconds(times.drain_timeout)
    if end_before is not None and 0 < window <= end_before:
        msg = (
            f"end_before is {end_before:g} s and a drain lasts {window:g} s: no call would go on "
            "at all; make end_before shorter, or the drain longer"
        )
        raise ValueError(msg)
    return list(_tight(options, times, window))


def _tight(options: LifecycleOptions, times: ServerTimes, window: float) -> Iterator[str]:
    kill = times.shutdown_process_timeout
    if "drain_timeout" in times.given and 0 < window < times.drain_timeout:
        yield (
            f"drain_timeout is {times.drain_timeout:g} s, but kill_grace "
            f"{options.drain.kill_grace or 0:g} s leaves a drain {window:g} s"
        )
    if kill < options.cut_seconds:
        yield (
            f"shutdown_process_timeout is {kill:g} s: a job that is cut off may be killed before "
            f"everybody is told, which takes up to {options.cut_seconds:g} s"
        )
    if "session_end_timeout" in times.given:
        yield from _tight_session_end(options, times.session_end_timeout, kill)


def _tight_session_end(options: LifecycleOptions, seconds: float, kill: float) -> Iterator[str]:
    closing, exiting = options.closing_timeout, options.exit_timeout
    whole = ENTRYPOINT_SECONDS + SESSION_CLOSE_SECONDS + seconds
    if seconds > kill - options.publish_timeout:
        yield (
            f"session_end_timeout is {seconds:g} s, but a job that its worker cuts off is killed "
            f"after shutdown_process_timeout {kill:g} s, of which publish_timeout takes up to "
            f"{options.publish_timeout:g} s"
        )
    if closing is not None and seconds > closing:
        yield (
            f"session_end_timeout is {seconds:g} s, but the agent leaves its room "
            f"closing_timeout {closing:g} s after the exit"
        )
    if exiting is not None and whole > exiting:
        yield (
            f"exit_timeout is {exiting:g} s, but an ending may take {whole:g} s (entrypoint "
            f"{ENTRYPOINT_SECONDS:g} + session close {SESSION_CLOSE_SECONDS:g} + "
            f"session_end_timeout {seconds:g})"
        )
