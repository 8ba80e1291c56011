"""Follow the agents of a room through joins, leaves, and the reader's own reconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from livekit import rtc
from livekit.protocol.models import DisconnectReason

from ._log import HOOK_FAILED, log
from .contract import UNMANAGED, AgentStatus, State, parse
from .reading import NO_RETURN, ROOM_OVER, AgentEnd, decide_end, end_from, milliseconds_left

Event = Literal["joined", "state", "waiting", "draining", "exit", "gone"]

ON_BEHALF: Final = "lk.publish_on_behalf"
"""An avatar carries it: an agent by kind, but only another one's face."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One instance of an agent, as it was at one moment. It never changes.

    Attributes:
        identity: Its participant identity, which a successor may use again.
        sid: Its participant sid, which may change under a living agent.
        status: What its attributes said last. ``status.job`` tells the instances apart.
        present: Whether the room lists it. A killed agent stays listed for some 20 s.
        end: How it ended: as soon as that is written or, where nothing was, once it is judged.
        until: When the present state runs out, on the event loop's clock in seconds.
        drained_by: When it will be gone because of a drain, on the same clock.
    """

    identity: str
    sid: str
    status: AgentStatus
    present: bool = True
    end: AgentEnd | None = None
    until: float | None = None
    drained_by: float | None = None


class Participant(Protocol):
    """What is used of `rtc.RemoteParticipant`."""

    @property
    def identity(self) -> str: ...
    @property
    def sid(self) -> str: ...
    @property
    def kind(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    @property
    def disconnect_reason(self) -> int | None: ...


class Room(Protocol):
    """What is used of `rtc.Room`."""

    @property
    def remote_participants(self) -> Mapping[str, Participant]: ...
    @property
    def connection_state(self) -> int: ...
    def on(self, event: rtc.room.EventTypes, callback: Callable[..., object], /) -> object: ...
    def off(self, event: rtc.room.EventTypes, callback: Callable[..., object], /) -> object: ...


Callback = Callable[[Agent], object]
_Key = tuple[str, str]


@dataclass(frozen=True)
class _Leave:
    reason: str
    timer: asyncio.TimerHandle


class AgentWatcher:
    """Follows every agent of a room. Made by `watch`.

    Each callback is given an `Agent`, in the order things happened, never while ``on`` runs:

    - ``joined``: an instance was seen for the first time, those already there included
    - ``state``: what it says about itself changed, or it came back
    - ``waiting``: its user is away; ``until`` is the end of its patience
    - ``draining``: its worker was told to stop; ``drained_by`` is the end of it
    - ``exit``: its ending is known, which may be long before it leaves
    - ``gone``: it is out of the room
    """

    def __init__(self, room: Room, settle: float, wall_clock: Callable[[], float]) -> None:
        self._room = room
        self._settle = settle
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()
        self._agents: dict[_Key, Agent] = {}
        self._latest: dict[str, _Key] = {}
        self._leaves: dict[_Key, _Leave] = {}
        self._callbacks: dict[Event, list[Callback]] = {}
        self._cut_off = room.connection_state == rtc.ConnectionState.CONN_RECONNECTING
        self._settling: asyncio.TimerHandle | None = None
        for event, handler in self._handlers():
            room.on(event, handler)
        self._scan()

    @property
    def agents(self) -> tuple[Agent, ...]:
        """Every instance seen so far, the oldest first, those that have gone included."""
        return tuple(self._agents.values())

    def on(self, event: Event, callback: Callback) -> Callback:
        """Call ``callback`` at each ``event``. One that raises is logged and does no other harm."""
        self._callbacks.setdefault(event, []).append(callback)
        return callback

    def off(self, event: Event, callback: Callback) -> None:
        """Undo `on`; harmless where it was not done."""
        if callback in self._callbacks.get(event, []):
            self._callbacks[event].remove(callback)

    async def aclose(self) -> None:
        """Let go of the room. No callback is called any more; harmless when called twice."""
        for event, handler in self._handlers():
            self._room.off(event, handler)
        self._callbacks.clear()
        self._stop_settling()
        for key in list(self._leaves):
            self._forget_leave(key)

    def _handlers(self) -> tuple[tuple[rtc.room.EventTypes, Callable[..., object]], ...]:
        return (
            ("participant_connected", self._seen),
            ("participant_active", self._seen),
            ("participant_attributes_changed", self._changed),
            ("participant_disconnected", self._left),
            ("connection_state_changed", self._connection),
            ("disconnected", self._disconnected),
        )

    def _scan(self) -> None:
        for participant in list(self._room.remote_participants.values()):
            self._seen(participant)

    def _changed(self, _changed: object, participant: Participant) -> None:
        self._seen(participant)

    def _seen(self, participant: Participant) -> None:
        # events that were held back during a reconnect may speak of one who has gone since
        if self._room.remote_participants.get(participant.identity) is participant:
            self._update(participant)

    def _left(self, participant: Participant) -> None:
        listed = self._room.remote_participants.get(participant.identity, participant)
        latest = self._latest.get(participant.identity)
        told_before = latest is not None and not self._agents[latest].present
        if listed is not participant or told_before:
            return
        # the exit may never have come as an event of its own
        key = self._update(participant)
        if key is None:
            return
        agent = self._put(key, replace(self._agents[key], present=False))
        reason = reason_word(participant.disconnect_reason)
        # it may be its own reconnect, or the first we hear of ours: only time can tell
        known = agent.end is not None or reason in NO_RETURN
        timer = self._loop.call_later(0 if known else self._settle, self._overdue, key)
        self._leaves[key] = _Leave(reason, timer)

    def _update(self, participant: Participant) -> _Key | None:
        if not is_agent(participant.kind, participant.attributes):
            return None
        status = parse(participant.attributes)
        identity, sid = participant.identity, participant.sid
        key, latest = (identity, status.job), self._latest.get(identity)
        if latest is not None and latest != key:
            before = self._agents[latest]
            if before.sid == sid and before.status.managed and not status.managed:
                return latest  # the last will stands, whoever took its attributes away
            if before.sid == sid and not before.status.managed:
                self._forget_leave(latest)
                self._agents[key] = self._agents.pop(latest)  # now it has introduced itself
            else:
                self._superseded(latest)
        self._latest[identity] = key
        self._refresh(key, Agent(identity=identity, sid=sid, status=status))
        return key

    def _refresh(self, key: _Key, new: Agent) -> None:
        self._forget_leave(key)
        old = self._agents.get(key)
        was = old.status if old else UNMANAGED
        status = replace(new.status, exit=was.exit or new.status.exit)  # frozen once written
        fresh = old is not None and old.present and not self._cut_off
        until, drained_by = (old.until, old.drained_by) if old else (None, None)
        deadline = (status.deadline_ms, status.window_ms)
        drain = (status.drain_ms, status.drain_window_ms)
        if until is None or deadline != (was.deadline_ms, was.window_ms):
            until = self._at(*deadline, fresh=fresh)
        if drained_by is None or drain != (was.drain_ms, was.drain_window_ms):
            drained_by = self._at(*drain, fresh=fresh)
        end = end_from(status.exit) if status.exit else None
        agent = replace(new, status=status, until=until, drained_by=drained_by, end=end)
        self._tell_changes(old, self._put(key, agent))

    def _tell_changes(self, old: Agent | None, new: Agent) -> None:
        was = old.status if old else UNMANAGED
        if old is None:
            self._tell("joined", new)
        if old is None or was != new.status or not old.present:
            self._tell("state", new)
        if _patience(new.status) not in {None, _patience(was)}:
            self._tell("waiting", new)
        if new.status.drain_ms not in {None, was.drain_ms}:
            self._tell("draining", new)
        if new.end is not None and (old is None or old.end != new.end):
            self._tell("exit", new)

    def _at(self, deadline: int | None, window: int | None, *, fresh: bool) -> float | None:
        now = int(self._wall_clock() * 1000)
        left = milliseconds_left(deadline, window, fresh=fresh, now=now)
        return None if left is None else self._loop.time() + left / 1000

    def _superseded(self, key: _Key) -> None:
        leave = self._leaves.get(key)
        if self._agents[key].present or leave is not None:
            # LiveKit tells no reason where the identity is taken over within one batch
            reason = (leave.reason if leave else "") or "duplicate_identity"
            self._judge(key, reason, cut_off=self._cut_off)

    def _overdue(self, key: _Key) -> None:
        self._scan()  # some updates of the room come without an event
        leave = self._leaves.get(key)
        if leave is not None and not self._cut_off:
            self._judge(key, leave.reason, cut_off=False)

    def _judge(self, key: _Key, reason: str, *, cut_off: bool) -> None:
        self._forget_leave(key)
        old = self._agents[key]
        end = old.end or decide_end(old.status, reason, cut_off=cut_off)
        agent = self._put(key, replace(old, present=False, end=end, until=None, drained_by=None))
        if old.end is None:
            self._tell("exit", agent)
        self._tell("gone", agent)

    def _connection(self, state: int) -> None:
        self._stop_settling()
        if state == rtc.ConnectionState.CONN_RECONNECTING:
            self._cut_off = True
        elif state == rtc.ConnectionState.CONN_CONNECTED:
            self._scan()
            if self._cut_off:
                self._settling = self._loop.call_later(self._settle, self._settled)

    def _settled(self) -> None:
        self._scan()
        listed = self._room.remote_participants
        for key, agent in list(self._agents.items()):
            if key in self._leaves or (agent.present and agent.identity not in listed):
                self._judge(key, "", cut_off=True)
        self._cut_off = False

    def _disconnected(self, own_reason: int) -> None:
        reason = reason_word(own_reason)
        for key, agent in list(self._agents.items()):
            leave = self._leaves.get(key)
            if leave is not None and leave.reason and not self._cut_off:
                self._judge(key, leave.reason, cut_off=False)
            elif leave is not None or agent.present:
                self._judge(key, reason, cut_off=reason not in ROOM_OVER)
        self._stop_settling()
        self._cut_off = False

    def _stop_settling(self) -> None:
        if self._settling is not None:
            self._settling.cancel()

    def _forget_leave(self, key: _Key) -> None:
        leave = self._leaves.pop(key, None)
        if leave is not None:
            leave.timer.cancel()

    def _put(self, key: _Key, agent: Agent) -> Agent:
        self._agents[key] = agent
        return agent

    def _tell(self, event: Event, agent: Agent) -> None:
        # later, so that callbacks registered right after `watch` hear of those already there
        self._loop.call_soon(self._deliver, event, agent)

    def _deliver(self, event: Event, agent: Agent) -> None:
        for callback in list(self._callbacks.get(event, ())):
            try:
                callback(agent)
            except Exception as error:  # noqa: BLE001, PERF203 - one reader's fault is not another's
                log.warning(HOOK_FAILED, hook=event, error=type(error).__name__)


def is_agent(kind: int, attributes: Mapping[str, str]) -> bool:
    """Whether a participant is an agent, and not an avatar that speaks for one."""
    return kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT and ON_BEHALF not in attributes


def reason_word(reason: int | None) -> str:
    """LiveKit's disconnect reason in lower case; empty where there is none or it is not known."""
    if not reason or reason not in DisconnectReason.values():
        return ""
    return DisconnectReason.Name(DisconnectReason.ValueType(reason)).lower()


def _patience(status: AgentStatus) -> tuple[int | None] | None:
    return (status.deadline_ms,) if status.state is State.WAITING else None
