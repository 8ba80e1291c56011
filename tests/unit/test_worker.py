"""The worker half where it can't do its work, and where it must not."""

from __future__ import annotations

import asyncio
import json
import types
from collections.abc import Callable
from typing import Any

import pytest
from livekit import api
from livekit.agents import utils
from livekit.agents.job import JobAcceptArguments, RunningJobInfo
from livekit.protocol import agent, models

from livekit_lifecycle import ExitRecord, LifecycleOptions
from livekit_lifecycle.contract import will_attributes
from livekit_lifecycle.worker import WorkerLifecycle
from tests.logs import our_records


class Pool(utils.EventEmitter[Any]):
    """The framework's pool of job processes, as far as it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Any] = []

    def dies(self, job_id: str, **how: Any) -> None:
        job = agent.Job(id=job_id, room=models.Room(name="a room"), agent_name="front-desk")
        accepted = JobAcceptArguments(name="", identity="receptionist", metadata="")
        info = RunningJobInfo(accepted, job, "ws://x", "token", "AW_1", fake_job=False)
        executor = {"exitcode": -9, "killed": False, "pid": 4711, "running_job": info, **how}
        self.emit("process_closed", types.SimpleNamespace(**executor))


class Rooms:
    """A server that lists one participant and does as it is told."""

    def __init__(self, job_id: str, *, taken_over_by: str = "") -> None:
        self.attributes = will_attributes(job_id)
        self.taken_over_by = taken_over_by
        self.updates: list[dict[str, str]] = []
        self.removed = 0

    async def get_participant(self, _: object) -> models.ParticipantInfo:
        return models.ParticipantInfo(attributes=self.attributes)

    async def update_participant(
        self, request: api.UpdateParticipantRequest
    ) -> models.ParticipantInfo:
        self.updates.append(dict(request.attributes))
        if self.taken_over_by:
            self.attributes = will_attributes(self.taken_over_by)
        return models.ParticipantInfo(attributes={**self.attributes, **request.attributes})

    async def remove_participant(self, _: object) -> None:
        self.removed += 1


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEKIT_URL", "ws://127.0.0.1:1")
    monkeypatch.setenv("LIVEKIT_API_KEY", "key")
    monkeypatch.setenv("LIVEKIT_API_SECRET", "secret" * 8)


def start(rooms: Rooms | None, **options: Any) -> tuple[WorkerLifecycle, Pool]:
    pool = Pool()
    server: Any = types.SimpleNamespace(_proc_pool=pool)
    worker = WorkerLifecycle(server, LifecycleOptions(**options), None)
    if rooms is not None:
        worker._coroner._api = types.SimpleNamespace(room=rooms)  # type: ignore[assignment]
    return worker, pool


async def test_without_keys_there_is_one_warning_and_the_hook_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("URL", "API_KEY", "API_SECRET"):
        monkeypatch.delenv(f"LIVEKIT_{name}", raising=False)
    told: list[ExitRecord] = []
    worker, pool = start(None, on_exit=told.append)
    worker.announce_drain(10)
    pool.dies("AJ_1")
    await worker.aclose()
    warnings = [r.message for r in our_records(caplog) if "credentials" in r.message]
    assert warnings == ["lifecycle.no_credentials"]
    assert [(r.reason, r.detail, r.published) for r in told] == [("killed", "SIGKILL", False)]


@pytest.mark.usefixtures("credentials")
async def test_a_crash_is_written_and_the_dead_one_put_out() -> None:
    rooms = Rooms("AJ_1")
    told: list[ExitRecord] = []
    worker, pool = start(rooms, on_exit=told.append)
    pool.dies("AJ_1")
    await worker.aclose()
    assert rooms.updates[0]["lifecycle.exit"] == "crash"
    assert rooms.removed == 1
    assert [(r.identity, r.published) for r in told] == [("receptionist", True)]


@pytest.mark.usefixtures("credentials")
async def test_nothing_is_written_onto_another_jobs_participant() -> None:
    rooms = Rooms("AJ_2")
    worker, pool = start(rooms)
    pool.dies("AJ_1")
    await worker.aclose()
    assert (rooms.updates, rooms.removed) == ([], 0)


@pytest.mark.usefixtures("credentials")
async def test_a_successor_who_came_between_look_and_write_is_cleared_again() -> None:
    rooms = Rooms("AJ_1", taken_over_by="AJ_2")
    worker, pool = start(rooms)
    pool.dies("AJ_1")
    await worker.aclose()
    crash, undo = rooms.updates
    assert undo == dict.fromkeys(crash, "")
    assert rooms.removed == 0, "it lives"


@pytest.mark.usefixtures("credentials")
async def test_a_server_that_fails_or_hangs_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(_: object) -> models.ParticipantInfo:
        raise ConnectionResetError

    async def hangs(_: object) -> models.ParticipantInfo:
        await asyncio.Event().wait()
        raise AssertionError

    faults: list[tuple[Callable[..., Any], str]] = [
        (fails, "ConnectionResetError"),
        (hangs, "timeout"),
    ]
    for fault, name in faults:
        caplog.clear()
        rooms = Rooms("AJ_1")
        rooms.get_participant = fault  # type: ignore[method-assign]
        told: list[ExitRecord] = []
        worker, pool = start(rooms, on_exit=told.append, publish_timeout=0.1)
        pool.dies("AJ_1")
        await worker.aclose()
        failed = [r for r in our_records(caplog) if r.message == "lifecycle.publish_failed"]
        assert [r.__dict__["error"] for r in failed] == [name]
        assert [r.published for r in told] == [False]


@pytest.mark.usefixtures("credentials")
async def test_a_job_that_has_accounted_for_itself_is_let_be() -> None:
    rooms = Rooms("AJ_1")
    told: list[ExitRecord] = []
    worker, pool = start(rooms, on_exit=told.append)
    record = {"exit": "intentional", "reason": "completed", "detail": "", "next": "end"}
    whose = {"job_id": "AJ_1", "room": "a room", "agent_name": "", "identity": "x", "at": 1.0}
    worker._on_message(json.dumps({"exit": {**record, **whose, "published": True}}))
    await asyncio.sleep(0)
    pool.dies("AJ_1", exitcode=0)
    await worker.aclose()
    assert (rooms.updates, rooms.removed) == ([], 0)
    assert [r.reason for r in told] == ["completed"]


@pytest.mark.usefixtures("credentials")
async def test_an_idle_process_that_dies_is_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    told: list[ExitRecord] = []
    worker, pool = start(Rooms("AJ_1"), on_exit=told.append)
    pool.dies("AJ_1", running_job=None)
    pool.dies("AJ_2", running_job=None, exitcode=0)
    await worker.aclose()
    assert [r.message for r in our_records(caplog)] == ["lifecycle.idle_process_died"]
    assert told == []
