"""Users who come back, and one who does not, twenty times each on a real server.

Run by ``make bench``. Prints the table that README.md quotes. ``--runs N`` for another number.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
from dataclasses import dataclass, field
from typing import Any

from livekit_lifecycle import presets
from scripts.livekit_server import LiveKitServer, running
from tests.harness import Worker, call, running_worker, words

AT_ONCE = 10
STARTING = asyncio.Lock()


@dataclass
class Return:
    """A user who was away, and how it went on."""

    name: str
    away: float
    how: dict[str, Any] = field(default_factory=lambda: {"preset": "web"})
    comes_back_as: str = "user"
    heard_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


MOBILE_ROOM = presets.room_config(presets.mobile()).departure_timeout
RETURNS = [
    Return("page away for 1 s", 1.0),
    Return("page away for 5 s", 5.0),
    Return("page away for 14 s", 14.0),
    Return(
        'new identity after 2 s, `follow="any"`',
        2.0,
        how={"preset": "web", "options": {"follow": "any"}},
        comes_back_as="page-2",
    ),
    Return(
        "app away for 45 s, `mobile()` and its room",
        45.0,
        how={"preset": "mobile", "departure_timeout": MOBILE_ROOM},
    ),
]


async def come_back(server: LiveKitServer, worker: Worker, result: Return) -> None:
    """One call whose user leaves and comes back."""
    async with contextlib.AsyncExitStack() as stack:
        async with STARTING:  # of a burst of dispatches LiveKit drops some
            made = await stack.enter_async_context(call(server, worker, **result.how))
        before = made.observer.room.remote_participants[made.agent].sid
        await made.heard(f"before {made.job}")
        await made.user_leaves()
        await asyncio.sleep(result.away)
        await made.user_returns(result.comes_back_as)
        heard = await made.heard(f"after {made.job}")
        # when the agent itself saw the join: what is said before, LiveKit drops
        joined = worker.log("saw_join", who=result.comes_back_as, room=made.room)[-1]
        result.heard_ms.append((heard["at"] - joined["at"]) * 1000)
        agent = made.observer.room.remote_participants.get(made.agent)
        if agent is None or agent.sid != before:
            result.wrong.append("another agent, or none")
        elif "lifecycle.exit" in agent.attributes:
            result.wrong.append("it said goodbye")
        if heard["count"] == 1:
            result.wrong.append("it forgot the conversation")


async def closed_in_time(server: LiveKitServer, worker: Worker) -> str:
    """A grace of 60 s in a room that closes after LiveKit's 20: told before that, or what not."""
    async with contextlib.AsyncExitStack() as stack:
        async with STARTING:
            made = await stack.enter_async_context(call(server, worker, preset="mobile"))
        await made.user_leaves()
        exit_, left = await made.ending(30)
        if words(exit_)[:3] != ("intentional", "timeout", "grace"):
            return str(words(exit_))
        if left.reason != "client_initiated" or left.at < exit_.at:
            return f"left by {left.reason}"
        if len(worker.log("lifecycle.grace_cut", job_id=made.job)) != 1:
            return "not one warning"
        return ""


async def main(runs: int) -> int:
    wrong: list[str] = []
    print("| user | same agent, history kept | heard once it is back, ms, median | worst |")
    print("| --- | --- | --- | --- |")
    with running() as server, running_worker(server) as worker:
        for result in RETURNS:
            for start in range(0, runs, AT_ONCE):
                batch = range(start, min(runs, start + AT_ONCE))
                await asyncio.gather(*(come_back(server, worker, result) for _ in batch))
            right = len(result.heard_ms) - len(result.wrong)
            wrong += result.wrong
            print(
                f"| {result.name} | {right} of {len(result.heard_ms)} | "
                f"{statistics.median(result.heard_ms):.0f} | {max(result.heard_ms):.0f} |",
                flush=True,
            )
        faults: list[str] = []
        half = (runs + 1) // 2
        for start in range(0, half, AT_ONCE):
            batch = range(start, min(half, start + AT_ONCE))
            faults += await asyncio.gather(*(closed_in_time(server, worker) for _ in batch))
    wrong += [fault for fault in faults if fault]
    print(
        f"\n`mobile()` in a room of 20 s, nobody comes back: one warning, and the exit told before "
        f"the room closes, {faults.count('')} of {len(faults)}."
    )
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    raise SystemExit(asyncio.run(main(parser.parse_args().runs)))
