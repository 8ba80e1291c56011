"""Endings as metrics and on spans."""

from __future__ import annotations

import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY

from livekit_lifecycle import Exit, ExitRecord, telemetry


def record(reason: str = "killed", detail: str = "SIGKILL") -> ExitRecord:
    return ExitRecord(
        exit=Exit.CRASH if reason == "killed" else Exit.INTENTIONAL,
        reason=reason,
        detail=detail,
        next="rejoin",
        job_id="AJ_1",
        room="a room",
        agent_name="front-desk",
        identity="agent-AJ_1",
        at=1.0,
        published=True,
    )


def counted() -> float:
    labels = {"exit": "crash", "reason": "killed", "agent_name": "front-desk"}
    return REGISTRY.get_sample_value(telemetry.METRIC, labels) or 0.0


def test_processes_that_die_without_a_job_are_counted_apart() -> None:
    labels = {"reason": "killed", "detail": "SIGKILL"}
    before = REGISTRY.get_sample_value(telemetry.IDLE_METRIC, labels) or 0.0
    telemetry.count_idle_death(record())
    assert REGISTRY.get_sample_value(telemetry.IDLE_METRIC, labels) == before + 1


def test_each_ending_is_counted() -> None:
    before = counted()
    telemetry.count_exit(record())
    telemetry.count_exit(record())
    assert counted() == before + 2


def test_the_current_span_is_marked_and_free_text_is_marked_as_private() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("t").start_as_current_span("job_entrypoint"):
        telemetry.mark_span(record())
        telemetry.mark_span(record("completed", "booked for Ann"))
    (span,) = exporter.get_finished_spans()
    first, second = span.events
    assert first.name == "lifecycle.exit"
    assert dict(first.attributes or {}) == {
        "lifecycle.exit": "crash",
        "lifecycle.reason": "killed",
        "lifecycle.next": "rejoin",
        "lifecycle.detail": "SIGKILL",
    }
    assert (second.attributes or {})["lifecycle.pii.detail"] == "booked for Ann"
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_without_the_libraries_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = telemetry._counter(), telemetry._span_marker()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for maker in (telemetry._counter, telemetry._span_marker):
        maker.cache_clear()
        maker()(record())
        maker.cache_clear()
    monkeypatch.setattr(telemetry, "_counter", lambda: made[0])  # one of its name at a time
