"""What an app had before works as before; two edits are enough."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from livekit import api

from scripts.livekit_server import LiveKitServer
from tests.endings import CLIENT_DERIVES, ending
from tests.harness import (
    ACTOR,
    Call,
    Worker,
    call,
    dispatch,
    do,
    in_room,
    running_worker,
    words,
)
from tests.harness import server_api as lkapi_of

AGENTS = ACTOR.parent


@pytest.fixture(scope="module")
def plain_worker(livekit_server: LiveKitServer) -> Iterator[Worker]:
    """One without the package."""
    with running_worker(livekit_server, environment={"ACTOR_PLAIN": "1"}) as running_one:
        yield running_one


@pytest.mark.parametrize("how", ["module", "run_app"])
async def test_an_existing_agent_needs_only_the_edits_of_the_readme(
    livekit_server: LiveKitServer, tmp_path: Path, how: str
) -> None:
    before = (AGENTS / "before.py").read_text()
    after = before.replace("Agent, AgentServer, AgentSession", "Agent, AgentSession").replace(
        "server = AgentServer(",
        "from livekit_lifecycle import LifecycleServer\n\nserver = LifecycleServer(",
    )
    file = tmp_path / "front_desk.py"
    file.write_text(after)
    # `python agent.py start` is deprecated in LiveKit 1.8, but is how most agents are run
    command = [sys.executable, str(file), "start"] if how == "run_app" else None
    with running_worker(livekit_server, file=file, command=command) as worker:
        async with call(livekit_server, worker) as made:
            await made.user.room.disconnect()
            exit_ = await made.observer.wait_for_exit(made.agent)
            assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
            await made.observer.wait_for_leave(made.agent)


async def test_the_job_half_works_under_livekits_own_server(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server, file=AGENTS / "by_hand.py") as worker:
        async with call(livekit_server, worker) as made:
            active = await made.observer.wait_for(
                lambda s: s.attributes.get("lifecycle.state") == "active"
            )
            assert active.attributes["lifecycle.job"] == made.job
            await made.user.room.disconnect()
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "close_on_disconnect", "user_left", "end")
            assert exit_.at <= left.at


async def test_a_job_under_livekits_own_server_survives_a_signal_and_tells_of_its_worker(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server, file=AGENTS / "by_hand.py") as worker:
        async with call(livekit_server, worker) as made:
            worker.signal(signal.SIGKILL)
            exit_, left = await made.ending()
            assert words(exit_) == ("crash", "worker_lost", "", "rejoin")
            assert left.reason == "agent_error"


async def test_the_apps_own_attributes_are_kept_and_ours_can_not_be_forged(
    livekit_server: LiveKitServer,
) -> None:
    environment = {"ACTOR_ATTRIBUTES": '{"lifecycle.exit": "intentional", "app.size": "xl"}'}
    with running_worker(livekit_server, environment=environment) as worker:
        async with call(livekit_server, worker) as made:
            seen = next(s for s in made.user.seen if s.identity == made.agent)
            assert seen.attributes["app.mood"] == "good"
            assert seen.attributes["app.size"] == "xl"
            assert "lifecycle.exit" not in seen.attributes
            warning = await worker.wait_for_only_log("lifecycle.key_reserved")
            assert warning["keys"] == "lifecycle.exit"


SHAPES = 7
"""Ways to write a shutdown callback, besides a function of the reason."""
TERMINATED, GONE = "parent process shutdown", "room disconnected"
"""LiveKit's two reasons for the end of an agent that is removed: it gives what comes first."""


def story(worker: Worker, job: str) -> list[tuple[Any, ...]]:
    """The app's own hooks of one job, in the order in which each process ran them."""
    hooks = ("request_hook", "saw_close", "session_end_hook", "shutdown_callback", "shutdown_shape")
    return [
        (line["message"], line.get("shape"), line.get("why"))
        for line in worker.lines
        if line["message"] in hooks and job in (line.get("job"), line.get("job_id"))
    ]


@pytest.mark.parametrize("ending", ["shutdown", "default", "terminated", "removed", "raise"])
async def test_the_apps_own_hooks_run_as_they_do_without_us(
    livekit_server: LiveKitServer, worker: Worker, plain_worker: Worker, ending: str
) -> None:
    stories = []
    for one in (plain_worker, worker):
        wait = ending == "raise"
        async with call(livekit_server, one, wait=wait, every_shape=True) as made:
            await end(livekit_server, made, ending)
            await one.wait_for_logs("shutdown_shape", SHAPES, job=made.job)
            await one.wait_for_log("process exiting", job_id=made.job)
            stories.append(story(one, made.job))
    if ending == "removed":
        stories = [
            [(hook, shape, why and why.replace(TERMINATED, GONE)) for hook, shape, why in one]
            for one in stories
        ]
    without, with_us = stories
    assert with_us == without
    assert len(without) == 4 + SHAPES


async def end(server: LiveKitServer, made: Call, ending: str) -> None:
    if ending == "shutdown":
        await made.do("shutdown", reason="done")
    elif ending == "default":
        await made.do("shutdown")
    elif ending == "raise":
        await made.do("raise")
    async with lkapi_of(server) as lkapi:
        if ending == "removed":
            who = api.RoomParticipantIdentity(room=made.room, identity=made.agent)
            await lkapi.room.remove_participant(who)
        elif ending == "terminated":
            for dispatched in await lkapi.agent_dispatch.list_dispatch(room_name=made.room):
                if dispatched.agent_name == made.worker.name:
                    await lkapi.agent_dispatch.delete_dispatch(dispatched.id, made.room)


