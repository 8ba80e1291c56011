"""Endings as metrics and on spans, where OpenTelemetry or Prometheus is installed.

Neither is imported before the first ending, and neither is needed. LiveKit's own tracer provider
and registry are used: what the app exports already, it exports with these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ._log import INTERNAL_ERROR, PRIVATE_DETAIL, log
from .contract import KEY_DETAIL, AgentExit, ExitRecord

METRIC = "livekit_lifecycle_exits_total"
"""A counter of the worker's with the labels ``exit``, ``reason`` and ``agent_name``."""

IDLE_METRIC = "livekit_lifecycle_idle_process_deaths_total"
"""A counter of the worker's with the labels ``reason`` and ``detail``: it had no job yet."""

SPAN_EVENT = "lifecycle.exit"


def count_exit(record: ExitRecord) -> None:
    """Count an ending in the worker."""
    _try(lambda: _counter()(record))


def count_idle_death(death: AgentExit) -> None:
    """Count a process that died while it waited for a job."""
    _try(lambda: _idle_counter()(death))


def mark_span(record: ExitRecord) -> None:
    """Put an ending on the span that is current in the job: LiveKit's own of the entrypoint."""
    _try(lambda: _span_marker()(record))


def _try(report: Callable[[], None]) -> None:
    try:
        report()
    except Exception as error:  # noqa: BLE001 - the call goes on without its metrics
        log.debug(INTERNAL_ERROR, error=type(error).__name__)


@functools.cache
def _counter() -> Callable[[ExitRecord], None]:
    try:
        from prometheus_client import Counter  # noqa: PLC0415 - optional
    except ImportError:
        return lambda _record: None
    counter = Counter(METRIC, "Agents that left a room", ["exit", "reason", "agent_name"])
    return lambda record: counter.labels(record.exit.value, record.reason, record.agent_name).inc()


@functools.cache
def _idle_counter() -> Callable[[AgentExit], None]:
    try:
        from prometheus_client import Counter  # noqa: PLC0415 - optional
    except ImportError:
        return lambda _death: None
    counter = Counter(IDLE_METRIC, "Prewarmed processes that died", ["reason", "detail"])
    return lambda death: counter.labels(death.reason, death.detail).inc()


@functools.cache
def _span_marker() -> Callable[[ExitRecord], None]:
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional
    except ImportError:
        return lambda _record: None

    def mark(record: ExitRecord) -> None:
        detail_key = PRIVATE_DETAIL if record.has_free_text else KEY_DETAIL
        trace.get_current_span().add_event(
            SPAN_EVENT,
            {
                "lifecycle.exit": record.exit.value,
                "lifecycle.reason": record.reason,
                "lifecycle.next": record.next,
                detail_key: record.detail,
            },
        )

    return mark
