"""What can be set, and what of it is refused."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from .contract import ExitRecord

WARN_BEFORE: Final = 10.0
"""Seconds of warning before a limit, where it is long enough for that."""

CUT_MARGIN: Final = 0.5
"""Seconds for what lies between our steps when calls are cut off."""

EXIT_TIMEOUT: Final = 600.0
"""Seconds from the exit to the end of the process: what an app uploads after a call takes time."""

LimitName = Literal["max_duration", "idle", "no_show"]

ExitHook = Callable[[ExitRecord], Awaitable[None] | None]
"""Told of each ending. Sync or async; what it returns is not looked at."""

DrainHook = Callable[[float], Awaitable[None] | None]
"""Told that the worker has to stop, with the Unix time in seconds by which it will be gone."""


@dataclass(frozen=True, kw_only=True)
class DrainOptions:
    """What a worker that is told to stop does with the calls that go on.

    By default each goes on to its own end, for LiveKit's ``drain_timeout`` at most. All in seconds.

    Attributes:
        end_before: End what still runs so long before the drain's deadline, as
            ``drain``/``drain_timeout``: the exit is told, the job's ``last_words`` hooks may say a
            last sentence, then the session closes. ``None``: it is cut off at the deadline.
        kill_grace: What your platform gives between SIGTERM and SIGKILL. A drain then is over in
            time for everybody to be told, however long ``drain_timeout`` is. ``None``: there is no
            SIGKILL, or ``drain_timeout`` is right for it.

    Raises:
        ValueError: A time is not a positive, finite number.
    """

    end_before: float | None = None
    kill_grace: float | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _check_all(self, optional=("end_before", "kill_grace"))


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """Whether an agent that crashed is dispatched again, as OTP's transient children are.

    Only after a crash, only while a user is in the room, and never where another living agent of
    that name is. Clients are told ``next=wait`` where a successor has been asked for; after too
    many crashes ``next=rejoin``, and nobody is sent.

    Attributes:
        max_restarts: At most so many in a room …
        within: … within so many seconds.

    Raises:
        ValueError: ``max_restarts`` is no whole number above 0, or ``within`` no positive, finite
            number.
    """

    max_restarts: int = 3
    within: float = 60.0

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        given: object = self.max_restarts
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            msg = (
                f"max_restarts is {given!r}; it must be a whole number above 0, such as 3 "
                "(for no restarts leave the policy out)"
            )
            raise ValueError(msg)
        _check_all(self, needed=("within",))


@dataclass(frozen=True, kw_only=True)
class LifecycleOptions:
    """How the lifecycle of this worker's agents is published.

    Attributes:
        publish_timeout: Longest wait for one write of attributes, in seconds. Nothing of the
            user's job waits longer than that for us.
        leave_after: Seconds between a session's end and the moment when the agent is made to
            leave its room, if nothing else made it leave first. ``None``: it stays, closed, for as
            long as the app likes.
        closing_timeout: Seconds from the moment that an exit is told to the agent's leave, whatever
            still runs: last words, a session that does not close, an entrypoint that does not
            return. ``None``: as long as LiveKit takes, which may be minutes.
        stall_after: Seconds without an answer of the job's event loop after which
            ``lifecycle.stalled`` is published and the log says where it hangs. ``None``: nobody
            watches.
        exit_timeout: Seconds from the moment that an exit is told to the end of the job's process;
            then its worker ends it, and the log says where it hung. LiveKit itself waits for a
            shutdown callback that never returns without an end. ``None``: as LiveKit does.
        hook_timeout: Longest run of one hook, in seconds; then it is cancelled and a warning says
            so.
        drain: What is done with the calls that go on when the worker is told to stop.
        restart: Whether an agent that crashed is dispatched again. ``None``: it is not. LiveKit
            Cloud may do it by itself.
        one_per_room: Of two living agents of one name in a room the later one leaves at once, as
            ``replaced``/``duplicate_agent``.
        on_exit: Called in the worker with the record of each job that ended, whoever decided it.
            A synchronous hook runs in a thread, so that it can't hold up the worker. For a hook
            inside the job there is ``get_lifecycle().on("exit", …)``.
        on_drain: Called in the worker once, when it is told to stop.

    Raises:
        ValueError: A time is not a positive, finite number of seconds, or times do not fit into
            one another.
        TypeError: A hook can't be called with one argument, or ``drain`` or ``restart`` is
            something else.
    """

    publish_timeout: float = 2.0
    leave_after: float | None = 0.5
    closing_timeout: float | None = 30.0
    stall_after: float | None = 5.0
    exit_timeout: float | None = EXIT_TIMEOUT
    hook_timeout: float = 5.0
    drain: DrainOptions = field(default_factory=DrainOptions)
    restart: RestartPolicy | None = None
    one_per_room: bool = False
    on_exit: ExitHook | None = None
    on_drain: DrainHook | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _check_all(
            self,
            needed=("publish_timeout", "hook_timeout"),
            optional=("leave_after", "closing_timeout", "stall_after", "exit_timeout"),
        )
        _check_kind("drain", self.drain, DrainOptions)
        _check_kind("restart", self.restart, RestartPolicy, type(None))
        for name in ("kill_grace", "end_before"):
            seconds: float | None = getattr(self.drain, name)
            if seconds is not None and seconds <= self.cut_seconds:
                msg = (
                    f"{name} is {seconds:g} s; cutting calls off takes up to "
                    f"{self.cut_seconds:g} s (publish_timeout {self.publish_timeout:g} + "
                    f"leave_after {self.leave_after or 0:g} + {CUT_MARGIN:g}): make it longer"
                )
                raise ValueError(msg)
        closing, exiting = self.closing_timeout, self.exit_timeout
        if closing is not None and exiting is not None and exiting < closing:
            msg = (
                f"exit_timeout is {exiting:g} s and closing_timeout {closing:g} s: the process "
                "would be ended before its agent has left; make exit_timeout longer"
            )
            raise ValueError(msg)
        for name, hook in (("on_exit", self.on_exit), ("on_drain", self.on_drain)):
            if hook is not None:
                check_callback(name, hook)

    @property
    def cut_seconds(self) -> float:
        """How long before a SIGKILL a drain has to be over, so that everybody is told."""
        return self.publish_timeout + (self.leave_after or 0) + CUT_MARGIN

    def drain_seconds(self, drain_timeout: float) -> float:
        """How long a drain lasts: LiveKit's ``drain_timeout``, or less if a SIGKILL follows.

        Args:
            drain_timeout: In seconds, 0 for no limit.
        """
        if self.drain.kill_grace is None:
            return drain_timeout
        in_time = self.drain.kill_grace - self.cut_seconds
        return min(drain_timeout, in_time) if drain_timeout else in_time

    def for_job(self) -> LifecycleOptions:
        """The part that travels to a job's process: the worker's hooks need not be picklable."""
        return replace(self, on_exit=None, on_drain=None)


@dataclass(frozen=True, kw_only=True)
class Reconnect:
    """How long a session outlives its user's leave, and who may come back to it.

    Attributes:
        grace: Seconds that the agent waits for its user, 0 for not at all. They are cut to what
            the room allows, see `presets.room_config`.
        follow: ``"same"``: the same identity may come back, others are not listened to. ``"any"``:
            whoever is there is the user; the agent waits only when nobody is left.
        broken_link_only: Wait only where the link broke; a leave that was meant ends the session
            at once.

    Raises:
        ValueError: A negative or infinite grace, an unknown ``follow``, or a grace of 0 together
            with a ``follow`` or ``broken_link_only`` that could never matter.
    """

    grace: float
    follow: Literal["same", "any"] = "same"
    broken_link_only: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if self.grace != 0:
            check_seconds("grace", self.grace)
        if self.follow not in ("same", "any"):
            msg = f"follow is {self.follow!r}; it must be 'same' or 'any'"
            raise ValueError(msg)
        if self.grace == 0 and (self.follow == "any" or self.broken_link_only):
            msg = (
                f"grace is 0, so follow={self.follow!r} and "
                f"broken_link_only={self.broken_link_only!r} could never matter; "
                "give a grace above 0, or leave them out"
            )
            raise ValueError(msg)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a session ends whatever else happens. All in seconds; None for no limit.

    Attributes:
        max_duration: From the session's start.
        idle: Without a word, spoken or written, of either side; it starts anew with each.
        no_show: From the session's start until a first user is there.
        warn_before: How long before a limit falls due its deadline is published and the
            ``limit_warning`` hook is called. None: 10 s, or half of a limit shorter than 20 s.

    Raises:
        ValueError: A limit is not a positive, finite number, or ``warn_before`` is not shorter
            than each limit.
    """

    max_duration: float | None = None
    idle: float | None = None
    no_show: float | None = None
    warn_before: float | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if self.warn_before is not None:
            check_seconds("warn_before", self.warn_before)
        for name, limit in self.given().items():
            check_seconds(name, limit)
            if self.warn_before is not None and self.warn_before >= limit:
                msg = (
                    f"warn_before is {self.warn_before!r} and {name} is {limit!r}; "
                    f"the warning must come after the start: make warn_before shorter"
                )
                raise ValueError(msg)

    def given(self) -> dict[LimitName, float]:
        """The limits that are set, by name."""
        limits: dict[LimitName, float | None] = {
            "max_duration": self.max_duration,
            "idle": self.idle,
            "no_show": self.no_show,
        }
        return {name: limit for name, limit in limits.items() if limit is not None}

    def warning_for(self, limit: float) -> float:
        """Seconds of warning before a limit of this length."""
        return self.warn_before if self.warn_before is not None else min(WARN_BEFORE, limit / 2)