async def test_dispatches_one_after_the_other_are_all_served(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    # processes are used up and made anew: the wrapped entrypoint travels each time
    for _ in range(4):
        async with call(livekit_server, worker) as made:
            await made.do("shutdown")
            await made.observer.wait_for_exit(made.agent)


@ending(
    "removed/participant_removed",
    "RemoveParticipant of the agent",
    client=CLIENT_DERIVES,
    hook="unpublished",
    written=False,
)
async def test_an_operator_removes_the_agent(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with call(livekit_server, worker) as made:
        await end(livekit_server, made, "removed")
        left = await made.observer.wait_for_leave(made.agent)
        assert left.reason == "participant_removed"
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "removed", "participant_removed", False]


@ending(
    "server_shutdown",
    "the LiveKit server puts it out as it does when it stops, by its own simulation of that",
    client=CLIENT_DERIVES,
    hook="unpublished",
    written=False,
)
async def test_the_server_puts_the_agent_out_since_it_stops(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        await made.do("server_leave")
        left = await made.observer.wait_for_leave(made.agent)
        assert left.reason == "server_shutdown"
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "server_shutdown", "", False]


@ending(
    "room_closed/deleted",
    "DeleteRoom",
    client=CLIENT_DERIVES,
    hook="unpublished",
    written=False,
)
async def test_the_room_is_deleted_by_somebody(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        async with lkapi_of(livekit_server) as lkapi:
            await lkapi.room.delete_room(api.DeleteRoomRequest(room=made.room))
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "room_closed", "deleted", False]


@ending(
    "replaced/duplicate_identity",
    "another participant of the same identity joins",
    client="nothing of the old one can be written any more; its job id is gone",
    hook="unpublished",
    written=False,
)
async def test_somebody_takes_over_the_agents_identity(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with (
        call(livekit_server, worker) as made,
        in_room(livekit_server, made.agent, room=made.room, kind="agent"),
    ):
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "replaced", "duplicate_identity", False]
        assert not worker.log("lifecycle.crash_reported", job_id=made.job)


@ending("removed/job_terminated", "DeleteDispatch")
async def test_the_dispatch_is_deleted(livekit_server: LiveKitServer, worker: Worker) -> None:
    async with call(livekit_server, worker) as made:
        await end(livekit_server, made, "terminated")
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "removed", "job_terminated", "end")
        assert exit_.at <= left.at
        await worker.wait_for_log("worker_hook", job=made.job)


async def test_without_the_right_to_write_the_server_api_is_the_second_way(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    async with call(livekit_server, worker) as made:
        async with lkapi_of(livekit_server) as lkapi:
            rights = api.ParticipantPermission(
                can_publish=True, can_subscribe=True, can_publish_data=True, agent=True
            )
            await lkapi.room.update_participant(
                api.UpdateParticipantRequest(room=made.room, identity=made.agent, permission=rights)
            )
        await made.do("shutdown", reason="done")
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "completed", "done", "end")
        assert exit_.at <= left.at


async def test_a_room_of_its_own_for_each_run_is_not_needed(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    # the same room again: the second agent is another job, with a will of its own
    async with in_room(livekit_server, "user") as user:
        jobs = set()
        for _ in range(2):
            mark = len(user.seen)
            await dispatch(livekit_server, user.room_name, worker.name, {})
            joined = await user.wait_for(
                lambda s: s.kind == "joined" and s.identity.startswith("agent-"), since=mark
            )
            jobs.add(joined.attributes["lifecycle.job"])
            await user.wait_for(
                lambda s: s.attributes.get("lk.agent.state") == "listening", since=mark
            )
            await do(user, worker, joined.identity, "shutdown")
            await user.wait_for_leave(joined.identity)
        assert len(jobs) == 2


async def test_an_app_may_set_up_its_logging_anew_in_the_job(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    # which closes the handler that LiveKit, and we with it, reach the worker by
    async with call(livekit_server, worker, new_logging=True) as made:
        await made.do("shutdown", reason="done")
        exit_ = await made.observer.wait_for_exit(made.agent)
        assert words(exit_) == ("intentional", "completed", "done", "end")
        line = await worker.wait_for_log("worker_hook", job=made.job)
        assert line["seen"] == ["intentional", "completed", "done", True]
        await made.observer.wait_for_leave(made.agent)
        await asyncio.sleep(1)
        assert len(worker.log("worker_hook", job=made.job)) == 1


async def test_a_goodbye_that_the_worker_cannot_hear_of_is_no_crash(
    livekit_server: LiveKitServer,
) -> None:
    # the same in setup_fnc, before anything of ours has run
    with running_worker(livekit_server, environment={"ACTOR_NEW_LOGGING": "1"}) as deaf:
        async with call(livekit_server, deaf) as made:
            await made.do("shutdown", reason="done")
            exit_, left = await made.ending()
            assert words(exit_) == words(left) == ("intentional", "completed", "done", "end")
        async with call(livekit_server, deaf) as made:
            await made.do("signal", name="SIGKILL")
            assert words((await made.ending())[0]) == ("crash", "killed", "SIGKILL", "rejoin")
        deaf.signal(signal.SIGTERM)
        assert await deaf.wait_exit() == 0
        assert [line["seen"][1] for line in deaf.log("worker_hook")] == ["killed"]
