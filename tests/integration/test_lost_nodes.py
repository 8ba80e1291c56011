"""A livekit-server that goes away with rooms on it: a link that broke is no goodbye.

The worker is at one of two servers over one Redis, user and observer at the other.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from livekit_lifecycle.reader import AgentWatcher, watch
from scripts.livekit_server import LiveKitServer, MissingServerError, running, running_cluster
from tests.endings import ending
from tests.harness import Call, call, do, in_room, is_serving, running_worker, words
from tests.lacking import lacking

GIVES_UP_WITHIN = 40.0
"""LiveKit's client makes ten attempts to come back, which takes it 16 to 26 s."""
REGISTERS_WITHIN = 15.0
"""A worker waits up to 10 s between two attempts."""

Nodes = tuple[LiveKitServer, LiveKitServer]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """The clients' node and the worker's."""
    try:
        with running_cluster() as two:
            yield two
    except MissingServerError as missing:
        lacking(str(missing))


def saw_no_ending(made: Call) -> bool:
    return all(seen.exit is None for seen in (*made.user.seen, *made.observer.seen))


async def end_of(watcher: AgentWatcher, job: str, timeout: float = 10.0) -> str:
    """What a reader makes of a job's end, in one word."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for agent in watcher.agents:
            if agent.status.job == job and agent.end is not None:
                return agent.end.outcome
        await asyncio.sleep(0.05)
    msg = f"no end of {job} in {timeout} s: {watcher.agents}"
    raise AssertionError(msg)


async def test_an_agent_goes_on_when_the_node_of_its_room_dies(nodes: Nodes) -> None:
    clients_node, workers_node = nodes
    with running_worker(workers_node) as worker:
        async with call(clients_node, worker, host=clients_node) as made:
            pid = (await made.do("nothing"))["pid"]
            clients_node.kill()
            # LiveKit's client moves the agent to the node that is left, and the room with it
            await worker.wait_for_log("saw_leave", who="user", room=made.room)
            async with in_room(workers_node, "user", room=made.room) as back:
                agent = await back.wait_for(is_serving)
                assert agent.attributes["lifecycle.job"] == made.job
                await worker.wait_for_log("saw_join", who="user", room=made.room)
                assert (await do(back, worker, made.agent, "nothing"))["pid"] == pid
                assert saw_no_ending(made)
                assert all(seen.exit is None for seen in back.seen)
                assert not worker.log("worker_hook")
                await do(back, worker, made.agent, "shutdown", reason="done")
                exit_ = await back.wait_for_exit(made.agent)
                assert words(exit_) == ("intentional", "completed", "done", "end")
        async with call(workers_node, worker, host=workers_node) as fresh:
            await fresh.do("nothing")


@ending(
    "connection_lost/unknown_reason",
    "the server of its link is killed and does not come back",
    client="a leave some 20 s later and the mark without an exit; `unclear` if cut off itself",
    hook="unpublished",
    written=False,
)
async def test_a_link_that_does_not_come_back_is_a_crash(nodes: Nodes) -> None:
    clients_node, workers_node = nodes
    with running_worker(workers_node) as worker:
        async with (
            call(clients_node, worker, host=clients_node) as one,
            call(clients_node, worker, host=workers_node) as other,
        ):
            watchers = [watch(made.observer.room) for made in (one, other)]
            at = time.monotonic()
            workers_node.kill()
            for made in (one, other):
                line = await worker.wait_for_log("worker_hook", GIVES_UP_WITHIN, job=made.job)
                assert line["seen"][:2] == ["crash", "connection_lost"]
                assert line["at"] - at < GIVES_UP_WITHIN
                await worker.wait_for_log("process exiting", job_id=made.job)
                assert saw_no_ending(made)
            # where the room lived on, its node has noticed by now; else the reader was cut off too
            left = await one.observer.wait_for_leave(one.agent)
            assert left.reason == "connection_timeout"
            assert await end_of(watchers[0], one.job) == "crash"
            assert await end_of(watchers[1], other.job) == "unclear"
        assert worker.returncode is None
        await asyncio.to_thread(workers_node.restart)
        await worker.wait_for_logs("registered worker", 2, REGISTERS_WITHIN)
        async with call(clients_node, worker) as fresh:
            await fresh.do("nothing")


async def test_an_agent_outlives_a_restart_of_its_node(nodes: Nodes) -> None:
    clients_node, workers_node = nodes
    with running_worker(workers_node) as worker:
        async with (
            call(clients_node, worker, host=clients_node) as one,
            call(clients_node, worker, host=workers_node) as other,
        ):
            await asyncio.to_thread(workers_node.restart)
            for made in (one, other):
                await worker.wait_for_log("saw_join", 40, who="user", room=made.room)
                async with in_room(clients_node, "late", room=made.room) as late:
                    agent = await late.wait_for(is_serving)
                    assert agent.attributes["lifecycle.job"] == made.job
                    assert saw_no_ending(made)
                    await made.do("shutdown", reason="done")
                    exit_ = await late.wait_for_exit(made.agent)
                    assert words(exit_) == ("intentional", "completed", "done", "end")
        await worker.wait_for_logs("registered worker", 2, REGISTERS_WITHIN)


async def test_a_server_that_puts_everybody_out_is_named_as_far_as_it_says_so() -> None:
    # at the first SIGTERM it waits for its rooms, at the second one it closes them, and may be gone
    # itself before its word for that has reached everybody
    with running() as server, running_worker(server) as worker:
        if server.process is None:
            pytest.skip("the server of LIVEKIT_URL is not ours to stop")
        async with call(server, worker) as made:
            server.process.send_signal(signal.SIGTERM)
            await made.do("nothing")
            server.process.send_signal(signal.SIGTERM)
            line = await worker.wait_for_log("worker_hook", GIVES_UP_WITHIN, job=made.job)
            told = (await worker.wait_for_log("saw_disconnect", job=made.job))["reason"]
            verdicts = {
                "server_shutdown": ["intentional", "server_shutdown", "", False],
                "unknown_reason": ["crash", "connection_lost", "unknown_reason", False],
            }
            assert line["seen"] == verdicts[told]
            out = await made.observer.wait_for(lambda s: s.kind == "disconnected", GIVES_UP_WITHIN)
            assert out.reason in verdicts
            await worker.wait_for_log("process exiting", job_id=made.job)
            assert saw_no_ending(made)
