"""Five ways for an agent to leave, live: what this plugin tells a client, and what LiveKit alone.

    python scripts/demo.py

It takes less than a minute; the first time it may have to build livekit-server before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout need not be installed
signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to stop yet, and no traceback of imports

from livekit import rtc  # noqa: E402

from livekit_lifecycle import AgentStatus, State, parse  # noqa: E402
from scripts.demo_stage import Client, DemoError, Outcome, Worker, paint, say  # noqa: E402
from scripts.livekit_server import LiveKitServer, MissingServerError, running  # noqa: E402

JOIN_TIMEOUT: Final = 25.0
WATCH: Final = 30.0
"""Seconds to wait for a leave; LiveKit takes about 22 to notice that an agent was killed."""
ZOMBIE_WATCH: Final = 12.0
"""Seconds after which nobody expects any more that a plain agent follows its user."""
PAUSE: Final = 3.0
"""Seconds that a call lasts; the killed plain agent takes longer than all of them anyway."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ALONE: Final = "{:<20}{:<35}"
PLUGIN: Final = "{:<34}{:>9}"
WORDS: Final = {
    "completed": "a goodbye: it has finished",
    "close_on_disconnect": "a goodbye: its user hung up",
    "drain": "a goodbye: its worker was told to stop",
    "exception": "a crash: its code raised an exception",
    "killed": "a crash: its process was killed",
}


@dataclass(frozen=True)
class Ending:
    """A way to leave, how it is brought about, and the exit that has to be told."""

    key: str
    title: str
    cause: str
    exit: tuple[str, str, str]


FINISH: Final = Ending(
    "finish",
    "the agent finishes",
    'the agent calls ctx.shutdown("order placed")',
    ("intentional", "completed", "order placed"),
)
HANG_UP: Final = Ending(
    "hang_up",
    "the user hangs up",
    "the user leaves; somebody else in the room watches",
    ("intentional", "close_on_disconnect", "user_left"),
)
DEPLOY: Final = Ending(
    "deploy",
    "a deploy",
    "SIGTERM to the worker; the new one is up already",
    ("intentional", "drain", "wrapped_up"),
)
EXCEPTION: Final = Ending(
    "exception",
    "an exception",
    "the entrypoint raises OutOfStockError",
    ("crash", "exception", "OutOfStockError"),
)
KILL: Final = Ending(
    "kill", "SIGKILL", "SIGKILL to the job's process", ("crash", "killed", "SIGKILL")
)
ENDINGS: Final = (FINISH, HANG_UP, DEPLOY, EXCEPTION, KILL)


class Call:
    """One room with a user and an agent, and how it ends."""

    def __init__(self, worker: Worker, ending: Ending, *, show: bool) -> None:
        self._worker, self._ending, self._show = worker, ending, show
        room = f"demo-{uuid.uuid4().hex[:8]}"
        self._user = self._observer = Client(worker.server, "user", room)
        if ending is HANG_UP:
            self._observer = Client(worker.server, "observer", room)

    async def open(self) -> None:
        """Bring the user and the agent together."""
        await self._user.connect(self._worker.agent_name, self._ending.key)
        until = time.monotonic() + JOIN_TIMEOUT
        while (seen := await self._user.next(until)) and not _serves(seen.attributes):
            pass
        if seen is None:
            msg = f"{self._worker.label} sent no agent within {JOIN_TIMEOUT:.0f} s"
            raise DemoError(msg)
        if self._observer is not self._user:
            # after the agent, so that it is the user to whom the agent listens
            await self._observer.connect()

    async def aclose(self) -> None:
        """Leave."""
        for client in {self._user, self._observer}:
            await client.room.disconnect()

    async def watch(self, limit: float = WATCH) -> Outcome:
        """Make it end, and see how that looks to a client."""
        outcome, before = Outcome(), parse({})
        at = await self._end()
        self._tell(0.0, self._ending.cause, "bold")
        while not outcome.left and (seen := await self._observer.next(at + limit)):
            outcome.after, status = seen.at - at, parse(seen.attributes)
            outcome.agent_state = seen.attributes.get("lk.agent.state", "")
            self._follow(outcome, before, status)
            outcome.left, before = seen.left, status
        if outcome.left:
            self._tell(outcome.after, f"it is gone; LiveKit's reason: {outcome.left}", "dim")
        else:
            outcome.after = limit
        return outcome

    async def _end(self) -> float:
        me = self._user.room.local_participant
        try:
            answer = await me.perform_rpc(
                destination_identity=self._user.agent, method="end", payload=self._ending.key
            )
        except rtc.RpcError as error:
            msg = f"the agent of {self._worker.label} did not answer: {error.message}"
            raise DemoError(msg) from None
        agent, at = json.loads(answer), time.monotonic()
        if self._ending is HANG_UP:
            await self._user.room.disconnect()
        elif self._ending is DEPLOY:
            self._worker.process.send_signal(signal.SIGTERM)
        elif self._ending is KILL:
            os.kill(agent["pid"], signal.SIGKILL)
        else:
            at = float(agent["at"])
        return at

    def _follow(self, outcome: Outcome, before: AgentStatus, status: AgentStatus) -> None:
        after = outcome.after
        if status.drain_ms is not None and before.drain_ms is None:
            outcome.drain_after, seconds = after, (status.drain_window_ms or 0) / 1000
            text = f"a notice: its worker was told to stop; it serves for {seconds:.0f} s at most"
            self._tell(after, text, "yellow")
        if status.exit is not None and before.exit is None:
            exit_, outcome.exit_after = status.exit, after
            outcome.exit = (exit_.exit.value, exit_.reason, exit_.detail)
            words = WORDS.get(exit_.reason, "an ending")
            text = f"{words} [{', '.join(outcome.exit)}]"
            self._tell(after, text, "green" if exit_.intentional else "red")

    def _tell(self, after: float, text: str, colour: str) -> None:
        if self._show:
            say(f"{after * 1000:8.0f} ms  {text}", colour)


