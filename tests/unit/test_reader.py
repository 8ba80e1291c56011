"""The watcher against a room whose events come in the order that LiveKit's were seen in."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from livekit import rtc
from livekit.protocol.models import DisconnectReason, ParticipantInfo
from livekit.protocol.webhook import WebhookEvent

from livekit_lifecycle.contract import (
    AgentExit,
    Exit,
    State,
    drain_attributes,
    exit_attributes,
    state_attributes,
    will_attributes,
)
from livekit_lifecycle.reader import Agent, AgentWatcher, from_webhook, watch

SETTLE = 0.05
NOW = 1_760_000_000.0
GOODBYE = exit_attributes(AgentExit(exit=Exit.INTENTIONAL, reason="completed"))

CONNECTED = rtc.ConnectionState.CONN_CONNECTED
RECONNECTING = rtc.ConnectionState.CONN_RECONNECTING
DISCONNECTED = rtc.ConnectionState.CONN_DISCONNECTED

_sids = itertools.count()


@dataclass
class Person:
    """A remote participant."""

    identity: str = "agent"
    attributes: dict[str, str] = field(default_factory=dict)
    kind: int = rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
    sid: str = field(default_factory=lambda: f"PA_{next(_sids)}")
    disconnect_reason: int | None = None


def agent(job: str = "AJ_1", identity: str = "agent", **more: str) -> Person:
    extra = {f"lifecycle.{key}": value for key, value in more.items()}
    return Person(identity, will_attributes(job) | state_attributes(State.ACTIVE) | extra)


class FakeRoom:
    """As much of a room as a reader looks at."""

    def __init__(self) -> None:
        self.remote_participants: dict[str, Person] = {}
        self.connection_state: int = CONNECTED
        self._handlers: dict[str, list[Callable[..., object]]] = {}

    def on(self, event: str, callback: Callable[..., object], /) -> object:
        self._handlers.setdefault(event, []).append(callback)
        return callback

    def off(self, event: str, callback: Callable[..., object], /) -> object:
        self._handlers[event].remove(callback) if callback in self._handlers[event] else None
        return None

    def emit(self, event: str, *args: object) -> None:
        for handler in list(self._handlers.get(event, ())):
            handler(*args)

    def join(self, person: Person) -> Person:
        self.remote_participants[person.identity] = person
        self.emit("participant_connected", person)
        return person

    def leave(self, person: Person, reason: int | None = DisconnectReason.CLIENT_INITIATED) -> None:
        person.disconnect_reason = reason
        del self.remote_participants[person.identity]
        self.emit("participant_disconnected", person)

    def write(self, person: Person, attributes: dict[str, str]) -> None:
        merged = person.attributes | attributes
        person.attributes = {key: value for key, value in merged.items() if value}
        self.emit("participant_attributes_changed", attributes, person)

    def state(self, state: int) -> None:
        self.connection_state = state
        self.emit("connection_state_changed", state)

    def start_full_reconnect(self) -> None:
        """Everyone is told to have left before the room says what is going on."""
        for person in list(self.remote_participants.values()):
            self.leave(person, None)
        self.state(RECONNECTING)


class Log:
    """What a watcher told."""

    def __init__(self, watcher: AgentWatcher) -> None:
        self.events: list[tuple[str, Agent]] = []
        for event in ("joined", "state", "waiting", "draining", "exit", "gone"):
            watcher.on(event, lambda a, e=event: self.events.append((e, a)))  # type: ignore[misc]

    @property
    def names(self) -> list[str]:
        return [event for event, _ in self.events]

    @property
    def ends(self) -> list[tuple[str, str, str, str]]:
        told: list[tuple[str, str, str, str]] = []
        for event, one in self.events:
            if event == "exit":
                assert one.end is not None
                exit_ = one.end.exit
                reason, detail = (exit_.reason, exit_.detail) if exit_ else ("", "")
                told.append((one.status.job, one.end.outcome, reason, detail))
        return told


@pytest.fixture
def room() -> FakeRoom:
    return FakeRoom()


@pytest.fixture
async def watcher(room: FakeRoom) -> AsyncIterator[AgentWatcher]:
    watcher = watch(room, settle=SETTLE, wall_clock=lambda: NOW)
    yield watcher
    await watcher.aclose()


@pytest.fixture
def told(watcher: AgentWatcher) -> Log:
    return Log(watcher)


async def tick() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def settle() -> None:
    await asyncio.sleep(SETTLE * 2)


async def test_a_goodbye_is_told_when_it_is_written_and_the_leave_when_it_comes(
    room: FakeRoom, told: Log
) -> None:
    one = room.join(agent())
    room.write(one, GOODBYE)
    await tick()
    assert told.names == ["joined", "state", "state", "exit"]
    assert told.events[-1][1].present
    room.leave(one)
    await tick()
    assert told.names[4:] == ["gone"]
    assert told.ends == [("AJ_1", "intentional", "completed", "")]
    await settle()
    assert told.names[5:] == []


async def test_a_late_joiner_hears_of_those_already_there() -> None:
    room = FakeRoom()
    room.remote_participants["agent"] = agent(state="waiting")
    watcher = watch(room)
    told = Log(watcher)
    assert [one.status.state for one in watcher.agents] == [State.WAITING]
    await tick()
    assert told.names == ["joined", "state", "waiting"]
    await watcher.aclose()


async def test_a_room_that_connects_later_is_scanned_then(room: FakeRoom, told: Log) -> None:
    room.remote_participants["agent"] = agent()
    room.state(CONNECTED)
    await tick()
    assert told.names == ["joined", "state"]


async def test_the_exit_may_be_in_the_join_already(room: FakeRoom, told: Log) -> None:
    room.join(Person(attributes=will_attributes("AJ_1") | GOODBYE))
    await tick()
    assert told.ends == [("AJ_1", "intentional", "completed", "")]


async def test_the_exit_may_be_known_by_the_leave_only(room: FakeRoom, told: Log) -> None:
    one = room.join(agent())
    one.attributes = one.attributes | GOODBYE
    room.leave(one)
    await tick()
    assert told.ends == [("AJ_1", "intentional", "completed", "")]
    assert told.names[-1] == "gone"


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("CLIENT_INITIATED", ("crash", "unknown", "client_initiated")),
        ("CONNECTION_TIMEOUT", ("crash", "unknown", "connection_timeout")),
        ("AGENT_ERROR", ("crash", "unknown", "agent_error")),
        ("UNKNOWN_REASON", ("crash", "unknown", "")),
        ("PARTICIPANT_REMOVED", ("intentional", "removed", "participant_removed")),
        ("DUPLICATE_IDENTITY", ("intentional", "replaced", "duplicate_identity")),
        ("ROOM_DELETED", ("intentional", "room_closed", "deleted")),
        ("ROOM_CLOSED", ("intentional", "room_closed", "empty")),
        ("SERVER_SHUTDOWN", ("intentional", "server_shutdown", "")),
    ],
)
async def test_a_leave_without_an_exit(
    room: FakeRoom, told: Log, reason: str, end: tuple[str, str, str]
) -> None:
    room.leave(room.join(agent()), DisconnectReason.Value(reason))
    await settle()
    assert told.ends == [("AJ_1", *end)]
    assert told.names[-1] == "gone"


async def test_a_removed_agent_is_not_waited_for(room: FakeRoom, told: Log) -> None:
    room.leave(room.join(agent()), DisconnectReason.PARTICIPANT_REMOVED)
    await tick()
    assert told.names[-2:] == ["exit", "gone"]


async def test_an_unmanaged_agent_never_crashes(room: FakeRoom, told: Log) -> None:
    room.leave(room.join(Person(attributes={"lk.agent.state": "listening"})))
    await settle()
    assert told.ends == [("", "unmanaged", "", "")]


@pytest.mark.parametrize(
    "person",
    [
        Person("user", {}, rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD),
        Person("forger", will_attributes("AJ_1"), rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD),
        Person("avatar", {"lk.publish_on_behalf": "agent"} | will_attributes("AJ_1")),
        Person("egress", {}, rtc.ParticipantKind.PARTICIPANT_KIND_EGRESS),
    ],
    ids=lambda person: person.identity,
)
async def test_who_is_no_agent(room: FakeRoom, told: Log, person: Person) -> None:
    room.leave(room.join(person), DisconnectReason.CONNECTION_TIMEOUT)
    await settle()
    assert told.names == []


async def test_an_agent_that_reconnects_did_not_leave(room: FakeRoom, told: Log) -> None:
    room.leave(room.join(agent()))
    await asyncio.sleep(SETTLE / 2)
    room.join(agent())
    await settle()
    assert "exit" not in told.names
    assert "gone" not in told.names
    assert told.events[-1][1].present


async def test_an_agent_that_is_listed_again_without_a_word_did_not_leave(
    room: FakeRoom, told: Log
) -> None:
    room.leave(room.join(agent()))
    room.remote_participants["agent"] = agent()
    await settle()
    assert "gone" not in told.names


async def test_a_leave_that_is_told_twice_is_one(room: FakeRoom, told: Log) -> None:
    one = room.join(agent())
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT)
    await settle()
    room.emit("participant_disconnected", one)
    await settle()
    assert told.names.count("gone") == 1
    assert told.names.count("state") == 1


async def test_an_agent_that_comes_back_after_its_verdict_lives(
    room: FakeRoom, watcher: AgentWatcher, told: Log
) -> None:
    room.leave(room.join(agent()), DisconnectReason.CONNECTION_TIMEOUT)
    await settle()
    room.join(agent())
    await tick()
    assert told.names == ["joined", "state", "exit", "gone", "state"]
    assert [(one.present, one.end) for one in watcher.agents] == [(True, None)]


async def test_an_agent_that_comes_back_still_counts_down(room: FakeRoom, told: Log) -> None:
    deadline = str(int((NOW + 9) * 1000))
    room.leave(room.join(agent(state="waiting", deadline=deadline, window="15000")))
    await settle()
    assert told.events[-1][1].until is None
    room.join(agent(state="waiting", deadline=deadline, window="15000"))
    await tick()
    assert told.events[-1][1].until is not None


async def test_own_full_reconnect(room: FakeRoom, told: Log) -> None:
    one = room.join(agent())
    room.start_full_reconnect()
    await settle()
    room.join(one)
    room.state(CONNECTED)
    await settle()
    assert "exit" not in told.names
    assert "gone" not in told.names


async def test_own_signal_reconnect(room: FakeRoom, told: Log) -> None:
    room.join(agent())
    room.state(RECONNECTING)
    await settle()
    room.state(CONNECTED)
    await settle()
    assert told.names == ["joined", "state"]


@pytest.mark.parametrize("full", [True, False], ids=["full", "signal"])
async def test_a_leave_during_own_reconnect_is_unclear(
    room: FakeRoom, told: Log, *, full: bool
) -> None:
    one = room.join(agent())
    if full:
        room.start_full_reconnect()
    else:
        room.state(RECONNECTING)
        room.leave(one)
    room.state(CONNECTED)
    assert told.ends == []
    await settle()
    assert told.ends == [("AJ_1", "unclear", "", "")]
    assert told.names[-1] == "gone"


async def test_a_leave_that_was_never_told_is_seen_after_own_reconnect(
    room: FakeRoom, told: Log
) -> None:
    room.join(agent())
    room.state(RECONNECTING)
    room.remote_participants.clear()
    room.state(CONNECTED)
    await settle()
    assert told.ends == [("AJ_1", "unclear", "", "")]


async def test_a_watch_that_begins_in_the_middle_of_a_reconnect() -> None:
    room = FakeRoom()
    one = room.join(agent())
    room.connection_state = RECONNECTING
    watcher = watch(room, settle=SETTLE)
    told = Log(watcher)
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT)
    room.state(CONNECTED)
    await settle()
    assert told.ends == [("AJ_1", "unclear", "", "")]
    await watcher.aclose()


async def test_a_second_reconnect_before_the_first_has_settled(room: FakeRoom, told: Log) -> None:
    room.join(agent())
    room.start_full_reconnect()
    room.state(CONNECTED)
    await asyncio.sleep(SETTLE / 2)
    room.state(RECONNECTING)
    await settle()
    assert told.ends == []
    room.join(agent())
    room.state(CONNECTED)
    await settle()
    assert told.ends == []


async def test_a_goodbye_before_own_reconnect_stays_one(room: FakeRoom, told: Log) -> None:
    one = room.join(agent())
    room.write(one, GOODBYE)
    room.start_full_reconnect()
    room.state(CONNECTED)
    await settle()
    assert told.ends == [("AJ_1", "intentional", "completed", "")]


async def test_unclear_agents_come_back_after_a_server_restart(
    room: FakeRoom, watcher: AgentWatcher, told: Log
) -> None:
    room.join(agent())
    room.start_full_reconnect()
    room.state(CONNECTED)
    await settle()
    room.join(agent())
    await tick()
    assert [outcome for _, outcome, _, _ in told.ends] == ["unclear"]
    assert [(one.present, one.end) for one in watcher.agents] == [(True, None)]


async def test_after_own_reconnect_has_settled_a_crash_is_one_again(
    room: FakeRoom, told: Log
) -> None:
    one = room.join(agent())
    room.state(RECONNECTING)
    room.state(CONNECTED)
    await settle()
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT)
    await settle()
    assert told.ends == [("AJ_1", "crash", "unknown", "connection_timeout")]


async def test_a_ghost_that_is_not_listed_is_ignored(room: FakeRoom, told: Log) -> None:
    room.emit("participant_connected", agent())
    room.emit("participant_attributes_changed", {}, agent())
    await settle()
    assert told.names == []


async def test_the_late_leave_of_an_object_that_was_replaced_is_ignored(
    room: FakeRoom, told: Log
) -> None:
    old = agent("AJ_1")
    room.join(agent("AJ_2"))
    room.emit("participant_disconnected", old)
    await settle()
    assert told.ends == []


async def test_a_successor_by_the_same_identity(
    room: FakeRoom, watcher: AgentWatcher, told: Log
) -> None:
    room.leave(room.join(agent("AJ_1")), None)
    room.join(agent("AJ_2"))
    await tick()
    assert told.ends == [("AJ_1", "intentional", "replaced", "duplicate_identity")]
    assert [(one.status.job, one.present) for one in watcher.agents] == [
        ("AJ_1", False),
        ("AJ_2", True),
    ]


async def test_a_successor_in_the_same_object_without_any_leave(room: FakeRoom, told: Log) -> None:
    one = room.join(agent("AJ_1"))
    one.attributes, one.sid = will_attributes("AJ_2"), "PA_other"
    room.emit("participant_active", one)
    await tick()
    assert told.ends == [("AJ_1", "intentional", "replaced", "duplicate_identity")]


async def test_a_successor_of_one_whose_leave_had_a_reason(room: FakeRoom, told: Log) -> None:
    room.leave(room.join(agent("AJ_1")), DisconnectReason.CONNECTION_TIMEOUT)
    room.join(agent("AJ_2"))
    await tick()
    assert told.ends == [("AJ_1", "crash", "unknown", "connection_timeout")]


async def test_a_successor_that_came_during_own_reconnect(room: FakeRoom, told: Log) -> None:
    room.join(agent("AJ_1"))
    room.start_full_reconnect()
    room.join(agent("AJ_2"))
    room.state(CONNECTED)
    await tick()
    assert told.ends == [("AJ_1", "unclear", "", "")]


async def test_a_successor_by_another_identity(room: FakeRoom, told: Log) -> None:
    old = room.join(agent("AJ_1"))
    room.join(agent("AJ_2", "agent-2", previous="AJ_1"))
    room.leave(old, DisconnectReason.CONNECTION_TIMEOUT)
    await settle()
    assert told.ends == [("AJ_1", "crash", "unknown", "connection_timeout")]


async def test_the_last_will_cannot_be_taken_back(room: FakeRoom, told: Log) -> None:
    one = room.join(agent())
    one.attributes = {}
    room.emit("participant_attributes_changed", {"lifecycle.version": ""}, one)
    room.leave(one, DisconnectReason.CONNECTION_TIMEOUT)
    await settle()
    assert [outcome for _, outcome, _, _ in told.ends] == ["crash"]


async def test_a_written_exit_is_never_changed(room: FakeRoom, told: Log) -> None:
    one = room.join(agent())
    room.write(one, GOODBYE)
    room.write(one, exit_attributes(AgentExit(exit=Exit.CRASH, reason="killed")))
    room.leave(one)
    await settle()
    assert told.ends == [("AJ_1", "intentional", "completed", "")]


async def test_an_agent_may_introduce_itself_after_it_joined(
    room: FakeRoom, watcher: AgentWatcher, told: Log
) -> None:
    one = room.join(Person())
    room.write(one, will_attributes("AJ_1"))
    await tick()
    assert told.names == ["joined", "state", "state"]
    assert [a.status.job for a in watcher.agents] == ["AJ_1"]


@pytest.mark.parametrize(
    ("own_reason", "outcome", "reason"),
    [
        ("ROOM_DELETED", "intentional", "room_closed"),
        ("ROOM_CLOSED", "intentional", "room_closed"),
        ("SERVER_SHUTDOWN", "intentional", "server_shutdown"),
        ("CLIENT_INITIATED", "unclear", ""),
        ("PARTICIPANT_REMOVED", "unclear", ""),
        ("DUPLICATE_IDENTITY", "unclear", ""),
        ("UNKNOWN_REASON", "unclear", ""),
    ],
)
async def test_own_disconnect(
    room: FakeRoom, told: Log, own_reason: str, outcome: str, reason: str
) -> None:
    room.join(agent())
    room.state(DISCONNECTED)
    room.emit("disconnected", DisconnectReason.Value(own_reason))
    await tick()
    assert [(o, r) for _, o, r, _ in told.ends] == [(outcome, reason)]
    assert told.names[-1] == "gone"


async def test_a_leave_before_own_disconnect_keeps_its_reason(room: FakeRoom, told: Log) -> None:
    room.leave(room.join(agent()), DisconnectReason.CONNECTION_TIMEOUT)
    room.emit("disconnected", DisconnectReason.CLIENT_INITIATED)
    await tick()
    assert told.ends == [("AJ_1", "crash", "unknown", "connection_timeout")]


async def test_waiting_and_draining_with_their_deadlines(room: FakeRoom, told: Log) -> None:
    one = room.join(agent())
    # a clock that is an hour off must not matter for what was written just now
    wrong = int((NOW - 3600) * 1000)
    room.write(one, state_attributes(State.WAITING, wrong + 15_000, 15_000))
    room.write(one, drain_attributes(wrong + 60_000, 60_000))
    room.write(one, {"lk.agent.state": "listening"})
    await tick()
    assert told.names == ["joined", "state", "state", "waiting", "state", "draining"]
    now = asyncio.get_running_loop().time()
    last = told.events[-1][1]
    assert last.until is not None
    assert last.drained_by is not None
    assert last.until - now == pytest.approx(15, abs=0.2)
    assert last.drained_by - now == pytest.approx(60, abs=0.2)
    room.write(one, state_attributes(State.ACTIVE))
    await tick()
    assert told.events[-1][1].until is None


async def test_a_late_joiner_counts_to_the_same_deadline() -> None:
    room = FakeRoom()
    deadline = str(int((NOW + 9) * 1000))
    room.remote_participants["agent"] = agent(state="waiting", deadline=deadline, window="15000")
    watcher = watch(room, wall_clock=lambda: NOW)
    until = watcher.agents[0].until
    assert until is not None
    assert until - asyncio.get_running_loop().time() == pytest.approx(9, abs=0.2)
    await watcher.aclose()


async def test_a_callback_that_raises_does_no_harm(
    room: FakeRoom, watcher: AgentWatcher, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(_: Agent) -> None:
        raise RuntimeError

    watcher.on("joined", bad)
    told = Log(watcher)
    room.join(agent())
    await tick()
    assert told.names == ["joined", "state"]
    assert "RuntimeError" in str([vars(record) for record in caplog.records])


async def test_nothing_is_told_after_off_or_aclose(room: FakeRoom, watcher: AgentWatcher) -> None:
    heard: list[Agent] = []
    callback = watcher.on("state", heard.append)
    watcher.off("state", callback)
    watcher.off("state", callback)
    one = room.join(agent())
    await tick()
    assert heard == []
    watcher.on("state", heard.append)
    room.leave(one)
    await watcher.aclose()
    await watcher.aclose()
    room.join(agent("AJ_2"))
    await settle()
    assert heard == []


def _event(name: str, attributes: dict[str, str], reason: str, kind: str = "AGENT") -> WebhookEvent:
    return WebhookEvent(
        event=name,
        participant=ParticipantInfo(
            identity="agent",
            kind=kind,
            attributes=attributes,
            disconnect_reason=reason,
        ),
    )


@pytest.mark.parametrize("name", ["participant_left", "participant_connection_aborted"])
def test_a_webhook_tells_the_end(name: str) -> None:
    will = will_attributes("AJ_1")
    goodbye = from_webhook(_event(name, will | GOODBYE, "CLIENT_INITIATED"))
    assert goodbye == AgentExit(exit=Exit.INTENTIONAL, reason="completed")
    crash = from_webhook(_event(name, will, "CONNECTION_TIMEOUT"))
    assert crash is not None
    assert (crash.exit, crash.reason, crash.detail, crash.next) == (
        Exit.CRASH,
        "unknown",
        "connection_timeout",
        "rejoin",
    )


@pytest.mark.parametrize(
    "event",
    [
        WebhookEvent(),
        _event("participant_joined", will_attributes("AJ_1"), "UNKNOWN_REASON"),
        _event("participant_left", {}, "CLIENT_INITIATED"),
        _event("participant_left", will_attributes("AJ_1"), "CLIENT_INITIATED", "STANDARD"),
        _event(
            "participant_left", will_attributes("A") | {"lk.publish_on_behalf": "a"}, "MIGRATION"
        ),
    ],
)
def test_other_webhooks_tell_nothing(event: WebhookEvent) -> None:
    assert from_webhook(event) is None
