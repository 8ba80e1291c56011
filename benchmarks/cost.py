"""What the lifecycle costs: import time, memory of a job's process, CPU of an idle call.

Run by ``make bench``. Each figure is a comparison with the same agent under a plain AgentServer.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import psutil

from scripts.livekit_server import LiveKitServer, running
from tests.harness import call, running_worker

IMPORTS = 7
JOBS = 3
IDLE_SECONDS = 20.0


@dataclass
class Cost:
    """Of one job's process."""

    memory_mb: float
    cpu_percent: float


def import_ms(module: str) -> float:
    """Median milliseconds to import livekit.agents and then ``module``, in a fresh interpreter."""
    script = (
        "import time, livekit.agents, structlog\n"
        "start = time.perf_counter()\n"
        f"import {module}\n"
        "print((time.perf_counter() - start) * 1000)"
    )
    runs = [
        float(
            subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout
        )
        for _ in range(IMPORTS)
    ]
    return statistics.median(runs)


async def job_cost(server: LiveKitServer, *, plain: bool) -> Cost:
    """Median over some calls in which nothing happens."""
    memory, cpu = [], []
    with running_worker(server, environment={"ACTOR_PLAIN": "1" if plain else "0"}) as worker:
        for _ in range(JOBS):
            async with call(server, worker) as made:
                process = psutil.Process(int((await made.do("nothing"))["pid"]))
                await asyncio.sleep(3)  # what a call does at its start is over
                before, started = process.cpu_times(), time.monotonic()
                await asyncio.sleep(IDLE_SECONDS)
                after, seconds = process.cpu_times(), time.monotonic() - started
                used = (after.user - before.user) + (after.system - before.system)
                cpu.append(100 * used / seconds)
                memory.append(process.memory_full_info().uss / 2**20)
    return Cost(statistics.median(memory), statistics.median(cpu))


async def main() -> None:
    ours = import_ms("livekit_lifecycle")
    with running() as server:
        without = await job_cost(server, plain=True)
        with_us = await job_cost(server, plain=False)
    print("| cost | AgentServer | LifecycleServer |")
    print("| --- | --- | --- |")
    print(f"| import, ms beyond livekit.agents and structlog | 0 | {ours:.0f} |")
    print(f"| memory of a job's process, MB | {without.memory_mb:.1f} | {with_us.memory_mb:.1f} |")
    print(f"| CPU of an idle call, % | {without.cpu_percent:.1f} | {with_us.cpu_percent:.1f} |")


if __name__ == "__main__":
    asyncio.run(main())
