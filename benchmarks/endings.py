"""Every ending, twenty times each on a real server: was it named right, and how soon was it seen?

Run by ``make bench``. Prints the table that README.md quotes. ``--runs N`` for another number.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from scripts.livekit_server import LiveKitServer, running
from tests.harness import Call, Worker, call, running_worker, words

Cause = Callable[[Call], Awaitable[float]]
CALLS_PER_WORKER = 5


@dataclass
class Ending:
    """One way to end, and what came of it."""

    name: str
    expected: tuple[str, str, str]
    cause: Cause | None = None
    how: dict[str, Any] = field(default_factory=dict)
    worker_signal: signal.Signals | None = None
    environment: dict[str, str] = field(default_factory=dict)
    told_ms: list[float] = field(default_factory=list)
    gone_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    since_deadline: float = 0.0


def deed(act: str, **order: Any) -> Cause:
    async def cause(made: Call) -> float:
        return float((await made.do(act, **order))["at"])

    return cause


async def user_leaves(made: Call) -> float:
    await made.user.room.disconnect()
    # the agent can't know before LiveKit tells it, so that is the cause
    line = await made.worker.wait_for_log("saw_leave", room=made.room)
    return float(line["at"])


ENDINGS = [
    Ending("`ctx.shutdown`", ("intentional", "completed", "done"), deed("shutdown", reason="done")),
    Ending(
        "the same, entrypoint still waits",
        ("intentional", "completed", "done"),
        deed("shutdown", reason="done"),
        how={"wait": True},
    ),
    Ending("the user leaves", ("intentional", "close_on_disconnect", "user_left"), user_leaves),
    Ending(
        "SIGTERM, agent wraps up",
        ("intentional", "drain", "wrapped_up"),
        how={"wrap_up": True},
        worker_signal=signal.SIGTERM,
    ),
    Ending(
        "SIGTERM, window of 3 s over",
        ("intentional", "drain", "drain_timeout"),
        worker_signal=signal.SIGTERM,
        environment={"ACTOR_DRAIN_TIMEOUT": "3"},
        since_deadline=3.0,
    ),
    Ending(
        "exception in the entrypoint",
        ("crash", "exception", "PhoneBoothError"),
        deed("raise"),
        how={"wait": True},
    ),
    Ending("session error", ("crash", "session_error", "llm"), deed("session_error")),
    Ending("SIGKILL of the job", ("crash", "killed", "SIGKILL"), deed("signal", name="SIGKILL")),
    Ending(
        "SIGKILL of the worker",
        ("crash", "worker_lost", ""),
        worker_signal=signal.SIGKILL,
    ),
]


async def judge(ending: Ending, made: Call, at: float) -> None:
    """Note what the observer saw of it."""
    exit_ = await made.observer.wait_for_exit(made.agent, 15)
    ending.told_ms.append((exit_.at - at) * 1000)
    if words(exit_)[:3] != ending.expected:
        ending.wrong.append(str(words(exit_)))
    left = await made.observer.wait_for_leave(made.agent, 25)
    ending.gone_ms.append((left.at - at) * 1000)
    if left.at < exit_.at:
        ending.wrong.append("seen after the leave")


async def one_by_one(server: LiveKitServer, worker: Worker, ending: Ending, runs: int) -> None:
    assert ending.cause is not None  # noqa: S101 - those without a cause go the other way
    for _ in range(runs):
        async with call(server, worker, **ending.how) as made:
            await judge(ending, made, await ending.cause(made))


async def by_the_worker(server: LiveKitServer, ending: Ending, runs: int) -> None:
    """Several calls of one worker end with it."""
    assert ending.worker_signal is not None  # noqa: S101
    while len(ending.told_ms) < runs:
        with running_worker(server, environment=ending.environment) as worker:
            async with contextlib.AsyncExitStack() as stack:
                calls = [
                    await stack.enter_async_context(call(server, worker, **ending.how))
                    for _ in range(min(CALLS_PER_WORKER, runs))
                ]
                at = worker.signal(ending.worker_signal) + ending.since_deadline
                await asyncio.gather(*(judge(ending, made, at) for made in calls))


async def killed_without_us(server: LiveKitServer, runs: int) -> list[float]:
    """Seconds until a client sees that an agent of a plain AgentServer was killed."""
    seconds = []
    with running_worker(server, environment={"ACTOR_PLAIN": "1"}) as worker:
        async with contextlib.AsyncExitStack() as stack:
            calls = [await stack.enter_async_context(call(server, worker)) for _ in range(runs)]
            for made in calls:
                at = (await made.do("signal", name="SIGKILL"))["at"]
                seconds.append((made, at))
            return [
                (await made.observer.wait_for_leave(made.agent, 60)).at - at for made, at in seconds
            ]


def row(ending: Ending) -> str:
    told, gone = sorted(ending.told_ms), sorted(ending.gone_ms)
    right = len(told) - len(ending.wrong)
    verdict = "/".join(word for word in ending.expected if word)
    return (
        f"| {ending.name} | {verdict} | {right} of {len(told)} | "
        f"{statistics.median(told):.0f} | {told[-1]:.0f} | {statistics.median(gone):.0f} |"
    )


async def main(runs: int) -> int:
    print("| ending | client is told | right | told, ms, median | worst | gone, ms, median |")
    print("| --- | --- | --- | --- | --- | --- |")
    with running() as server:
        with running_worker(server) as worker:
            for ending in ENDINGS:
                if ending.cause is None:
                    await by_the_worker(server, ending, runs)
                else:
                    await one_by_one(server, worker, ending, runs)
                print(row(ending), flush=True)
        plain = await killed_without_us(server, min(runs, CALLS_PER_WORKER))
    killed = next(e for e in ENDINGS if e.name == "SIGKILL of the job")
    without, with_us = statistics.median(plain), statistics.median(killed.told_ms) / 1000
    print(
        f"\nSIGKILL of the job under a plain AgentServer: a client sees a leave without a reason "
        f"after {without:.1f} s (median of {len(plain)}); here after {with_us * 1000:.0f} ms: "
        f"{without / with_us:.0f} times sooner."
    )
    wrong = [f"{e.name}: {text}" for e in ENDINGS for text in e.wrong]
    print("\n".join(wrong) if wrong else "\nNo wrong verdict.")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    raise SystemExit(asyncio.run(main(parser.parse_args().runs)))
