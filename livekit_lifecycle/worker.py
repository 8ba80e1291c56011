"""The worker half at work: the drain notice, and a word for jobs that can't say it themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal

import aiohttp
from livekit import api
from livekit.agents import AgentServer
from livekit.agents.job import RunningJobInfo

from . import _compat
from ._hooks import run_hook
from ._log import (
    CRASH_REPORTED,
    DRAIN_ANNOUNCED,
    HANGS,
    IDLE_PROCESS_DIED,
    NO_CREDENTIALS,
    THREADS,
    exit_fields,
    log,
)
from ._oom import OomKills
from ._tasks import Tasks
from .classify import ProcessEnded, classify, with_successor
from .contract import AgentExit, Exit, ExitRecord, Next, State, drain_attributes, exit_attributes
from .coroner import Coroner
from .options import LifecycleOptions
from .telemetry import count_exit, count_idle_death

UNLIMITED_DRAIN: Final = 24 * 3600.0
"""Seconds announced for a drain that has no limit: the contract has a deadline for each."""

_SIGKILL: Final = -getattr(signal, "SIGKILL", 9)
_LONG: Final = "lifecycle_long"
"""Name of tasks for which a worker that closes does not wait."""


class WorkerLifecycle:
    """Follows a running server's jobs.

    Args:
        server: A server that has started.
        options: The worker's options.
        proxy: HTTP proxy of the server, if it has one.
    """

    def __init__(self, server: AgentServer, options: LifecycleOptions, proxy: str | None) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._accounted: set[str] = set()
        self._watched: set[str] = set()
        self._overdue: dict[str, asyncio.TimerHandle] = {}
        self._drain_until_ms: int | None = None
        self._tasks = Tasks()
        self._oom = self._loop.run_in_executor(None, OomKills)  # it reads files
        self._http = aiohttp.ClientSession(proxy=proxy, trust_env=True)
        self._api = self._connect_api()
        self._coroner = Coroner(self._api, options.publish_timeout)
        self._watch = _compat.WorkerWatch(
            server, on_message=self._on_message, on_closed=self._on_closed
        )
        if _compat.uses_threads(server):
            log.warning(THREADS, lost="what kills a job kills the worker, and nobody can tell")

    def announce_drain(self, seconds: float) -> None:
        """Tell every room with a job of ours that its agent will be gone in ``seconds``."""
        window = seconds or UNLIMITED_DRAIN
        self._drain_until_ms = _now_ms() + round(window * 1000)
        running = self._watch.running()
        log.info(DRAIN_ANNOUNCED, jobs=len(running), window=window)
        for executor in running:
            if executor.info is not None:
                self._tasks.spawn(self._send_drain_notice(executor.info))
        if self._options.on_drain is not None:
            self._call_hook("on_drain", self._options.on_drain, self._drain_until_ms / 1000)

    async def stop_jobs(self, how: Literal["drain_timeout", "shutdown"]) -> None:
        """Tell each job that it is cut off and how come. The framework then does the cutting."""
        stops = [_compat.stop_job(executor, how) for executor in self._watch.running()]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*stops), self._options.publish_timeout)

    async def aclose(self) -> None:
        """Finish what is under way and stop following. Bounded."""
        bound = 2 * self._options.publish_timeout + self._options.hook_timeout
        deadline = self._loop.time() + bound
        # what is under way may begin more: a crash that is reported is then told to a hook
        while (tasks := self._tasks.running() - self._tasks.running(_LONG)) and (
            left := deadline - self._loop.time()
        ) > 0:
            await asyncio.wait(tasks, timeout=left)
        self._watch.aclose()
        for timer in self._overdue.values():
            timer.cancel()
        await self._tasks.cancel()
        await self._http.close()

    # -- what jobs say -----------------------------------------------------------------------------

    def _on_message(self, message: str) -> None:
        # in the thread that reads the job's log; the process's end is told to the loop after it
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._on_job_word, json.loads(message))

    def _on_job_word(self, word: Mapping[str, dict[str, Any]]) -> None:
        for kind, body in word.items():
            if kind == "joined":
                executor = self._running(str(body["job_id"]))
                if executor is not None and executor.info is not None:
                    self._tasks.spawn(self._send_drain_notice(executor.info))
            elif kind == "watched":
                self._watched.add(str(body["job_id"]))
            elif kind == "exit":
                body["exit"] = Exit(body["exit"])
                self._on_exit(ExitRecord(**body))

    def _on_exit(self, record: ExitRecord) -> None:
        self._accounted.add(record.job_id)
        self._tell_app(record)
        executor = self._running(record.job_id)
        if executor is None or executor.info is None:
            return
        if self._options.exit_timeout is not None and executor.pid is not None:
            self._overdue[record.job_id] = self._loop.call_later(
                self._options.exit_timeout, self._end_process, executor, record.job_id
            )
        if not record.intentional and record.next == Next.WAIT:
            self._tasks.spawn(self._follow_up(executor.info), _LONG)

    # -- how their processes end -------------------------------------------------------------------

    def _end_process(self, executor: _compat.JobExecutor, job_id: str) -> None:
        # nobody else does where an app's shutdown callback never returns
        log.warning(HANGS, job_id=job_id, seconds=self._options.exit_timeout)
        self._tasks.spawn(_compat.end_process(executor), _LONG)

    def _on_closed(self, executor: _compat.JobExecutor) -> None:
        self._tasks.spawn(self._explain(executor, self._watch.kill_cause(executor.pid)))

    async def _explain(self, executor: _compat.JobExecutor, cause: str) -> None:
        by_someone = executor.exitcode == _SIGKILL and not executor.killed and not cause
        if by_someone and await asyncio.to_thread((await self._oom).explain_one):
            cause = "oom"
        ended = ProcessEnded(executor.exitcode, killed=executor.killed, cause=cause)
        info = executor.info
        if info is None:
            if executor.exitcode:
                death = classify(ended)
                log.warning(IDLE_PROCESS_DIED, reason=death.reason, detail=death.detail)
                count_idle_death(death)
            return
        watched = info.job.id in self._watched
        self._watched.discard(info.job.id)
        timer = self._overdue.pop(info.job.id, None)
        if timer is not None:
            timer.cancel()
        if info.job.id in self._accounted:
            self._accounted.discard(info.job.id)
            if executor.exitcode:
                # it had said goodbye and was killed before it could leave: LiveKit lists it on
                await self._coroner.put_out(info)
            return
        # one that ended by itself and of which we never heard may have said goodbye
        if not info.fake_job and (executor.exitcode or watched):
            await self._report_death(info, classify(ended))

    async def _report_death(self, info: RunningJobInfo, exit_: AgentExit) -> None:
        successor = await self._plan_successor(info)
        if successor is not None:
            exit_ = with_successor(exit_)
        before = await self._coroner.write(info, exit_attributes(exit_, State.CLOSED))
        if before is not None and before.exit is not None:
            exit_ = before.exit  # it had said goodbye: a kill after that stays a goodbye
        record = ExitRecord(
            **asdict(exit_),
            job_id=info.job.id,
            room=info.job.room.name,
            agent_name=info.job.agent_name,
            identity=info.accept_arguments.identity,
            at=time.time(),
            published=before is not None,
        )
        log.warning(CRASH_REPORTED, **exit_fields(record))
        self._tell_app(record)
        if before is not None:
            await self._coroner.put_out(info)
        if successor is not None and not record.intentional:
            self._tasks.spawn(self._send_successor(info, successor), _LONG)

    # -- who follows -------------------------------------------------------------------------------

    async def _plan_successor(self, info: RunningJobInfo) -> str | None:
        policy = self._options.restart
        if policy is None or self._api is None:
            return None
        from .succession import plan_successor  # noqa: PLC0415 - off, unless asked for

        plan = plan_successor(self._api, info.job, info.job.metadata, policy)
        return await self._coroner.bounded(info, plan)

    async def _send_successor(self, info: RunningJobInfo, metadata: str) -> None:
        from .succession import send_successor  # noqa: PLC0415 - off, unless asked for

        if self._api is not None:
            await send_successor(self._api, info.job, metadata)

    async def _follow_up(self, info: RunningJobInfo) -> None:
        successor = await self._plan_successor(info)
        if successor is not None:
            await self._send_successor(info, successor)

    # -- small things ------------------------------------------------------------------------------

    def _running(self, job_id: str) -> _compat.JobExecutor | None:
        running = self._watch.running()
        return next((one for one in running if one.info and one.info.job.id == job_id), None)

    async def _send_drain_notice(self, info: RunningJobInfo) -> None:
        until = self._drain_until_ms
        if until is not None and not info.fake_job:
            await self._coroner.write(info, drain_attributes(until, max(0, until - _now_ms())))

    def _connect_api(self) -> api.LiveKitAPI | None:
        try:
            # the server puts its URL and keys, wherever it had them from, into the environment
            return api.LiveKitAPI(session=self._http)
        except ValueError:
            log.warning(
                NO_CREDENTIALS,
                needed="LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET",
                lost="drain notices and crashes of killed jobs are not published",
            )
            return None

    def _tell_app(self, record: ExitRecord) -> None:
        count_exit(record)
        if self._options.on_exit is not None:
            self._call_hook("on_exit", self._options.on_exit, record)

    def _call_hook(self, name: str, hook: Callable[[Any], object], argument: object) -> None:
        timeout = self._options.hook_timeout
        self._tasks.spawn(run_hook(name, hook, argument, timeout=timeout, in_thread=True))


def _now_ms() -> int:
    return round(time.time() * 1000)
