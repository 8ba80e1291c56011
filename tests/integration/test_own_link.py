"""The agent's own link breaks: its users have not left, and nobody was timed out."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.livekit_server import LiveKitServer, running
from tests.harness import call, in_room, is_serving, running_worker, words

HOWS = pytest.mark.parametrize(
    "how",
    [{"preset": "immediate"}, {"preset": "web", "options": {"grace": 3}}],
    ids=["immediate", "web"],
)


@pytest.fixture
def shaky_server() -> Iterator[LiveKitServer]:
    """One that the test may kill."""
    with running() as server:
        if server.process is None:
            pytest.skip("the server of LIVEKIT_URL is not ours to stop")
        yield server


@HOWS
async def test_users_of_an_agent_whose_link_was_broken_have_not_left(
    shaky_server: LiveKitServer, how: dict[str, Any]
) -> None:
    with running_worker(shaky_server) as worker:
        async with call(shaky_server, worker, **how) as made:
            shaky_server.kill()
            await asyncio.sleep(6)  # longer than the grace
            await asyncio.to_thread(shaky_server.restart)
            async with in_room(shaky_server, "late", room=made.room, kind="agent") as late:
                agent = await late.wait_for(is_serving, 30)
                assert agent.attributes["lifecycle.job"] == made.job
                await late.wait_for(lambda s: s.identity == "user", 30)
                await asyncio.sleep(11)  # longer than those who may not be back are waited for
                assert all(seen.exit is None for seen in late.seen)
                await made.do("shutdown", reason="done")
                exit_ = await late.wait_for_exit(made.agent)
                assert words(exit_) == ("intentional", "completed", "done", "end")


@HOWS
async def test_a_server_that_stays_away_is_a_lost_connection(
    shaky_server: LiveKitServer, how: dict[str, Any]
) -> None:
    with running_worker(shaky_server) as worker:
        async with call(shaky_server, worker, **how) as made:
            shaky_server.kill()
            line = await worker.wait_for_log("worker_hook", 40, job=made.job)
            assert line["seen"] == ["crash", "connection_lost", "unknown_reason", False]


@HOWS
async def test_a_user_who_is_not_back_when_the_link_is_has_left(
    shaky_server: LiveKitServer, how: dict[str, Any]
) -> None:
    with running_worker(shaky_server) as worker:
        async with call(shaky_server, worker, **how) as made:
            shaky_server.kill()
            await made.user.aclose()
            await asyncio.to_thread(shaky_server.restart)
            line = await worker.wait_for_log("worker_hook", 40, job=made.job)
            ended = {"immediate": ["close_on_disconnect", "user_left"], "web": ["timeout", "grace"]}
            assert line["seen"] == ["intentional", *ended[how["preset"]], True]


async def test_a_server_that_puts_everybody_out_ends_no_users_call(
    shaky_server: LiveKitServer,
) -> None:
    with running_worker(shaky_server) as worker:
        async with call(shaky_server, worker, preset="immediate") as made:
            assert shaky_server.process is not None
            # at the first one it waits for its rooms, at the second one it closes them
            shaky_server.process.send_signal(signal.SIGTERM)
            await made.do("nothing")
            shaky_server.process.send_signal(signal.SIGTERM)
            line = await worker.wait_for_log("worker_hook", 40, job=made.job)
            # its word may not have reached the agent before it was gone itself
            lost = ["crash", "connection_lost", "unknown_reason", False]
            assert line["seen"] in (["intentional", "server_shutdown", "", False], lost)
