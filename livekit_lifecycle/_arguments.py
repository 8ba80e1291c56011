"""The arguments of LiveKit's own that we hand on, for type checkers: a test holds them to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

from livekit.agents import (
    AgentServer,
    JobContext,
    JobExecutorType,
    JobProcess,
    JobRequest,
    WorkerPermissions,
)
from livekit.agents.types import NotGivenOr
from livekit.agents.worker import ServerEnvOption, ServerType


class ServerArguments(TypedDict, total=False):
    """Of ``AgentServer``, which documents them."""

    job_executor_type: JobExecutorType
    load_threshold: float | ServerEnvOption[float]
    job_memory_warn_mb: float
    job_memory_limit_mb: float
    drain_timeout: int
    num_idle_processes: int | ServerEnvOption[int]
    shutdown_process_timeout: float
    session_end_timeout: float
    initialize_process_timeout: float
    permissions: WorkerPermissions
    max_retry: int
    ws_url: str | None
    api_key: str | None
    api_secret: str | None
    host: str
    port: int | ServerEnvOption[int]
    http_proxy: NotGivenOr[str | None]
    multiprocessing_context: Literal["spawn", "forkserver"]
    setup_fnc: Callable[[JobProcess], Any] | None
    load_fnc: Callable[[AgentServer], float] | Callable[[], float] | None
    preload_modules: list[str] | None
    prometheus_port: int | None
    prometheus_multiproc_dir: str | None
    log_level: str | ServerEnvOption[str]


class SessionArguments(TypedDict, total=False):
    """Of ``AgentServer.rtc_session``, which documents them."""

    agent_name: str
    type: ServerType
    on_request: Callable[[JobRequest], Any] | None
    on_session_end: Callable[[JobContext], Any] | None
    on_simulation_end: Callable[[Any], Any] | None
