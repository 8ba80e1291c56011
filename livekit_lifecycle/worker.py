"""The worker half at work: the drain notice, and the coroner that speaks for jobs that died."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine, Mapping
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
    IDLE_PROCESS_DIED,
    INTERNAL_ERROR,
    NO_CREDENTIALS,
    PUBLISH_FAILED,
    exit_fields,
    log,
)
from .classify import ProcessEnded, classify
from .contract import (
    KEY_JOB,
    AgentExit,
    AgentStatus,
    Exit,
    ExitRecord,
    State,
    drain_attributes,
    exit_attributes,
    parse,
)
from .options import LifecycleOptions
from .telemetry import count_exit

UNLIMITED_DRAIN: Final = 24 * 3600.0
"""Seconds announced for a drain that has no limit: the contract has a deadline for each."""


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
        self._drain_until_ms: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._http = aiohttp.ClientSession(proxy=proxy, trust_env=True)
        self._api = self._connect_api()
        self._watch = _compat.WorkerWatch(
            server, on_message=self._on_message, on_closed=self._on_closed
        )

    def announce_drain(self, seconds: float) -> None:
        """Tell every room with a job of ours that its agent will be gone in ``seconds``."""
        window = seconds or UNLIMITED_DRAIN
        self._drain_until_ms = _now_ms() + round(window * 1000)
        running = self._watch.running()
        log.info(DRAIN_ANNOUNCED, jobs=len(running), window=window)
        for executor in running:
            if executor.info is not None:
                self._spawn(self._send_drain_notice(executor.info.job.id))
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
        while self._tasks and (left := deadline - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        self._watch.aclose()
        await self._http.close()

    # -- what jobs say -----------------------------------------------------------------------------

    def _on_message(self, message: str) -> None:
        # in the thread that reads the job's log; the process's end is told to the loop after it
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._on_job_word, json.loads(message))

    def _on_job_word(self, word: Mapping[str, dict[str, Any]]) -> None:
        for kind, body in word.items():
            if kind == "joined" and self._drain_until_ms is not None:
                self._spawn(self._send_drain_notice(str(body["job_id"])))
            elif kind == "unmanaged":
                self._accounted.add(str(body["job_id"]))
            elif kind == "exit":
                body["exit"] = Exit(body["exit"])
                record = ExitRecord(**body)
                self._accounted.add(record.job_id)
                self._tell_app(record)

    def _on_closed(self, executor: _compat.JobExecutor) -> None:
        cause = self._watch.kill_cause(executor.pid)
        info = executor.info
        if info is None:
            if executor.exitcode:
                log.warning(IDLE_PROCESS_DIED, exitcode=executor.exitcode, cause=cause)
        elif info.job.id in self._accounted:
            self._accounted.discard(info.job.id)
            if executor.exitcode:
                # it had said goodbye and was killed before it could leave: LiveKit lists it on
                self._spawn(self._remove_ghost(info))
        elif not info.fake_job:
            ended = ProcessEnded(executor.exitcode, killed=executor.killed, cause=cause)
            self._spawn(self._report_death(info, classify(ended)))

    # -- the coroner -------------------------------------------------------------------------------

    async def _report_death(self, info: RunningJobInfo, exit_: AgentExit) -> None:
        before = await self._bounded(
            info.job.id, self._write(info, exit_attributes(exit_, State.CLOSED))
        )
        if before is not None and before.exit is not None:
            exit_ = before.exit  # it had said goodbye: a kill after that stays a goodbye
        record = ExitRecord(
            exit=exit_.exit,
            reason=exit_.reason,
            detail=exit_.detail,
            next=exit_.next,
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
            await self._bounded(info.job.id, self._remove(info))

    async def _remove_ghost(self, info: RunningJobInfo) -> None:
        if await self._bounded(info.job.id, self._status(info)) is not None:
            await self._bounded(info.job.id, self._remove(info))

    async def _status(self, info: RunningJobInfo) -> AgentStatus | None:
        """What a job's participant says; None where it is not in the room, or is another job's."""
        if self._api is None:
            return None
        who = api.RoomParticipantIdentity(
            room=info.job.room.name, identity=info.accept_arguments.identity
        )
        try:
            participant = await self._api.room.get_participant(who)
        except api.TwirpError as error:
            if error.code == api.TwirpErrorCode.NOT_FOUND:
                return None
            raise
        status = parse(participant.attributes)
        return status if status.job == info.job.id else None

    async def _write(self, info: RunningJobInfo, attributes: dict[str, str]) -> AgentStatus | None:
        """Write onto the participant of a job, unless that has ended.

        Returns:
            What it said before; None where it is not in the room, or is another job's.
        """
        before = await self._status(info)
        if self._api is None or before is None or before.exit is not None:
            return before
        room, identity = info.job.room.name, info.accept_arguments.identity
        update = api.UpdateParticipantRequest(room=room, identity=identity, attributes=attributes)
        after = await self._api.room.update_participant(update)
        if after.attributes.get(KEY_JOB) != info.job.id:
            # a successor took over the identity in these two milliseconds: take it back
            undo = dict.fromkeys(attributes, "")
            await self._api.room.update_participant(
                api.UpdateParticipantRequest(room=room, identity=identity, attributes=undo)
            )
            return None
        return before

    async def _remove(self, info: RunningJobInfo) -> None:
        if self._api is not None:
            await self._api.room.remove_participant(
                api.RoomParticipantIdentity(
                    room=info.job.room.name, identity=info.accept_arguments.identity
                )
            )

    async def _send_drain_notice(self, job_id: str) -> None:
        info = next(
            (e.info for e in self._watch.running() if e.info and e.info.job.id == job_id), None
        )
        until = self._drain_until_ms
        if info is not None and until is not None and not info.fake_job:
            notice = drain_attributes(until, max(0, until - _now_ms()))
            await self._bounded(job_id, self._write(info, notice))

    # -- small things ------------------------------------------------------------------------------

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

    async def _bounded(
        self, job_id: str, call: Coroutine[Any, Any, AgentStatus | None]
    ) -> AgentStatus | None:
        try:
            return await asyncio.wait_for(call, self._options.publish_timeout)
        except asyncio.TimeoutError:
            log.warning(PUBLISH_FAILED, job_id=job_id, error="timeout")
        except Exception as error:  # noqa: BLE001 - whatever the network raises: one warning
            log.warning(PUBLISH_FAILED, job_id=job_id, error=type(error).__name__)
        return None

    def _tell_app(self, record: ExitRecord) -> None:
        count_exit(record)
        if self._options.on_exit is not None:
            self._call_hook("on_exit", self._options.on_exit, record)

    def _call_hook(self, name: str, hook: Callable[[Any], object], argument: object) -> None:
        timeout = self._options.hook_timeout
        self._spawn(run_hook(name, hook, argument, timeout=timeout, in_thread=True))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine, name="lifecycle")
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning(INTERNAL_ERROR, error=type(error).__name__)


def _now_ms() -> int:
    return round(time.time() * 1000)