def _serves(attributes: dict[str, str]) -> bool:
    status = parse(attributes)
    started = status.state is State.ACTIVE or not status.managed
    return started and attributes.get("lk.agent.state") == "listening"


@contextlib.asynccontextmanager
async def call(worker: Worker, ending: Ending, *, show: bool = False) -> AsyncIterator[Call]:
    """A call in which the agent serves."""
    made = Call(worker, ending, show=show)
    try:
        await made.open()
        yield made
    finally:
        await made.aclose()


async def watch_all(calls: dict[Ending, Call]) -> list[Outcome]:
    """All endings under LiveKit's own server, at once, with nothing shown."""
    hung_up = asyncio.create_task(calls[HANG_UP].watch(ZOMBIE_WATCH))

    async def watch(ending: Ending) -> Outcome:
        if ending is DEPLOY:
            # the end of the worker would end the agent whose user hung up as well
            await hung_up
        return await (hung_up if ending is HANG_UP else calls[ending].watch())

    return await asyncio.gather(*map(watch, ENDINGS))


async def play(old: Worker, new: Worker, plain: Worker) -> int:
    """Show the endings one by one, then the table; the exit code."""
    await asyncio.gather(*(worker.wait_registered() for worker in (old, new, plain)))
    say("all are registered; the same five endings begin under the plain one …", "dim")
    async with contextlib.AsyncExitStack() as stack:
        calls = {ending: await stack.enter_async_context(call(plain, ending)) for ending in ENDINGS}
        started = time.monotonic()
        comparison = asyncio.create_task(watch_all(calls))
        told = []
        for number, ending in enumerate(ENDINGS, 1):
            say(f"\n{number}. {ending.title}", "bold")
            worker = new if DEPLOY in ENDINGS[: number - 1] else old
            async with call(worker, ending, show=True) as played:
                # also for the sake of what is measured: the worker warms up its next process
                await asyncio.sleep(PAUSE)
                told.append(await played.watch())
        say("\nwaiting for LiveKit to notice that the plain worker's agent was killed …", "dim")
        while not comparison.done():
            say(f"{time.monotonic() - started:8.0f} s after the SIGKILL", "dim")
            await asyncio.wait({comparison}, timeout=5)
        alone = await comparison
    return report(alone, told)


def report(alone: list[Outcome], told: list[Outcome]) -> int:
    """Print the table, and what is wrong; the exit code."""
    print_table(alone, told)
    code = 0
    for ending, outcome in zip(ENDINGS, told, strict=True):
        if outcome.exit != ending.exit or (ending is DEPLOY and outcome.drain_after is None):
            say(f"\n{ending.title}: expected {ending.exit}, the client saw {outcome}", "red")
            code = 1
    return code


def print_table(alone: list[Outcome], told: list[Outcome]) -> None:
    """What LiveKit alone shows beside what this plugin shows."""
    head = ALONE.format("ending", "LiveKit alone shows")
    say("\n" + head + PLUGIN.format("this plugin shows", "how soon"), "bold")
    for ending, plain, outcome in zip(ENDINGS, alone, told, strict=True):
        seen = f"{plain.left}, after {_time(plain.after)}"
        if not plain.left:
            seen = f'still "{plain.agent_state}" after {_time(plain.after)}'
        left = ALONE.format(ending.title, seen)
        if outcome.drain_after is not None:
            notice = PLUGIN.format("a notice that it will leave", _time(outcome.drain_after))
            say(left + paint(notice, "yellow"))
            left = ALONE.format("", "")
        exit_ = ": ".join(outcome.exit[:2]) if outcome.exit else "nothing"
        colour = "green" if exit_.startswith("intentional") else "red"
        say(left + paint(PLUGIN.format(exit_, _time(outcome.exit_after)), colour))


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


async def run(server: LiveKitServer) -> int:
    """Start the workers, play, and leave nothing running."""
    me = asyncio.current_task()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, me.cancel if me else lambda: None)
    say("starting three workers: an old and a new one, and a plain one to compare with …", "dim")
    with contextlib.ExitStack() as stack:
        workers = []
        for label in ("the old worker", "the new worker", "the plain worker"):
            workers.append(Worker(server, label, plain=label == "the plain worker"))
            stack.callback(workers[-1].kill)
        return await play(*workers)


def main() -> int:
    """Run the demo; the exit code."""
    for number in SIGNALS:  # until the event loop runs, they are all like Ctrl-C
        signal.signal(number, signal.default_int_handler)
    # LiveKit's client reports errors of connections that are closed on purpose
    logging.getLogger("livekit").setLevel(logging.CRITICAL)
    try:
        given = os.environ.get("LIVEKIT_URL")
        say("using the server at LIVEKIT_URL …" if given else "starting livekit-server …", "dim")
        with running() as server:
            return asyncio.run(run(server))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("\ninterrupted; everything that was started is stopped")
        return 130
    except (DemoError, MissingServerError) as error:
        say(f"\nthe demo failed: {error}", "red")
    except BrokenPipeError:
        pass
    return 1


if __name__ == "__main__":
    # not sys.exit: LiveKit's client would wait up to 15 s for a connection that was cut off
    os._exit(main())
