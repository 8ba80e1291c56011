"""Each private name of livekit-agents that `_compat` leans on, with what to do when it changes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import logging
import socket
import sys
import types
from collections.abc import Callable
from typing import Any, cast, get_args

import pytest
from livekit.agents import AgentServer, AgentSession, JobContext, JobExecutorType, Plugin
from livekit.agents.ipc import (
    channel,
    job_proc_executor,
    job_proc_lazy_main,
    job_thread_executor,
    log_queue,
    proc_client,
    proc_pool,
    proto,
    supervised_proc,
)
from livekit.agents.utils.aio import duplex_unix
from livekit.agents.voice.room_io import RoomIO

import livekit_lifecycle
from livekit_lifecycle import _compat
from livekit_lifecycle._arguments import ServerArguments, SessionArguments
from livekit_lifecycle._plugin import LifecyclePlugin, register_plugin
from livekit_lifecycle.budget import ENTRYPOINT_SECONDS, SESSION_CLOSE_SECONDS
from tests.logs import our_records

CHANGED = "livekit-agents changed a private name: adapt livekit_lifecycle/_compat.py"


def test_the_future_that_starts_a_jobs_shutdown_is_in_reach() -> None:
    code = job_proc_lazy_main._JobProc._start_job.__code__
    nested = {c.co_name: c for c in code.co_consts if isinstance(c, types.CodeType)}
    assert "_on_ctx_shutdown" in nested, f"{CHANGED}: on_job_shutdown"
    assert "self" in nested["_on_ctx_shutdown"].co_freevars, f"{CHANGED}: on_job_shutdown"
    assert "_shutdown_fut" in nested["_on_ctx_shutdown"].co_names, f"{CHANGED}: on_job_shutdown"
    assert "_on_shutdown" in inspect.getsource(JobContext.__init__), f"{CHANGED}: on_job_shutdown"


def test_the_reason_of_a_shutdown_can_be_put_back() -> None:
    fields = {f.name for f in dataclasses.fields(job_proc_lazy_main._ShutdownInfo)}
    assert fields == {"reason", "user_initiated"}, f"{CHANGED}: on_job_shutdown"
    info = job_proc_lazy_main._ShutdownInfo(user_initiated=False, reason="a")
    info.reason = "b"
    source = inspect.getsource(job_proc_lazy_main._JobProc.entrypoint)
    assert _compat._PLAIN_SHUTDOWN in source, f"{CHANGED}: _PLAIN_SHUTDOWN"


def test_every_close_of_a_session_goes_through_one_method() -> None:
    parameters = inspect.signature(AgentSession._aclose_impl).parameters
    assert {"reason", "error"} <= set(parameters), f"{CHANGED}: on_session_closing"
    assert all(
        parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ("reason", "error")
    ), f"{CHANGED}: on_session_closing hands on keywords only"
    for way in (AgentSession.aclose, AgentSession._close_soon, AgentSession._on_error):
        assert "_aclose_impl" in inspect.getsource(way), f"{CHANGED}: on_session_closing"


async def test_a_session_knows_whether_it_was_started() -> None:
    session: AgentSession[None] = AgentSession()
    assert session._started is False, f"{CHANGED}: on_session_closing"


def test_a_session_announces_itself_to_its_job_when_it_starts() -> None:
    source = inspect.getsource(AgentSession.start)
    assert source.index("_primary_agent_session = self") < source.index(
        "job_ctx.add_shutdown_callback"
    ), "a session no longer adds a shutdown callback at its start: see Sessions.look"


async def test_the_shutdown_callback_of_a_session_leads_to_the_session() -> None:
    start = inspect.unwrap(AgentSession.start).__code__
    one = next(c for c in start.co_consts if inspect.iscode(c) and "_aclose_impl" in c.co_names)
    session: AgentSession[None] = AgentSession()
    module = vars(sys.modules[AgentSession.__module__])
    callback = types.FunctionType(one, module, closure=(types.CellType(session),))
    assert _compat.session_behind(callback) is session, f"{CHANGED}: session_behind"
    assert _compat.session_behind(lambda: session) is None, "an app's own callback is none"
    assert isinstance(inspect.getattr_static(RoomIO, "room"), property)


def test_the_options_of_a_session_are_in_reach() -> None:
    assert "self._options = " in inspect.getsource(RoomIO.__init__), f"{CHANGED}: session_options"
    assert "copy.copy(room_options)" in inspect.getsource(AgentSession.start), (
        "a session no longer keeps a copy of its options as they are: do presets get through?"
    )


def test_job_log_records_travel_through_a_handler_of_the_root_logger() -> None:
    assert issubclass(log_queue.LogQueueHandler, logging.Handler), f"{CHANGED}: open_relay"
    assert "callHandlers" in inspect.getsource(log_queue.LogQueueListener.handle), (
        f"{CHANGED}: open_relay"
    )
    joined = inspect.getsource(supervised_proc.SupervisedProc._start)
    assert joined.index("log_listener.stop()") < joined.index("_join_fut.set_result"), (
        "a process's death is told before its log is read to the end: see open_relay"
    )


def test_a_shutdown_request_can_carry_a_reason() -> None:
    assert proto.ShutdownRequest(reason="x").reason == "x", f"{CHANGED}: stop_job"
    assert inspect.iscoroutinefunction(channel.asend_message), f"{CHANGED}: stop_job"
    for executor in (supervised_proc.SupervisedProc, job_thread_executor.ThreadJobExecutor):
        assert "self._pch" in inspect.getsource(executor), f"{CHANGED}: stop_job"


def test_the_pool_tells_when_a_process_ended_and_what_ran_in_it() -> None:
    assert "process_closed" in get_args(proc_pool.EventTypes), f"{CHANGED}: WorkerWatch"
    assert isinstance(proc_pool.ProcPool.processes, property), f"{CHANGED}: WorkerWatch"
    assert "self._proc_pool = " in inspect.getsource(AgentServer.run), f"{CHANGED}: WorkerWatch"
    for executor in (job_proc_executor.ProcJobExecutor, job_thread_executor.ThreadJobExecutor):
        assert isinstance(executor.running_job, property), f"{CHANGED}: WorkerWatch"
    for name in ("exitcode", "killed", "pid"):
        assert isinstance(getattr(supervised_proc.SupervisedProc, name), property), (
            f"{CHANGED}: WorkerWatch, {name}"
        )


@pytest.mark.parametrize("start", _compat._KILL_MESSAGES)
def test_the_workers_log_still_says_why_it_kills(start: str) -> None:
    source = inspect.getsource(supervised_proc).replace("{self.process_kind}", "job")
    assert start in source, f"livekit-agents words a kill differently now: {start!r}"


def test_the_socket_of_the_log_can_be_kept_open() -> None:
    source = inspect.getsource(log_queue.LogQueueHandler)
    assert "self._duplex = duplex" in source, f"{CHANGED}: open_relay"
    assert "pickle.dumps(record)" in source, f"{CHANGED}: open_relay"
    assert isinstance(log_queue.LogQueueHandler.thread, property), f"{CHANGED}: open_relay"
    ours, theirs = socket.socketpair()
    duplex = duplex_unix._Duplex.open(ours)
    spare = duplex_unix._Duplex.open(ours.dup())
    assert duplex._sock is ours
    duplex.close()
    spare.send_bytes(b"word")
    assert duplex_unix._Duplex.open(theirs).recv_bytes() == b"word", f"{CHANGED}: open_relay"
    spare.close()
    theirs.close()


def test_a_job_process_has_the_name_we_know_it_by() -> None:
    source = inspect.getsource(job_proc_executor.ProcJobExecutor._create_process)
    assert f'name="{_compat._JOB_PROCESS}"' in source, f"{CHANGED}: is_job_process"
    assert callable(proc_client._dump_stack_traces), f"{CHANGED}: protect_job_process"


def test_the_servers_times_are_in_reach() -> None:
    given = {"drain_timeout": 7, "shutdown_process_timeout": 8.0, "session_end_timeout": 9.0}
    server = AgentServer(**given)  # type: ignore[arg-type]
    assert _compat.server_times(server) == given, f"{CHANGED}: server_times"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ServerArguments, AgentServer.__init__), (SessionArguments, AgentServer.rtc_session)],
)
def test_type_checkers_know_livekits_own_arguments(ours: type, theirs: Callable[..., Any]) -> None:
    taken = set(inspect.signature(theirs).parameters) - {"self", "func"}
    newer = {"preload_modules"}  # than the lowest livekit-agents
    assert set(ours.__annotations__) - newer <= taken <= set(ours.__annotations__), (
        "livekit-agents changed its arguments: adapt livekit_lifecycle/_arguments.py"
    )


def test_whether_jobs_run_in_threads_is_known() -> None:
    kinds = {JobExecutorType.THREAD: True, JobExecutorType.PROCESS: False}
    for kind, threads in kinds.items():
        server = AgentServer(job_executor_type=kind)
        assert _compat.uses_threads(server) is threads, f"{CHANGED}: uses_threads"


def test_a_process_is_asked_where_it_is_before_it_is_killed() -> None:
    source = inspect.getsource(supervised_proc.SupervisedProc._send_kill_signal)
    assert source.index("signal.SIGUSR1") < source.index(".kill()"), f"{CHANGED}: on_stack_dump"
    module = proc_client._dump_stack_traces.__module__
    assert module == "livekit.agents.ipc.proc_client", f"{CHANGED}: on_stack_dump"


def test_livekits_bounds_of_an_ending_are_those_we_add_up() -> None:
    close = job_proc_lazy_main._SESSION_ACLOSE_TIMEOUT
    assert close == SESSION_CLOSE_SECONDS, "see budget.py"
    source = inspect.getsource(job_proc_lazy_main._JobProc)
    assert f"timeout={ENTRYPOINT_SECONDS:g})" in source, "see budget.py"


def test_a_plugins_package_is_preloaded_in_the_forkserver() -> None:
    register_plugin()
    register_plugin()
    ours = [p for p in Plugin.registered_plugins if isinstance(p, LifecyclePlugin)]
    assert [importlib.import_module(p.package.rpartition(".")[0]) for p in ours] == [
        livekit_lifecycle
    ]
    source = inspect.getsource(AgentServer.run)
    assert "p.package for p in Plugin.registered_plugins" in source, (
        "livekit-agents no longer preloads the packages of plugins: see _plugin.py"
    )
    assert "set_forkserver_preload" in source


def test_a_name_that_is_gone_is_one_warning_and_no_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nothing = cast("Any", types.SimpleNamespace())
    _compat.on_session_closing(nothing, lambda _cause, _error: None, lambda: None)
    _compat.on_job_shutdown(nothing, lambda _shutdown: None)
    watch = _compat.WorkerWatch(
        nothing, on_message=lambda _message: None, on_closed=lambda _executor: None
    )
    assert watch.running() == []
    watch.aclose()
    features = [r.__dict__["feature"] for r in our_records(caplog) if "unavailable" in r.message]
    assert features == ["start of a session's closing", "job shutdown", "job processes"]
