"""The sessions of one job: who left which, how each closes, and which is the last."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from livekit import rtc
from livekit.agents import AgentSession, JobContext

from . import _compat
from .attendance import Attendance, reason_name
from .classify import Evidence, SessionClosed
from .contract import State

BYE: Final = "lifecycle.bye"
"""The RPC that a client calls before a leave that is meant: then nobody waits for it."""

_NOT_THE_USER: Final = 403
_RANK: Final = (State.STARTING, State.WAITING, State.ACTIVE)

Shown = tuple[State, float | None]


@dataclass(eq=False)
class _Followed:
    attendance: Attendance | None = None
    shown: Shown = (State.STARTING, None)
    user_left: str = ""

    @property
    def serves(self) -> bool:
        return self.attendance is not None and self.attendance.serves


class Sessions:
    """Follows the sessions that serve the job's room. The job ends with the last of them.

    Most jobs have one. An app may start more, as for one participant each; a session that serves
    another room, as in a consultation, is not counted.

    Args:
        ctx: The job's.
        ends: Called with the evidence when the last one closes, or has to.
        closed: Called when it is closed, or won't ever be.
        show: Called with the state and the Unix deadline in seconds that clients should see.
        tell: Called with the name and the argument of each event for the app's hooks.
        draining: Whether the worker has been told to stop.
        guarded: Wraps each handler, so that a fault of ours never reaches LiveKit's.
    """

    def __init__(  # noqa: PLR0913 - callables instead of the whole job
        self,
        ctx: JobContext,
        *,
        ends: Callable[[Evidence], None],
        closed: Callable[[], None],
        show: Callable[[State, float | None], None],
        tell: Callable[[Literal["waiting", "returned", "limit_warning"], object], None],
        draining: Callable[[], bool],
        guarded: Callable[[Callable[..., None]], Callable[..., None]],
    ) -> None:
        self._ctx, self._room = ctx, ctx.room
        self._ends, self._closed, self._draining = ends, closed, draining
        self._show, self._tell, self._guarded = show, tell, guarded
        self._followed: WeakKeyDictionary[AgentSession[Any], _Followed] = WeakKeyDictionary()
        self._shown: Shown = (State.STARTING, None)
        self._decided = False
        # before RoomIO's own handler, so that the link still says who it was
        self._room.on("participant_disconnected", guarded(self._on_participant_left))
        self._room.on("connection_state_changed", guarded(self._on_connection_state))

    def look(self, callback: object = None) -> None:
        """Find those that have started, or are about to.

        Args:
            callback: A shutdown callback that somebody just added, as each session does.
        """
        with contextlib.suppress(RuntimeError):  # LiveKit's word for "none was started"
            # LiveKit leaves the type of the app's own data open
            self._follow(self._ctx.primary_session)  # pyright: ignore[reportUnknownArgumentType]
        session = _compat.session_behind(callback)
        if session is not None and _room_of(session) is self._room:
            self._follow(session)

    def aclose(self) -> None:
        """Stop following who is there: the ending is decided."""
        self._decided = True
        for one in self._followed.values():
            if one.attendance is not None:
                one.attendance.aclose()
        if self._followed and self._room.isconnected():
            self._room.local_participant.unregister_rpc_method(BYE)

    def _follow(self, session: AgentSession[Any]) -> None:
        if session in self._followed:
            return
        self._followed[session] = one = _Followed()

        def begins(cause: str, error: str) -> None:
            self._on_closing(one, cause, error)

        def closed(event: Any) -> None:
            begins(str(event.reason.value), str(getattr(event.error, "type", "")))
            fails()

        def fails() -> None:
            if not self._others(one):
                self._closed()

        def attendance_ends(evidence: Evidence) -> None:
            if not self._others(one):
                self._ends(evidence)
            session.shutdown(drain=False)

        session.on("close", self._guarded(closed))
        _compat.on_session_closing(
            session, begins=self._guarded(begins), fails=self._guarded(fails)
        )
        if self._decided:
            return
        one.attendance = Attendance(
            self._room,
            session,
            _compat.session_options(session),
            show=lambda state, deadline: self._on_shown(one, (state, deadline)),
            tell=self._tell,
            end=attendance_ends,
            guarded=self._guarded,
        )
        self._on_connection_state(self._room.connection_state)

    def _others(self, one: _Followed) -> list[_Followed]:
        return [other for other in self._followed.values() if other is not one and other.serves]

    # -- how one ends ------------------------------------------------------------------------------

    def _on_closing(self, one: _Followed, cause: str, error: str) -> None:
        if one.attendance is not None:
            one.attendance.aclose()
            one.attendance = None
        if others := self._others(one):
            self._on_shown(others[0], others[0].shown)
        else:
            drains = self._draining()
            self._ends(SessionClosed(cause, error=error, user_left=one.user_left, draining=drains))

    # -- who is there ------------------------------------------------------------------------------

    def _on_shown(self, one: _Followed, shown: Shown) -> None:
        one.shown = shown
        lively = [one, *self._others(one)]
        best = max((each.shown for each in lively), key=_how_much)
        if best != self._shown:
            self._shown = best
            self._show(*best)

    def _on_participant_left(self, participant: rtc.RemoteParticipant) -> None:
        for session, one in self._followed.items():
            if _linked_identity(session) in ("", participant.identity):
                one.user_left = reason_name(participant.disconnect_reason)

    def _on_connection_state(self, state: rtc.ConnectionState.ValueType) -> None:
        connected = state == rtc.ConnectionState.CONN_CONNECTED
        if connected and self._followed and not self._decided:
            self._room.local_participant.register_rpc_method(BYE, self._on_bye)

    async def _on_bye(self, call: rtc.RpcInvocationData) -> str:
        said = [
            one.attendance.bye(call.caller_identity)
            for one in self._followed.values()
            if one.attendance is not None and one.serves
        ]
        if not any(said):
            raise rtc.RpcError(_NOT_THE_USER, "only the user of this session can end it")
        return "bye"


def _how_much(shown: Shown) -> tuple[int, float]:
    """What clients see where sessions differ: the agent is there if one serves, for the longest."""
    state, deadline = shown
    return _RANK.index(state), math.inf if deadline is None else deadline


def _room_of(session: AgentSession[Any]) -> rtc.Room | None:
    with contextlib.suppress(RuntimeError):  # LiveKit's word for a session without a room
        return session.room_io.room
    return None


def _linked_identity(session: AgentSession[Any]) -> str:
    with contextlib.suppress(RuntimeError):  # a session without a room, or closed
        linked = session.room_io.linked_participant
        return linked.identity if linked is not None else ""
    return ""
