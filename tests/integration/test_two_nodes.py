"""Two livekit-servers over one Redis: the worker at one, user and observer at the other.

The room is hosted by either of them: what the worker writes, or what the observer sees, then goes
from node to node.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from livekit import api

from scripts.livekit_server import LiveKitServer, MissingServerError, running_cluster
from tests.harness import Call, Seen, Worker, call, running_worker, server_api, words
from tests.lacking import lacking

TOLD_WITHIN = 1.0
REPORTED_WITHIN = 2.0
"""Both generous for a machine under load, and those of one node."""

Nodes = tuple[LiveKitServer, LiveKitServer]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """The clients' node and the worker's."""
    try:
        with running_cluster() as two:
            yield two
    except MissingServerError as missing:
        lacking(str(missing))


@pytest.fixture(scope="module")
def worker(nodes: Nodes) -> Iterator[Worker]:
    with running_worker(nodes[1]) as running_one:
        yield running_one


@pytest.fixture(params=["hosted-by-the-clients-node", "hosted-by-the-workers-node"])
def host(nodes: Nodes, request: pytest.FixtureRequest) -> LiveKitServer:
    return nodes[request.param == "hosted-by-the-workers-node"]


async def ending(made: Call, at: float, within: float) -> tuple[Seen, Seen]:
    exit_, left = await made.ending()
    assert exit_.at <= left.at
    assert exit_.at - at < within
    assert left.attributes["lifecycle.exit"] == exit_.attributes["lifecycle.exit"]
    return exit_, left


async def test_the_app_ends_it(nodes: Nodes, worker: Worker, host: LiveKitServer) -> None:
    async with call(nodes[0], worker, host=host) as made:
        at = (await made.do("shutdown", reason="done"))["at"]
        exit_, _ = await ending(made, at, TOLD_WITHIN)
        assert words(exit_) == ("intentional", "completed", "done", "end")


async def test_the_user_leaves(nodes: Nodes, worker: Worker, host: LiveKitServer) -> None:
    async with call(nodes[0], worker, host=host) as made:
        await made.user.room.disconnect()
        line = await worker.wait_for_log("saw_leave", room=made.room)
        exit_, _ = await ending(made, line["at"], TOLD_WITHIN)
        assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")


async def test_an_exception_while_the_entrypoint_waits(
    nodes: Nodes, worker: Worker, host: LiveKitServer
) -> None:
    async with call(nodes[0], worker, host=host, wait=True) as made:
        at = (await made.do("raise"))["at"]
        exit_, left = await ending(made, at, REPORTED_WITHIN)
        assert words(exit_) == ("crash", "exception", "PhoneBoothError", "rejoin")
        assert left.reason == "agent_error"


async def test_a_session_that_closes_on_an_error(
    nodes: Nodes, worker: Worker, host: LiveKitServer
) -> None:
    async with call(nodes[0], worker, host=host) as made:
        at = (await made.do("session_error"))["at"]
        exit_, left = await ending(made, at, REPORTED_WITHIN)
        assert words(exit_) == ("crash", "session_error", "llm", "rejoin")
        assert left.reason == "agent_error"


async def test_a_killed_job_is_marked_and_put_out(
    nodes: Nodes, worker: Worker, host: LiveKitServer
) -> None:
    async with call(nodes[0], worker, host=host) as made:
        at = (await made.do("signal", name="SIGKILL"))["at"]
        exit_, left = await ending(made, at, REPORTED_WITHIN)
        assert words(exit_) == ("crash", "killed", "SIGKILL", "rejoin")
        assert left.at - at < 4, "put out, not left for the server's time-out"
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["crash", "killed", "SIGKILL", True]


async def test_an_operator_removes_the_agent(
    nodes: Nodes, worker: Worker, host: LiveKitServer
) -> None:
    async with call(nodes[0], worker, host=host) as made:
        async with server_api(nodes[0]) as lkapi:
            who = api.RoomParticipantIdentity(room=made.room, identity=made.agent)
            await lkapi.room.remove_participant(who)
        left = await made.observer.wait_for_leave(made.agent)
        assert left.reason == "participant_removed"
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "removed", "participant_removed", False]


async def test_the_room_is_deleted(nodes: Nodes, worker: Worker, host: LiveKitServer) -> None:
    async with call(nodes[0], worker, host=host) as made:
        async with server_api(nodes[0]) as lkapi:
            await lkapi.room.delete_room(api.DeleteRoomRequest(room=made.room))
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "room_closed", "deleted", False]


async def test_a_drain_is_told_and_ends_as_wrapped_up(nodes: Nodes) -> None:
    with running_worker(nodes[1]) as drained:
        async with (
            call(nodes[0], drained, host=nodes[0]) as one,
            call(nodes[0], drained, host=nodes[1]) as other,
        ):
            at = drained.signal(signal.SIGTERM)
            for made in (one, other):
                seen = await made.observer.wait_for(lambda s: "lifecycle.drain" in s.attributes)
                assert seen.at - at < TOLD_WITHIN
            for made in (one, other):
                at = (await made.do("shutdown"))["at"]
                exit_, _ = await ending(made, at, TOLD_WITHIN)
                assert words(exit_) == ("intentional", "drain", "wrapped_up", "end")
            assert await drained.wait_exit() == 0


async def test_when_the_drain_runs_out_the_cut_has_a_name(nodes: Nodes) -> None:
    with running_worker(nodes[1], environment={"ACTOR_DRAIN_TIMEOUT": "2"}) as drained:
        async with (
            call(nodes[0], drained, host=nodes[0]) as one,
            call(nodes[0], drained, host=nodes[1], wait=True) as other,
        ):
            at = drained.signal(signal.SIGTERM)
            for made in (one, other):
                exit_, _ = await ending(made, at + 2, REPORTED_WITHIN)
                assert words(exit_) == ("intentional", "drain", "drain_timeout", "rejoin")


async def test_the_worker_dies_under_its_jobs(nodes: Nodes) -> None:
    with running_worker(nodes[1]) as doomed:
        async with (
            call(nodes[0], doomed, host=nodes[0]) as one,
            call(nodes[0], doomed, host=nodes[1]) as other,
        ):
            at = doomed.signal(signal.SIGKILL)
            for made in (one, other):
                exit_, left = await ending(made, at, REPORTED_WITHIN)
                assert words(exit_) == ("crash", "worker_lost", "", "rejoin")
                assert left.reason == "agent_error"
