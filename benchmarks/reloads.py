"""Page reloads under ``presets.web()``, twenty times each: is it the same agent, is the user heard?

Run by ``make bench``. Prints the table that README.md quotes. ``--runs N`` for another number.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from dataclasses import dataclass, field

from scripts.livekit_server import LiveKitServer, running
from tests.harness import Worker, call, running_worker

AWAY = (1.0, 5.0, 14.0)
AT_ONCE = 4


@dataclass
class Reload:
    """Of a page that was away for so long."""

    away: float
    heard_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


async def reload(server: LiveKitServer, worker: Worker, result: Reload) -> None:
    """One call whose page is reloaded once."""
    async with call(server, worker, preset="web") as made:
        before = made.observer.room.remote_participants[made.agent].sid
        await made.heard(f"before {made.job}")
        await made.user_leaves()
        await asyncio.sleep(result.away)
        await made.user_returns()
        heard = await made.heard(f"after {made.job}")
        # when the agent itself saw the join: what is said before, LiveKit drops
        joined = worker.log("saw_join", who="user", room=made.room)[-1]
        result.heard_ms.append((heard["at"] - joined["at"]) * 1000)
        agent = made.observer.room.remote_participants.get(made.agent)
        if agent is None or agent.sid != before:
            result.wrong.append("another agent, or none")
        elif "lifecycle.exit" in agent.attributes:
            result.wrong.append("it said goodbye")
        if heard["count"] == 1:
            result.wrong.append("it forgot the conversation")


async def main(runs: int) -> int:
    wrong = 0
    print("| page away for | same agent, history kept | user heard once it is back, ms |")
    print("| --- | --- | --- |")
    with running() as server, running_worker(server) as worker:
        for away in AWAY:
            result = Reload(away)
            for start in range(0, runs, AT_ONCE):
                batch = range(start, min(runs, start + AT_ONCE))
                await asyncio.gather(*(reload(server, worker, result) for _ in batch))
            right = len(result.heard_ms) - len(result.wrong)
            wrong += len(result.wrong)
            print(
                f"| {away:g} s | {right} of {len(result.heard_ms)} | "
                f"median {statistics.median(result.heard_ms):.0f}, "
                f"worst {max(result.heard_ms):.0f} |",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    raise SystemExit(asyncio.run(main(parser.parse_args().runs)))
