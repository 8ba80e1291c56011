"""The only module that touches private names of LiveKit's.

Each function here stands for one thing that LiveKit offers no public way to. Where a name it needs
is gone, it says so in one warning and the feature that asked for it does without. A contract test
for each runs on the lowest and the newest supported livekit-agents.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from livekit import api
from livekit.agents import AgentServer, AgentSession, JobContext, JobExecutorType
from livekit.agents.job import RunningJobInfo
from livekit.agents.voice.room_io import RoomOptions

from ._log import FEATURE_UNAVAILABLE, INTERNAL_ERROR, log

_RELAY_LOGGER: Final = "livekit_lifecycle.relay"
_MARK: Final = "livekit_lifecycle: "
_PLAIN_SHUTDOWN: Final = "parent process shutdown"
_JOB_PROCESS: Final = "job_proc"
_SETTLE: Final = 0.2
"""Seconds for a log handler that was closed to write what it still has."""

_KILL_MESSAGES: Final = {
    "job process exceeded memory limit": "memory_limit",
    "process is unresponsive, killing": "unresponsive",
    "process did not ack shutdown in time": "unresponsive",
    "process did not exit in time": "shutdown_timeout",
}
"""How the worker's log announces a kill: nothing else says why it killed."""


@dataclass(frozen=True)
class JobShutdown:
    """Why the framework began to shut a job down.

    Attributes:
        reason: LiveKit's reason.
        by_app: Whether ``ctx.shutdown`` was called.
        marked: What our own worker said, see `stop_job`; empty where it said nothing.
    """

    reason: str
    by_app: bool
    marked: str = ""


@dataclass(frozen=True)
class JobExecutor:
    """One of the worker's job processes or threads, as it is now.

    Attributes:
        executor: The framework's own object, for `stop_job`.
        info: The job it runs; None for one that idles.
        pid: None for a thread.
        exitcode: As `multiprocessing` has it; None while it runs, and for a thread.
        killed: Whether the worker sent it a kill.
    """

    executor: Any
    info: RunningJobInfo | None
    pid: int | None
    exitcode: int | None
    killed: bool


def _unavailable(feature: str, error: Exception) -> None:
    log.warning(FEATURE_UNAVAILABLE, feature=feature, error=type(error).__name__)


# -- in the job ------------------------------------------------------------------------------------


def on_job_shutdown(ctx: JobContext, callback: Callable[[JobShutdown], None]) -> None:
    """Call back a few milliseconds after the framework began to shut the job down.

    Public callbacks run when the room is gone already. This is the future that starts it all,
    reachable through the closure of the function that ``ctx.shutdown`` calls.
    """
    try:
        cells = ctx._on_shutdown.__closure__ or ()  # noqa: SLF001
        runner = next(c.cell_contents for c in cells if hasattr(c.cell_contents, "_shutdown_fut"))
        future: asyncio.Future[Any] = runner._shutdown_fut  # noqa: SLF001
    except (AttributeError, StopIteration, ValueError) as error:
        _unavailable("job shutdown", error)
        return

    def done(fut: asyncio.Future[Any]) -> None:
        if fut.cancelled():
            return
        info = fut.result()
        marked = ""
        if info.reason.startswith(_MARK):
            marked = info.reason.removeprefix(_MARK)
            # the app's shutdown callbacks are told what they would be told without us
            info.reason = _PLAIN_SHUTDOWN
        callback(JobShutdown(info.reason, bool(info.user_initiated), marked))

    future.add_done_callback(done)


def on_session_closing(
    session: AgentSession[Any], begins: Callable[[str, str], None], fails: Callable[[], None]
) -> None:
    """Call back when the session's closing begins, and when it fails.

    The public ``close`` event comes when the last words are spoken and the models are down; it does
    not come at all where the closing raises, as it does for an error of a class unknown to LiveKit.

    Args:
        session: One that has started, or is about to.
        begins: Called with (reason, error type).
        fails: Called where no ``close`` event will come.
    """
    try:
        original = session._aclose_impl  # noqa: SLF001
    except AttributeError as error:
        _unavailable("start of a session's closing", error)
        return

    @functools.wraps(original)
    async def aclose_impl(**kwargs: Any) -> None:
        # LiveKit's own close of a session that never started does nothing either
        if getattr(session, "_started", True):
            reason, error = kwargs.get("reason"), kwargs.get("error")
            begins(str(getattr(reason, "value", reason)), str(getattr(error, "type", "") or ""))
        try:
            await original(**kwargs)
        except BaseException:
            fails()
            raise

    session._aclose_impl = aclose_impl  # type: ignore[method-assign]  # noqa: SLF001


