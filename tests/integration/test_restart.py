"""After a crash another agent takes over: where it is asked for, and not for ever."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from livekit_lifecycle import ensure_agent, parse
from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import (
    Call,
    Seen,
    call,
    dispatch,
    is_serving,
    running_worker,
    server_api,
    words,
)


def restarting(max_restarts: int = 3, within: float = 60) -> dict[str, str]:
    policy = {"restart": {"max_restarts": max_restarts, "within": within}}
    return {"ACTOR_LIFECYCLE": json.dumps(policy), "ACTOR_IDLE": "2"}


async def successor(made: Call, *, of: str) -> Seen:
    """The agent that took over from a job."""
    return await made.user.wait_for(
        lambda s: parse(s.attributes).previous == of and is_serving(s), 30
    )


async def crash(made: Call, agent: str, act: str) -> tuple[str, str, str, str]:
    order = {"name": "SIGKILL"} if act == "signal" else {}
    made.agent = agent
    await made.do(act, **order)
    return words(await made.observer.wait_for_exit(agent))


@pytest.mark.parametrize(
    ("act", "wait", "crashed"),
    [
        ("signal", False, ("crash", "killed", "SIGKILL", "wait")),
        ("raise", True, ("crash", "exception", "PhoneBoothError", "wait")),
        ("session_error", False, ("crash", "session_error", "llm", "wait")),
    ],
)
async def test_a_successor_takes_over_with_the_apps_own_metadata(
    livekit_server: LiveKitServer, act: str, wait: bool, crashed: tuple[str, ...]
) -> None:
    with running_worker(livekit_server, environment=restarting()) as worker:
        async with call(livekit_server, worker, wait=wait) as made:
            first = await worker.wait_for_log("actor_starts", job=made.job)
            assert await crash(made, made.agent, act) == crashed
            second = await successor(made, of=made.job)
            job = second.attributes["lifecycle.job"]
            started = await worker.wait_for_log("actor_starts", job=job)
            asked = await worker.wait_for_log("request_hook", job=job)
            assert started["metadata"] == asked["metadata"] == first["metadata"]
            sent = await worker.wait_for_log("lifecycle.successor_sent", job_id=made.job)
            assert sent["successor"] == job
            made.agent = second.identity
            await made.do("shutdown", reason="done")
            exit_ = await made.observer.wait_for_exit(second.identity)
            assert words(exit_) == ("intentional", "completed", "done", "end")
            await made.observer.wait_for_leave(second.identity, 20)
            await asyncio.sleep(2)
            agents = {s.identity for s in made.observer.seen if s.identity.startswith("agent-")}
            assert len(agents) == 2, "a goodbye is followed by nobody"


async def test_after_too_many_crashes_nobody_follows_and_clients_are_told(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server, environment=restarting(max_restarts=2)) as worker:
        async with call(livekit_server, worker, wait=True) as made:
            agent, job = made.agent, made.job
            for act in ("signal", "raise"):
                assert (await crash(made, agent, act))[3] == "wait"
                seen = await successor(made, of=job)
                agent, job = seen.identity, seen.attributes["lifecycle.job"]
            assert await crash(made, agent, "signal") == (
                "crash",
                "killed",
                "SIGKILL",
                "rejoin",
            )
            line = await worker.wait_for_log("lifecycle.no_successor", job_id=job)
            assert line["why"] == "it crashed more than 2 times in 60 s"
            await made.observer.wait_for_leave(agent)


async def test_nobody_is_sent_where_no_user_is(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server, environment=restarting()) as worker:
        async with call(livekit_server, worker, preset="web", options={"grace": 14}) as made:
            pid = (await made.do("nothing"))["pid"]
            await made.user_leaves()
            await made.wait_for_state("waiting")
            os.kill(pid, signal.SIGKILL)
            assert words(await made.observer.wait_for_exit(made.agent))[3] == "rejoin"
            line = await worker.wait_for_log("lifecycle.no_successor", job_id=made.job)
            assert line["why"] == "no user is in the room"


async def test_nobody_is_sent_where_another_one_is(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server, environment=restarting()) as worker:
        async with call(livekit_server, worker) as made:
            await dispatch(livekit_server, made.room, worker.name, {})
            await made.observer.wait_for(
                lambda s: (
                    s.identity.startswith("agent-") and s.identity != made.agent and is_serving(s)
                )
            )
            await made.do("signal", name="SIGKILL")
            assert words(await made.observer.wait_for_exit(made.agent))[3] == "rejoin"
            line = await worker.wait_for_log("lifecycle.no_successor", job_id=made.job)
            assert line["why"] == "another agent of that name is in the room"


async def test_a_job_whose_worker_died_asks_for_its_successor_itself(
    livekit_server: LiveKitServer,
) -> None:
    environment = restarting(max_restarts=1)
    with (
        running_worker(livekit_server, environment=environment) as doomed,
        running_worker(livekit_server, environment=environment, name=doomed.name) as other,
    ):
        # the server chooses: the one that took the job is the one to go
        async with call(livekit_server, doomed) as made:
            took = next(w for w in (doomed, other) if w.log("request_hook", job=made.job))
            rest = other if took is doomed else doomed
            took.signal(signal.SIGKILL)
            assert words(await made.observer.wait_for_exit(made.agent)) == (
                "crash",
                "worker_lost",
                "",
                "wait",
            )
            second = await successor(made, of=made.job)
            job = second.attributes["lifecycle.job"]
            await rest.wait_for_log("actor_starts", job=job)
            # the count has survived the worker
            made.worker, made.agent = rest, second.identity
            await made.do("signal", name="SIGKILL")
            assert words(await made.observer.wait_for_exit(second.identity))[3] == "rejoin"


@ending("replaced/successor", "`ensure_agent` replaced it while its event loop hung")
async def test_an_agent_that_was_taken_for_dead_makes_way_when_it_recovers(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server, environment={"ACTOR_IDLE": "2"}) as worker:
        async with call(livekit_server, worker) as made:
            await made.do("block", seconds=12)
            await made.observer.wait_for(lambda s: "lifecycle.stalled" in s.attributes, 8)
            async with server_api(livekit_server) as lkapi:
                status = await ensure_agent(lkapi, made.room, worker.name, metadata="{}")
            assert (status.verdict, status.job != made.job) == ("serving", True)
            assert status.status is not None
            assert status.status.previous == made.job
            exit_, left = await made.ending(20)
            assert words(exit_) == ("intentional", "replaced", "successor", "wait")
            assert exit_.at <= left.at
            line = await worker.wait_for_log("worker_hook", job=made.job)
            assert line["seen"] == ["intentional", "replaced", "successor", True]
            started = await worker.wait_for_log("actor_starts", job=status.job)
            assert started["metadata"] == "{}"
