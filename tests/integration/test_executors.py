"""Every way in which LiveKit runs jobs: forked, spawned, and in threads."""

from __future__ import annotations

import signal

import pytest

from scripts.livekit_server import LiveKitServer
from tests.harness import call, running_worker, words


@pytest.mark.parametrize(
    ("act", "order", "wait", "expected"),
    [
        ("shutdown", {"reason": "done"}, False, ("intentional", "completed", "done", "end")),
        ("raise", {}, True, ("crash", "exception", "PhoneBoothError", "rejoin")),
        ("signal", {"name": "SIGKILL"}, False, ("crash", "killed", "SIGKILL", "rejoin")),
    ],
)
async def test_under_spawn(
    livekit_server: LiveKitServer,
    act: str,
    order: dict[str, str],
    wait: bool,
    expected: tuple[str, ...],
) -> None:
    with running_worker(livekit_server, environment={"ACTOR_CONTEXT": "spawn"}) as worker:
        async with call(livekit_server, worker, wait=wait) as made:
            await made.do(act, **order)
            exit_, left = await made.ending()
            assert words(exit_) == expected
            assert exit_.at <= left.at


async def test_under_spawn_the_worker_dies(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server, environment={"ACTOR_CONTEXT": "spawn"}) as worker:
        async with call(livekit_server, worker) as made:
            worker.signal(signal.SIGKILL)
            exit_, left = await made.ending()
            assert words(exit_) == ("crash", "worker_lost", "", "rejoin")
            assert left.reason == "agent_error"


THREAD = {"ACTOR_EXECUTOR": "thread", "ACTOR_IDLE": "8"}


@pytest.mark.parametrize(
    ("act", "order", "wait", "expected"),
    [
        ("shutdown", {"reason": "done"}, False, ("intentional", "completed", "done", "end")),
        ("session_shutdown", {}, True, ("intentional", "completed", "", "end")),
        ("raise", {}, True, ("crash", "exception", "PhoneBoothError", "rejoin")),
        ("session_error", {}, False, ("crash", "session_error", "llm", "rejoin")),
    ],
)
async def test_in_threads(
    livekit_server: LiveKitServer,
    act: str,
    order: dict[str, str],
    wait: bool,
    expected: tuple[str, ...],
) -> None:
    with running_worker(livekit_server, environment=THREAD) as worker:
        async with call(livekit_server, worker, wait=wait) as made:
            await made.do(act, **order)
            exit_, left = await made.ending()
            assert words(exit_) == expected
            assert exit_.at <= left.at
            line = await worker.wait_for_log("worker_hook", job=made.job)
            assert line["seen"] == [*expected[:3], True]
            assert len(worker.log("lifecycle.jobs_in_threads")) == 1


async def test_in_threads_the_cut_at_a_drains_end_has_a_name(
    livekit_server: LiveKitServer,
) -> None:
    environment = {**THREAD, "ACTOR_DRAIN_TIMEOUT": "2"}
    with running_worker(livekit_server, environment=environment) as worker:
        async with call(livekit_server, worker) as made:
            worker.signal(signal.SIGTERM)
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "drain", "drain_timeout", "rejoin")
            assert exit_.at <= left.at