def session_behind(callback: object) -> AgentSession[Any] | None:
    """The session whose own shutdown callback this is; it adds one when it starts."""
    if getattr(callback, "__module__", "") != AgentSession.__module__:
        return None
    with contextlib.suppress(ValueError):  # a cell that is empty
        for cell in getattr(callback, "__closure__", None) or ():
            if isinstance(cell.cell_contents, AgentSession):
                return cell.cell_contents  # pyright: ignore[reportUnknownVariableType]
    return None


def session_options(session: AgentSession[Any]) -> RoomOptions | None:
    """What the session was started with; None for one that has no room."""
    try:
        return session.room_io._options  # noqa: SLF001
    except AttributeError as error:
        _unavailable("presets", error)
    except RuntimeError:
        pass  # LiveKit's word for a session without a room
    return None


def protect_job_process() -> None:
    """Give this process the signal handlers that the framework means a job's process to have.

    It is to ignore SIGINT and SIGTERM, since its worker ends it, and to survive SIGUSR1. Under
    forkserver the framework's own handlers are lost: they are installed at the import of a module
    that the forkserver had imported before the job's process was forked.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGUSR1") and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        try:
            from livekit.agents.ipc.proc_client import (  # noqa: PLC0415 - private, may be gone
                _dump_stack_traces,
            )
        except ImportError as error:
            _unavailable("stack dump on SIGUSR1", error)
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGUSR1, _dump_stack_traces)


def on_stack_dump(callback: Callable[[FrameType | None], None]) -> None:
    """Call back when the framework asks this process where it is, half a second before a kill.

    It asks by SIGUSR1, and writes what it finds into a file if told so by its environment; that
    goes on. An app's own handler is left alone.

    Args:
        callback: In the main thread, with the frame that the signal came upon.
    """
    theirs = signal.getsignal(signal.SIGUSR1) if hasattr(signal, "SIGUSR1") else None
    if getattr(theirs, "__module__", "") != "livekit.agents.ipc.proc_client":
        return

    def dump(number: int, frame: FrameType | None) -> None:
        callback(frame)
        if callable(theirs):
            theirs(number, frame)

    signal.signal(signal.SIGUSR1, dump)


def is_job_process() -> bool:
    """Whether this is the main thread of a process that the framework made for a job."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and multiprocessing.current_process().name == _JOB_PROCESS


def worker_is_gone() -> bool:
    """Whether the worker that started this job's process is dead. Never in its own process."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def open_relay() -> Callable[[str], None]:
    """Open the way from a job to its worker, for lines that arrive ahead of the process's end.

    They travel where the job's log records travel, which the framework reads to the end before it
    takes notice of a process's death. Nobody but our own worker half sees them. It stays open where
    the app sets up its logging anew, which closes the framework's handler.
    """
    handler, spare = None, None
    try:
        from livekit.agents.ipc.log_queue import LogQueueHandler  # noqa: PLC0415 - may be gone
        from livekit.agents.utils.aio.duplex_unix import _Duplex  # noqa: PLC0415 - may be gone

        handlers = logging.getLogger().handlers
        handler = next((one for one in handlers if isinstance(one, LogQueueHandler)), None)
        if handler is not None:
            spare = _Duplex.open(handler._duplex._sock.dup())  # type: ignore[union-attr]  # noqa: SLF001  # pyright: ignore[reportOptionalMemberAccess]
    except (ImportError, AttributeError) as error:
        _unavailable("relay from job to worker", error)
    if handler is None and is_job_process():
        _unavailable("relay from job to worker", LookupError())

    def send(message: str) -> None:
        record = logging.LogRecord(_RELAY_LOGGER, logging.DEBUG, __file__, 0, message, None, None)
        if handler is None:
            logging.getLogger(_RELAY_LOGGER).handle(record)  # thread executor: the worker is here
        elif handler in logging.getLogger().handlers or spare is None:
            handler.handle(record)
        else:
            handler.thread.join(_SETTLE)  # two must not write at once
            with contextlib.suppress(Exception):  # the worker is gone
                spare.send_bytes(pickle.dumps(record))

    return send


# -- in the worker ---------------------------------------------------------------------------------


class _Receiver(logging.Handler):
    def __init__(self, callback: Callable[[str], None]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        self._callback(record.getMessage())


class _KillWatcher(logging.Handler):
    def __init__(self, causes: dict[int, str]) -> None:
        super().__init__()
        self._causes = causes

    def emit(self, record: logging.LogRecord) -> None:
        pid = getattr(record, "pid", None)
        message = record.getMessage()
        for start, cause in _KILL_MESSAGES.items():
            if isinstance(pid, int) and message.startswith(start):
                self._causes[pid] = cause


class WorkerWatch:
    """Follows a running server's job processes.

    Args:
        server: A server that has started.
        on_message: Given each line of `send_to_worker`, in some thread.
        on_closed: Given each executor that ended, in the server's loop.
    """

    def __init__(
        self,
        server: AgentServer,
        *,
        on_message: Callable[[str], None],
        on_closed: Callable[[JobExecutor], None],
    ) -> None:
        self._causes: dict[int, str] = {}
        self._pool: Any = None
        relay = logging.getLogger(_RELAY_LOGGER)
        relay.setLevel(logging.DEBUG)
        relay.propagate = False
        self._handlers: list[tuple[logging.Logger, logging.Handler]] = [
            (relay, _Receiver(on_message)),
            (logging.getLogger("livekit.agents"), _KillWatcher(self._causes)),
        ]
        for logger, handler in self._handlers:
            logger.addHandler(handler)
        try:
            self._pool = server._proc_pool  # noqa: SLF001
            self._pool.on("process_closed", self._report(on_closed))
        except AttributeError as error:
            _unavailable("job processes", error)

    @staticmethod
    def _report(on_closed: Callable[[JobExecutor], None]) -> Callable[[Any], None]:
        def closed(executor: Any) -> None:
            on_closed(_snapshot(executor))

        return closed

    def kill_cause(self, pid: int | None) -> str:
        """Why the worker killed that process; empty where it didn't."""
        return self._causes.pop(pid, "") if pid is not None else ""

    def running(self) -> list[JobExecutor]:
        """Those with a job."""
        executors: Iterable[Any] = self._pool.processes if self._pool is not None else ()
        return [_snapshot(executor) for executor in executors if executor.running_job]

    def aclose(self) -> None:
        """Stop following."""
        for logger, handler in self._handlers:
            logger.removeHandler(handler)


