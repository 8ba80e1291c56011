"""Who is there, who is away and for how long, and which limit falls due: a pure state machine.

It is told what happens and what time it is, and answers with what has to be done. It has no clock,
no room and no session of its own; `attendance` connects it to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from .classify import LimitReached, UserGone
from .contract import State
from .options import LimitName, Limits, Reconnect

BROKEN_LINK: Final = frozenset(
    {
        # LiveKit gives no reason when an identity changes its session, or when the agent itself
        # has reconnected: the user did not mean to leave
        "unknown_reason",
        "connection_timeout",
        "media_failure",
        "migration",
        "signal_close",
        "state_mismatch",
        "server_shutdown",
        "join_failure",
    }
)
"""Disconnect reasons of LiveKit's that no user ever meant."""


@dataclass(frozen=True)
class Waiting:
    """The user is away; the grace runs until ``deadline``, for ever if None."""

    deadline: float | None


@dataclass(frozen=True)
class Returned:
    """Somebody is there again.

    Attributes:
        identity: Who is the user now.
        previous: Who was it before.
        same: Whether that is the same identity; else the session has to be linked anew.
    """

    identity: str
    previous: str
    same: bool


@dataclass(frozen=True)
class LimitWarning:
    """A limit is about to fall due."""

    limit: LimitName
    deadline: float


@dataclass(frozen=True)
class End:
    """The session has to end, and this is why."""

    evidence: UserGone | LimitReached


Action = Waiting | Returned | LimitWarning | End


class Grace:
    """The attendance of one session. All times are seconds of one clock of the caller's.

    Args:
        reconnect: None where nothing was asked for: the session outlives its user's leave for as
            long as LiveKit lets it.
        limits: Its limits.
        now: When the session started.
    """

    def __init__(self, reconnect: Reconnect | None, limits: Limits, now: float) -> None:
        self._reconnect = reconnect
        self._limits = limits
        self._started = now
        self._user = ""
        self._present: dict[str, None] = {}  # in the order in which they came
        self._deadline: float | None = None
        self._last_activity = now
        self._busy = False
        self._warned: set[tuple[LimitName, float]] = set()
        self._ended = False

    @property
    def user(self) -> str:
        """Identity of the session's user; empty while there was none yet."""
        return self._user

    @property
    def seconds(self) -> float:
        """How long the grace is."""
        return self._reconnect.grace if self._reconnect is not None else 0.0

    @property
    def ended(self) -> bool:
        """Whether the end has been asked for."""
        return self._ended

    @property
    def state(self) -> State:
        """What clients should see."""
        if not self._user:
            return State.STARTING
        return State.ACTIVE if self._user in self._present else State.WAITING

    @property
    def serves(self) -> bool:
        """Whether the user is there, may yet come, or has time left to come back."""
        away = self.state is State.WAITING and self._deadline is None
        return not (away or self._ended)

    def shown_deadline(self, now: float) -> float | None:
        """When the present state runs out, for clients: a limit only once it is near."""
        away = self.state is not State.ACTIVE
        due = [at for _, at, warn in self._running() if away or now >= at - warn]
        if self._deadline is not None:
            due.append(self._deadline)
        return min(due, default=None)

    def next_tick(self, now: float) -> float | None:
        """When `tick` has something to do next."""
        times = [at for _, at, _ in self._running()]
        times += [at - warn for _, at, warn in self._running() if now < at - warn]
        if self._deadline is not None:
            times.append(self._deadline)
        return None if self._ended else min(times, default=None)

    def joined(self, identity: str, now: float) -> list[Action]:
        """One who may be a user is in the room."""
        away = bool(self._user) and self._user not in self._present
        self._present[identity] = None
        if not self._user:
            self._user = identity
            self._last_activity = now
        elif away and not self._ended and (identity == self._user or self._anyone):
            self._deadline, previous, self._user = None, self._user, identity
            self._last_activity = now  # one who has just come back is not idle
            return [Returned(identity, previous, same=identity == previous)]
        return []

    def left(self, identity: str, reason: str, now: float) -> list[Action]:
        """One is gone, for LiveKit's disconnect reason in lower case."""
        self._present.pop(identity, None)
        if identity != self._user or self._ended:
            return []
        if self._anyone and self._present:
            self._user = next(iter(self._present))
            self._last_activity = now
            return [Returned(self._user, identity, same=False)]
        if self._reconnect is None:
            return [Waiting(None)]
        meant = reason not in BROKEN_LINK
        if self._reconnect.grace == 0 or (self._reconnect.broken_link_only and meant):
            return self._end(UserGone(reason))
        self._deadline = now + self._reconnect.grace
        return [Waiting(self._deadline)]

    def bye(self, identity: str) -> list[Action]:
        """The user asked for the end.

        Raises:
            PermissionError: It is not the user who asks.
        """
        if identity != self._user:
            raise PermissionError
        others = [one for one in self._present if one != identity]
        if self._ended or (self._anyone and others):
            return []
        return self._end(UserGone(said_bye=True))

    def cut_grace(self, seconds: float) -> bool:
        """Make the grace no longer than this; whether it was."""
        if self._reconnect is None or self._reconnect.grace <= seconds:
            return False
        self._reconnect = replace(self._reconnect, grace=seconds)
        return True

    def activity(self, now: float, *, busy: bool = False) -> None:
        """Somebody says something; while ``busy`` it goes on and nobody is idle."""
        self._last_activity = now
        self._busy = busy

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        if self._ended:
            return []
        due: list[tuple[float, LimitReached]] = [
            (at, LimitReached(name)) for name, at, _ in self._running() if now >= at
        ]
        if self._deadline is not None and now >= self._deadline:
            due.append((self._deadline, LimitReached("grace")))
        if due:
            return self._end(min(due, key=lambda item: item[0])[1])
        warnings: list[Action] = []
        for name, at, warn in self._running():
            if now >= at - warn and (name, at) not in self._warned:
                self._warned.add((name, at))
                warnings.append(LimitWarning(name, at))
        return warnings

    @property
    def _anyone(self) -> bool:
        return self._reconnect is not None and self._reconnect.follow == "any"

    def _end(self, evidence: UserGone | LimitReached) -> list[Action]:
        self._ended = True
        self._deadline = None
        return [End(evidence)]

    def _running(self) -> Iterator[tuple[LimitName, float, float]]:
        """The limits that run now: name, when they fall due, how long before they warn."""
        since = {
            "max_duration": self._started,
            "idle": self._last_activity if self._user and not self._busy else None,
            "no_show": self._started if not self._user else None,
        }
        for name, seconds in self._limits.given().items():
            start = since[name]
            if start is not None:
                yield name, start + seconds, self._limits.warning_for(seconds)
