"""What can be set, and what of it is refused."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from .contract import ExitRecord

ExitHook = Callable[[ExitRecord], Awaitable[None] | None]
"""Told of each ending. Sync or async; what it returns is not looked at."""

DrainHook = Callable[[float], Awaitable[None] | None]
"""Told that the worker has to stop, with the Unix time in seconds by which it will be gone."""


@dataclass(frozen=True, kw_only=True)
class LifecycleOptions:
    """How the lifecycle of this worker's agents is published.

    Attributes:
        publish_timeout: Longest wait for one write of attributes, in seconds. Nothing of the
            user's job waits longer than that for us.
        leave_after: Seconds between a session's end and the moment when the agent is made to
            leave its room, if nothing else made it leave first. ``None``: it stays, closed, for as
            long as the app likes.
        hook_timeout: Longest run of one hook, in seconds; then it is cancelled and a warning says
            so.
        on_exit: Called in the worker with the record of each job that ended, whoever decided it.
            A synchronous hook runs in a thread, so that it can't hold up the worker. For a hook
            inside the job there is ``get_lifecycle().on("exit", …)``.
        on_drain: Called in the worker once, when it is told to stop.

    Raises:
        ValueError: A time is not a positive, finite number of seconds.
        TypeError: A hook can't be called with one argument.
    """

    publish_timeout: float = 2.0
    leave_after: float | None = 0.5
    hook_timeout: float = 5.0
    on_exit: ExitHook | None = None
    on_drain: DrainHook | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        check_seconds("publish_timeout", self.publish_timeout)
        check_seconds("hook_timeout", self.hook_timeout)
        if self.leave_after is not None:
            check_seconds("leave_after", self.leave_after)
        for name, hook in (("on_exit", self.on_exit), ("on_drain", self.on_drain)):
            if hook is not None:
                check_callback(name, hook)

    def for_job(self) -> LifecycleOptions:
        """The part that travels to a job's process: the worker's hooks need not be picklable."""
        return replace(self, on_exit=None, on_drain=None)


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
