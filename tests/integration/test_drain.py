"""A worker that is told to stop: everyone is told ahead, and the cut has a name."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from scripts.livekit_server import LiveKitServer
from tests.endings import ending
from tests.harness import Call, Seen, call, dispatch, in_room, running_worker, words


async def notice(made: Call, at: float) -> Seen:
    seen = await made.observer.wait_for(lambda s: "lifecycle.drain" in s.attributes)
    assert seen.at - at < 1.0
    return seen


async def test_every_room_is_told_with_the_deadline_and_the_agents_go_on(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server) as worker:
        async with call(livekit_server, worker) as one, call(livekit_server, worker) as two:
            at, now_ms = worker.signal(signal.SIGTERM), time.time() * 1000
            for made in (one, two):
                seen = await notice(made, at)
                assert seen.exit is None
                assert abs(float(seen.attributes["lifecycle.drain"]) - now_ms - 3_600_000) < 2000
                assert abs(float(seen.attributes["lifecycle.drain_window"]) - 3_600_000) < 2000
                await worker.wait_for_log("draining_hook", job=made.job)
            await worker.wait_for_log("drain_hook")
            # one call ends; the other one goes on and ends by itself, each with its own name
            await one.do("shutdown")
            assert words(await one.observer.wait_for_exit(one.agent)) == (
                "intentional",
                "drain",
                "wrapped_up",
                "end",
            )
            await one.observer.wait_for_leave(one.agent)
            await asyncio.sleep(2)
            await two.do("shutdown", reason="booked")
            assert words(await two.observer.wait_for_exit(two.agent)) == (
                "intentional",
                "completed",
                "booked",
                "end",
            )
            assert await worker.wait_exit() == 0
            assert len(worker.log("drain_hook")) == 1
            assert len(worker.log("draining_hook", job=two.job)) == 1


@ending("drain/wrapped_up", "SIGTERM of the worker; the call ends by itself because of it")
async def test_an_agent_that_wraps_up_when_it_is_told(livekit_server: LiveKitServer) -> None:
    with running_worker(livekit_server) as worker:
        async with call(livekit_server, worker, wrap_up=True) as made:
            worker.signal(signal.SIGTERM)
            exit_, left = await made.ending()
            assert words(exit_) == ("intentional", "drain", "wrapped_up", "end")
            assert exit_.at <= left.at
            assert await worker.wait_exit() == 0


@ending(
    "drain/drain_timeout",
    "SIGTERM of the worker, and the window runs out",
    client="`lifecycle.drain` within 1 s, the exit at the deadline, then the leave",
)
@pytest.mark.parametrize("wait", [False, True], ids=["returned", "waiting"])
async def test_when_the_window_is_over_the_cut_has_a_name(
    livekit_server: LiveKitServer, wait: bool
) -> None:
    environment = {"ACTOR_DRAIN_TIMEOUT": "2"}
    with running_worker(livekit_server, environment=environment) as worker:
        async with (
            call(livekit_server, worker, wait=wait) as one,
            call(livekit_server, worker, wait=wait) as two,
        ):
            at = worker.signal(signal.SIGTERM)
            for made in (one, two):
                await notice(made, at)
                exit_, left = await made.ending()
                assert words(exit_) == ("intentional", "drain", "drain_timeout", "rejoin")
                assert 1.9 < exit_.at - at < 4
                assert exit_.at <= left.at < exit_.at + 1.5
            for made in (one, two):
                # the app's own shutdown callback is told what LiveKit tells it
                await worker.wait_for_log(
                    "shutdown_callback", job=made.job, why="parent process shutdown"
                )
                await worker.wait_for_log("worker_hook", job=made.job)


@ending("drain/shutdown", "a worker in dev mode, which does not drain, is stopped")
async def test_a_stop_without_a_drain_is_named_before_the_jobs_are_cut(
    livekit_server: LiveKitServer,
) -> None:
    # dev mode does not drain
    with running_worker(livekit_server, arguments=["--dev"]) as worker:
        async with call(livekit_server, worker) as one, call(livekit_server, worker) as two:
            worker.signal(signal.SIGTERM)
            for made in (one, two):
                exit_, left = await made.ending()
                assert words(exit_) == ("intentional", "drain", "shutdown", "rejoin")
                assert exit_.at <= left.at
                await worker.wait_for_log("worker_hook", job=made.job)


@ending("close_on_disconnect/user_left", "the user hangs up during a drain")
async def test_a_user_who_hangs_up_during_a_drain_ended_it(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server) as worker:
        async with call(livekit_server, worker) as made:
            await notice(made, worker.signal(signal.SIGTERM))
            await made.user.room.disconnect()
            assert words(await made.observer.wait_for_exit(made.agent)) == (
                "intentional",
                "close_on_disconnect",
                "user_left",
                "end",
            )
            await worker.wait_for_log("worker_hook", job=made.job)


async def test_a_job_that_joins_its_room_after_the_signal_is_told_too(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server) as worker:
        async with in_room(livekit_server, "user") as user:
            await dispatch(livekit_server, user.room_name, worker.name, {"delay_connect": 2})
            await worker.wait_for_log("lifecycle.armed")
            await worker.wait_for_log("actor_waits")
            worker.signal(signal.SIGTERM)
            seen = await user.wait_for(lambda s: "lifecycle.drain" in s.attributes)
            assert 0 < float(seen.attributes["lifecycle.drain_window"]) < 3_600_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["systemd", "terminal"])
async def test_a_signal_to_the_whole_group_kills_no_call(
    livekit_server: LiveKitServer, number: signal.Signals
) -> None:
    with running_worker(livekit_server) as worker:
        async with call(livekit_server, worker) as made:
            await notice(made, worker.signal_group(number))
            # without care the framework takes the job for dead 2 s after its forkserver died
            await asyncio.sleep(4)
            await made.do("shutdown", reason="done")
            assert words(await made.observer.wait_for_exit(made.agent))[1:3] == (
                "completed",
                "done",
            )
            assert await worker.wait_exit() == 0


@ending("worker_lost", "a second SIGTERM: LiveKit exits at once", hook="nothing")
async def test_a_second_signal_ends_the_worker_at_once_and_the_jobs_say_so(
    livekit_server: LiveKitServer,
) -> None:
    with running_worker(livekit_server) as worker:
        async with call(livekit_server, worker) as made:
            await notice(made, worker.signal(signal.SIGTERM))
            worker.signal(signal.SIGTERM)
            exit_, left = await made.ending()
            assert words(exit_) == ("crash", "worker_lost", "", "rejoin")
            assert exit_.at <= left.at


@ending(
    "drain/drain_timeout",
    "SIGTERM of the worker under `kill_grace=10`",
    client="`lifecycle.drain` within 1 s, exit and leave before second 10",
)
async def test_with_a_kill_grace_everybody_is_told_before_the_kill(
    livekit_server: LiveKitServer,
) -> None:
    # and LiveKit's drain of an hour
    environment = {"ACTOR_LIFECYCLE": '{"drain": {"kill_grace": 10}}'}
    with running_worker(livekit_server, environment=environment) as worker:
        async with (
            call(livekit_server, worker, wait=True) as one,
            call(livekit_server, worker) as two,
        ):
            at = worker.signal(signal.SIGTERM)
            for made in (one, two):
                seen = await notice(made, at)
                assert 6500 < float(seen.attributes["lifecycle.drain_window"]) <= 7000
                exit_, left = await made.ending(12)
                assert words(exit_) == ("intentional", "drain", "drain_timeout", "rejoin")
                assert exit_.at - at < 10
                assert left.at - at < 10
                await worker.wait_for_log("worker_hook", job=made.job)


@ending(
    "drain/drain_timeout",
    "SIGTERM of the worker under `end_before=6`",
    client="the exit 6 s before the deadline, a last sentence, then the leave",
)
async def test_a_call_may_be_ended_ahead_of_the_deadline_with_a_last_sentence(
    livekit_server: LiveKitServer,
) -> None:
    environment = {
        "ACTOR_LIFECYCLE": '{"drain": {"end_before": 6}}',
        "ACTOR_DRAIN_TIMEOUT": "9",
    }
    with running_worker(livekit_server, environment=environment) as worker:
        async with (
            call(livekit_server, worker, wait=True, last_words=1) as talks,
            call(livekit_server, worker, last_words=60) as never_stops,
            call(livekit_server, worker) as hangs_up,
        ):
            at = worker.signal(signal.SIGTERM)
            for made in (talks, never_stops, hangs_up):
                await notice(made, at)
            await hangs_up.user_leaves()
            assert words(await hangs_up.observer.wait_for_exit(hangs_up.agent))[1:3] == (
                "close_on_disconnect",
                "user_left",
            )
            for made in (talks, never_stops):
                exit_ = await made.observer.wait_for_exit(made.agent)
                assert words(exit_) == ("intentional", "drain", "drain_timeout", "rejoin")
                assert 2.5 < exit_.at - at < 4.5, "it went on until then"
                hook = await worker.wait_for_log("last_words_hook", job=made.job)
                assert 2 < hook["left"] <= 3.1
            said = await worker.wait_for_log("last_words_said", job=talks.job)
            assert (await talks.observer.wait_for_exit(talks.agent)).at < said["at"]
            left = await talks.observer.wait_for_leave(talks.agent)
            assert said["at"] <= left.at < said["at"] + 2, "the sentence, and then it goes"
            left = await never_stops.observer.wait_for_leave(never_stops.agent)
            assert left.at - at < 9, "before the deadline that everyone was told"
            assert not worker.log("last_words_said", job=never_stops.job)
            assert await worker.wait_exit() == 0
            assert not worker.log("last_words_hook", job=hangs_up.job)