def check_seconds(name: str, value: float) -> None:
    """Refuse what is not a positive, finite number of seconds.

    Raises:
        ValueError: With the value, the limit and what to do.
    """
    given: object = value  # whatever the caller's type checker would have said
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not (number and math.isfinite(value) and value > 0):
        msg = f"{name} is {value!r}; it must be a number of seconds above 0, such as 2.0"
        raise ValueError(msg)


def _check_all(
    options: object, *, needed: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> None:
    for name in (*needed, *optional):
        seconds: float | None = getattr(options, name)
        if seconds is not None or name in needed:
            check_seconds(name, seconds)  # type: ignore[arg-type]  # refused there


def _check_kind(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        msg = f"{name} is {value!r}; it must be a {kinds[0].__name__}"
        raise TypeError(msg)


def check_callback(name: str, callback: object) -> None:
    """Refuse what can't be called with exactly one positional argument.

    Raises:
        TypeError: With the name and the shape that is wanted.
    """
    if not callable(callback):
        msg = f"{name} is {callback!r}; it must be a function of one argument, sync or async"
        raise TypeError(msg)
    try:
        inspect.signature(callback).bind(object())
    except ValueError:
        return  # a builtin with no signature: it has to be tried
    except TypeError:
        shown = f"{getattr(callback, '__name__', callback)}{inspect.signature(callback)}"
        msg = f"{name} is {shown}; it must be callable with one positional argument"
        raise TypeError(msg) from None
