"""Connects the grace and the limits of one session to its room, its speech and the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

from livekit import rtc
from livekit.agents import AgentSession
from livekit.agents.job import DEFAULT_PARTICIPANT_KINDS
from livekit.agents.types import ATTRIBUTE_PUBLISH_ON_BEHALF
from livekit.agents.voice.room_io import RoomOptions
from livekit.agents.voice.room_io.types import DEFAULT_CLOSE_ON_DISCONNECT_REASONS

from ._log import GRACE_CUT, log
from .classify import Evidence
from .contract import State
from .grace import Action, End, Grace, Returned, Waiting
from .options import Limits
from .presets import ROOM_MARGIN, LifecycleRoomOptions

OWN_LINK_SETTLE: Final = 10.0
"""Seconds that users have to be back after the agent's own link broke: so long a client needs.

While it is broken, LiveKit tells of a leave of everybody, and of joins about when it is back.
"""

_SHORTEST_GRACE: Final = 0.1


class Attendance:
    """Follows who is there for one session, from its start to its end.

    Args:
        room: The session's room, connected or not.
        session: The session.
        options: What it was started with; None where that can't be known.
        show: Called with the state and the Unix deadline in seconds that clients should see.
        tell: Called with the name and the argument of each event for the app's hooks.
        end: Called with the evidence when the session has to end.
        guarded: Wraps each handler, so that a fault of ours never reaches LiveKit's.
    """

    def __init__(  # noqa: PLR0913 - four callables instead of the whole job
        self,
        room: rtc.Room,
        session: AgentSession[Any],
        options: RoomOptions | None,
        *,
        show: Callable[[State, float | None], None],
        tell: Callable[[Literal["waiting", "returned", "limit_warning"], object], None],
        end: Callable[[Evidence], None],
        guarded: Callable[[Callable[..., None]], Callable[..., None]],
    ) -> None:
        self._room, self._session = room, session
        self._show, self._tell, self._end = show, tell, end
        self._loop = asyncio.get_running_loop()
        ours = options if isinstance(options, LifecycleRoomOptions) else None
        self._kinds = (options and options.participant_kinds) or DEFAULT_PARTICIPANT_KINDS
        self._only = (options and options.participant_identity) or ""
        self._closes_at_once = options is not None and options.close_on_disconnect
        limits = ours.limits if ours else Limits()
        self._grace = Grace(ours.reconnect if ours else None, limits, self._loop.time())
        self._busy = {"user": False, "agent": False}
        self._shown: tuple[State, float | None] = (State.STARTING, None)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._unsure: dict[str, str] = {}  # who left while our own link was broken, and the reason
        self._step = guarded(self._apply)
        self._settle = guarded(self._settle_unsure)
        self._handlers: list[tuple[Any, str, Callable[..., None]]] = [
            (room, "connection_state_changed", guarded(self._on_connection_state)),
            (room, "participant_connected", guarded(self._on_joined)),
            (room, "participant_disconnected", guarded(self._on_left)),
            (session, "user_state_changed", guarded(self._on_user_state)),
            (session, "agent_state_changed", guarded(self._on_agent_state)),
            (session, "user_input_transcribed", guarded(self._on_words)),
            (session, "conversation_item_added", guarded(self._on_words)),
        ]
        for emitter, event, handler in self._handlers:
            emitter.on(event, handler)
        if room.isconnected():
            self._on_connection_state(rtc.ConnectionState.CONN_CONNECTED)

    def aclose(self) -> None:
        """Stop following: the session is over, or ends for another reason."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for emitter, event, handler in self._handlers:
            emitter.off(event, handler)
        self._handlers.clear()

    @property
    def serves(self) -> bool:
        """Whether the session has a user who is there, may yet come, or may still come back."""
        return not self._closed and self._grace.serves

    def bye(self, identity: str) -> bool:
        """Somebody says goodbye; whether that is the session's user, who then is not waited for."""
        try:
            actions = self._grace.bye(identity)
        except PermissionError:
            return False
        # the answer first: the caller may wait for it before it leaves
        self._loop.call_soon(self._step, actions)
        return True

    # -- what happens ------------------------------------------------------------------------------

    def _on_connection_state(self, state: rtc.ConnectionState.ValueType) -> None:
        if state != rtc.ConnectionState.CONN_CONNECTED:
            return
        self._fit_grace_into_room()
        for participant in self._room.remote_participants.values():
            self._on_joined(participant)
        self._step([])
        if self._unsure:
            left = max(0.0, OWN_LINK_SETTLE - self._grace.seconds)
            self._loop.call_later(left, self._settle)

    def _fit_grace_into_room(self) -> None:
        closes_after = self._room.departure_timeout
        if closes_after <= 0:
            return  # the server does not say
        grace = self._grace.seconds
        if self._grace.cut_grace(max(closes_after - ROOM_MARGIN, _SHORTEST_GRACE)):
            log.warning(
                GRACE_CUT,
                grace=grace,
                departure_timeout=closes_after,
                cut_to=self._grace.seconds,
                cure="create the room with presets.room_config(options)",
            )

    def _on_joined(self, participant: rtc.RemoteParticipant) -> None:
        self._unsure.pop(participant.identity, None)
        if self._may_be_user(participant):
            self._step(self._grace.joined(participant.identity, self._loop.time()))

    def _settle_unsure(self) -> None:
        if self._room.connection_state == rtc.ConnectionState.CONN_RECONNECTING:
            return  # broken once more: those are judged 10 s after it is back again
        unsure, self._unsure = self._unsure, {}
        for identity, reason in unsure.items():
            self._step(self._grace.left(identity, reason, self._loop.time()))

    def _on_left(self, participant: rtc.RemoteParticipant) -> None:
        reason = reason_name(participant.disconnect_reason)
        if self._room.connection_state == rtc.ConnectionState.CONN_RECONNECTING:
            # it is we who are away. Where we don't come back, LiveKit's word for that follows.
            self._unsure[participant.identity] = reason
            return
        if (
            self._closes_at_once
            and participant.disconnect_reason in DEFAULT_CLOSE_ON_DISCONNECT_REASONS
        ):
            return  # LiveKit closes the session in this very moment: nobody is waited for
        self._step(self._grace.left(participant.identity, reason, self._loop.time()))

    def _may_be_user(self, participant: rtc.RemoteParticipant) -> bool:
        # whom RoomIO could link: no recorders, no other agents, nobody's avatar
        return (
            participant.kind in self._kinds
            and ATTRIBUTE_PUBLISH_ON_BEHALF not in participant.attributes
            and (not self._only or participant.identity == self._only)
        )

    def _on_user_state(self, event: Any) -> None:
        if event.new_state != "away":  # LiveKit's word for silence, the very thing that is counted
            self._note_activity("user", busy=event.new_state == "speaking")

    def _on_agent_state(self, event: Any) -> None:
        self._note_activity("agent", busy=event.new_state in ("speaking", "thinking"))

    def _on_words(self, _: object) -> None:
        self._grace.activity(self._loop.time(), busy=any(self._busy.values()))
        self._step([])

    def _note_activity(self, who: str, *, busy: bool) -> None:
        self._busy[who] = busy
        self._on_words(None)

    # -- what is done about it ---------------------------------------------------------------------

    def _apply(self, actions: list[Action]) -> None:
        if self._closed:
            return
        for action in actions:
            if isinstance(action, End):
                self.aclose()
                self._end(action.evidence)
                return
            if isinstance(action, Returned):
                if not action.same:
                    self._session.room_io.set_participant(action.identity)
                self._tell("returned", action)
            elif isinstance(action, Waiting):
                self._tell("waiting", self._unix(action.deadline))
            else:
                deadline = self._unix(action.deadline) or action.deadline
                self._tell("limit_warning", replace(action, deadline=deadline))
        self._refresh()

    def _refresh(self) -> None:
        now = self._loop.time()
        serving = self._session.agent_state != "initializing"
        state = self._grace.state if serving else State.STARTING
        deadline = self._grace.shown_deadline(now)
        if (state, deadline) != self._shown:
            self._shown = (state, deadline)
            self._show(state, self._unix(deadline))
        if self._timer is not None:
            self._timer.cancel()
        at = self._grace.next_tick(now)
        self._timer = self._loop.call_at(at, self._tick, at) if at is not None else None

    def _tick(self, at: float) -> None:
        # a loop's timer may fire a hair too early for its own clock
        self._step(self._grace.tick(max(self._loop.time(), at)))

    def _unix(self, deadline: float | None) -> float | None:
        return None if deadline is None else time.time() + deadline - self._loop.time()


def reason_name(reason: rtc.DisconnectReason.ValueType | None) -> str:
    """LiveKit's disconnect reason in lower case."""
    return rtc.DisconnectReason.Name(reason or rtc.DisconnectReason.UNKNOWN_REASON).lower()