def _snapshot(executor: Any) -> JobExecutor:
    return JobExecutor(
        executor=executor,
        info=executor.running_job,
        pid=getattr(executor, "pid", None),
        exitcode=getattr(executor, "exitcode", None),
        killed=bool(getattr(executor, "killed", False)),
    )


async def stop_job(executor: JobExecutor, how: str) -> None:
    """Ask a job to shut down and tell it how come, ahead of the framework's own request.

    Both travel by the same pipe, so the job can't see the nameless one first.
    """
    try:
        from livekit.agents.ipc import channel, proto  # noqa: PLC0415 - private, may be gone

        request = proto.ShutdownRequest(reason=_MARK + how)
        await channel.asend_message(executor.executor._pch, request)  # noqa: SLF001
    except (ImportError, AttributeError, TypeError) as error:
        _unavailable("naming the end of a job", error)
    except Exception as error:  # noqa: BLE001 - a pipe that is closed: the job is ending already
        log.debug(INTERNAL_ERROR, error=type(error).__name__)


async def end_process(executor: JobExecutor) -> None:
    """End a job's process as the framework ends those of a worker that closes.

    It is asked first, and killed after the server's ``shutdown_process_timeout``.
    """
    await executor.executor.aclose()


def server_times(server: AgentServer) -> dict[str, float]:
    """The server's own times by the names of its arguments, in seconds; 0 for no limit."""
    names = ("drain_timeout", "shutdown_process_timeout", "session_end_timeout")
    try:
        return {name: float(getattr(server, f"_{name}") or 0) for name in names}
    except AttributeError as error:
        _unavailable("time sums", error)
        return dict.fromkeys(names, math.inf)


def uses_threads(server: AgentServer) -> bool:
    """Whether its jobs run in threads of its own process."""
    return getattr(server, "_job_executor_type", None) is JobExecutorType.THREAD


def is_running(server: AgentServer) -> bool:
    """Whether the server has started and is not closed yet."""
    return not getattr(server, "_closed", False)


# -- in a back end ---------------------------------------------------------------------------------


def server_rpc(
    lkapi: api.LiveKitAPI, *, room: str, identity: str, method: str, seconds: float
) -> Awaitable[object] | None:
    """An RPC to a participant by the server API, for which livekit-api has no method.

    Returns:
        The call, which raises `api.TwirpError`; None where a name that it needs is gone.
    """
    try:
        from livekit.protocol.room import (  # noqa: PLC0415 - absent in older livekit-protocol
            PerformRpcRequest,
            PerformRpcResponse,
        )

        service = lkapi.room
        request = PerformRpcRequest(
            room=room,
            destination_identity=identity,
            method=method,
            response_timeout_ms=round(seconds * 1000),
        )
        grants = service._auth_header(api.VideoGrants(room_admin=True, room=room))  # noqa: SLF001
        return service._client.request(  # noqa: SLF001
            "RoomService", "PerformRpc", request, grants, PerformRpcResponse
        )
    except (ImportError, AttributeError, TypeError):
        return None
