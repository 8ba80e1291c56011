"""What is registered with LiveKit can be pickled to a job's process, whichever way it was given."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
from livekit.agents import AgentServer, JobContext

from livekit_lifecycle import LifecycleOptions, LifecycleServer, get_lifecycle
from livekit_lifecycle.entrypoint import ManagedEntrypoint, ManagedSessionEnd
from tests.unit import entrypoints


def registered(server: AgentServer) -> Any:
    return server._entrypoint_fnc


def test_the_decorator_hands_the_apps_own_function_back() -> None:
    assert inspect.iscoroutinefunction(entrypoints.front_desk)
    assert entrypoints.front_desk.__doc__ == "The app's own words."


def test_what_the_decorator_registered_travels() -> None:
    copy = pickle.loads(pickle.dumps(registered(entrypoints.server)))  # noqa: S301 - our own
    assert isinstance(copy, ManagedEntrypoint)
    assert copy.__wrapped__ is entrypoints.front_desk  # type: ignore[attr-defined]


def test_a_managed_function_travels_by_its_name() -> None:
    copy = pickle.loads(pickle.dumps(entrypoints.night_desk))  # noqa: S301 - our own
    assert copy is entrypoints.night_desk


def test_a_managed_function_given_to_our_server_is_wrapped_once() -> None:
    server = LifecycleServer()
    server.rtc_session(entrypoints.night_desk)
    assert registered(server) is entrypoints.night_desk


def test_a_function_registered_by_a_call_travels() -> None:
    server = LifecycleServer(lifecycle=LifecycleOptions(publish_timeout=3))
    assert server.rtc_session(entrypoints.plain) is entrypoints.plain
    copy = pickle.loads(pickle.dumps(registered(server)))  # noqa: S301 - our own
    assert copy._options.publish_timeout == 3


def test_an_on_session_end_travels_and_keeps_its_name() -> None:
    copy = pickle.loads(pickle.dumps(ManagedSessionEnd(entrypoints.ended)))  # noqa: S301 - our own
    assert copy.__qualname__ == "ended"


def test_only_one_session_can_be_registered_as_before() -> None:
    with pytest.raises(RuntimeError, match="only one rtc_session"):
        entrypoints.server.rtc_session(entrypoints.plain)


def test_there_is_no_lifecycle_outside_of_a_job() -> None:
    with pytest.raises(RuntimeError, match="no job context"):
        get_lifecycle()


async def test_on_session_end_without_a_lifecycle_is_the_apps_own() -> None:
    called: list[object] = []

    async def ended(ctx: JobContext) -> None:
        called.append(ctx)

    ctx: Any = type("Context", (), {})()
    await ManagedSessionEnd(ended)(ctx)
    assert called == [ctx]
