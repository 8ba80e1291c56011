"""The app's entrypoint and its ``on_session_end``, wrapped so that they still can be pickled."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from livekit.agents import JobContext

from ._log import NOT_ATTACHED, log
from ._plugin import register_plugin
from .job import JobLifecycle, find_lifecycle
from .options import LifecycleOptions

Entrypoint = Callable[[JobContext], Awaitable[None]]
SessionEnd = Callable[[JobContext], Any]


class ManagedEntrypoint:
    """An entrypoint under the lifecycle: what LiveKit calls instead of the app's own.

    Args:
        entrypoint: The app's own, a module-level coroutine function.
        options: The job's part of the options.
        relay: Whether there is a worker half to report to.
    """

    def __init__(
        self, entrypoint: Entrypoint, options: LifecycleOptions, *, relay: bool = False
    ) -> None:
        self._entrypoint = entrypoint
        self._options = options
        self._relay = relay
        functools.update_wrapper(self, entrypoint)

    def adopt(self, options: LifecycleOptions) -> None:
        """Get a worker half: what `managed` made is given to a ``LifecycleServer``."""
        self._options = options
        self._relay = True

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Travel by name where the app's module holds this object under it, else by value."""
        name = getattr(self._entrypoint, "__qualname__", "")
        module = sys.modules.get(self._entrypoint.__module__)
        if module is not None and getattr(module, name, None) is self:
            return name
        return _unpickle_entrypoint, (self._entrypoint, self._options, self._relay)

    async def __call__(self, ctx: JobContext) -> None:
        """Run the app's entrypoint."""
        lifecycle = self._attach(ctx)
        if lifecycle is None:
            await self._entrypoint(ctx)
            return
        try:
            await self._entrypoint(ctx)
        except asyncio.CancelledError:
            raise  # the framework's way to end an entrypoint that waits: a cause was told before
        except BaseException as error:
            await lifecycle.entrypoint_raised(error)
            await lifecycle.settled()
            raise
        lifecycle.entrypoint_returned()

    def _attach(self, ctx: JobContext) -> JobLifecycle | None:
        try:
            lifecycle = JobLifecycle(ctx, self._options, relay=self._relay)
            lifecycle.attach()
        except Exception as error:  # noqa: BLE001 - the call goes on without us
            log.warning(NOT_ATTACHED, job_id=ctx.job.id, error=type(error).__name__)
            return None
        return lifecycle


class ManagedSessionEnd:
    """Runs when a session is over and the room is still there; then the app's own, as before."""

    def __init__(self, session_end: SessionEnd | None) -> None:
        self._session_end = session_end
        if session_end is not None:
            functools.update_wrapper(self, session_end)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel by value; the app's own function travels by its name."""
        return ManagedSessionEnd, (self._session_end,)

    async def __call__(self, ctx: JobContext) -> None:
        """Run the app's own ``on_session_end`` between our two steps."""
        lifecycle = find_lifecycle(ctx)
        if lifecycle is not None:
            await lifecycle.before_session_end()
        try:
            if self._session_end is not None:
                await self._session_end(ctx)
        finally:
            if lifecycle is not None:
                await lifecycle.after_session_end()


def managed(entrypoint: Entrypoint) -> Entrypoint:
    """Put the job half under an entrypoint of a plain ``AgentServer``.

    The goodbye, the crash of an exception and the leave after a session's end work; what a worker
    has to do does not: no last will before the agent is in the room, no drain notice, and nobody
    to tell a killed process.

    Example:
        ```python
        @server.rtc_session()
        @managed
        async def front_desk(ctx: JobContext) -> None: ...
        ```

    Args:
        entrypoint: A module-level coroutine function of one argument, the `JobContext`.

    Raises:
        TypeError: It is something else.
    """
    check_entrypoint(entrypoint)
    register_plugin()
    return ManagedEntrypoint(entrypoint, LifecycleOptions())


def check_entrypoint(entrypoint: object) -> None:
    """Refuse what can't be an entrypoint.

    Raises:
        TypeError: It is no coroutine function.
    """
    target = getattr(entrypoint, "__call__", entrypoint)  # noqa: B004 - a callable object is fine
    if not (inspect.iscoroutinefunction(entrypoint) or inspect.iscoroutinefunction(target)):
        msg = f"the entrypoint is {entrypoint!r}; it must be an 'async def' function of (ctx)"
        raise TypeError(msg)


def _unpickle_entrypoint(
    entrypoint: Entrypoint,
    options: LifecycleOptions,
    relay: bool,  # noqa: FBT001 - pickle's call
) -> ManagedEntrypoint:
    return ManagedEntrypoint(entrypoint, options, relay=relay)
