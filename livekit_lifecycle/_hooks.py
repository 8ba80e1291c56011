"""Run other people's callbacks: bounded, caught one by one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from ._log import HOOK_FAILED, log
from ._tasks import Tasks
from .options import check_callback

T = TypeVar("T")
E = TypeVar("E", bound=str)

_TASK: Final = "lifecycle_hook"


async def run_hook(
    name: str,
    hook: Callable[[T], object],
    argument: T,
    *,
    timeout: float,
    in_thread: bool = False,
) -> None:
    """Call ``hook`` with ``argument``. A failure is one warning, never an exception.

    Args:
        name: What the hook is registered as, for the log.
        hook: Sync or async, of one argument.
        argument: What it is told.
        timeout: Longest run in seconds; an asynchronous hook is then cancelled.
        in_thread: Run a synchronous hook in a thread, where it can't block the event loop.
    """
    try:
        if in_thread and not _is_async(hook):
            await asyncio.wait_for(asyncio.to_thread(hook, argument), timeout)
            return
        result = hook(argument)
        if inspect.isawaitable(result):
            await asyncio.wait_for(result, timeout)
    except asyncio.TimeoutError:
        log.warning(HOOK_FAILED, hook=name, error="timeout", timeout=timeout)
    except Exception as error:  # noqa: BLE001 - whatever a hook raises must not reach the job
        # the traceback is the app's own and may quote its data: only the class is safe to name
        log.warning(HOOK_FAILED, hook=name, error=type(error).__name__)


class Hooks(Generic[E]):
    """The callbacks of an object's events.

    Args:
        events: Their names.
        tasks: Where the callbacks run.
        timeout: Longest run of one callback, in seconds, unless its event has another.
    """

    def __init__(self, events: Iterable[E], tasks: Tasks, timeout: float) -> None:
        self._callbacks: dict[E, list[Callable[[Any], object]]] = {name: [] for name in events}
        self._tasks = tasks
        self._timeout = timeout

    def add(self, event: E, callback: Callable[[Any], object], happened: object = None) -> None:
        """Call ``callback`` at an event; at once too where it has happened.

        Args:
            event: Its name.
            callback: Of one argument, sync or async.
            happened: The argument of what has happened already, if it has.

        Raises:
            ValueError: There is no such event.
            TypeError: The callback can't be called with one argument.
        """
        if event not in self._callbacks:
            msg = f"there is no event {event!r}; there are: {', '.join(self._callbacks)}"
            raise ValueError(msg)
        check_callback(f"the callback for {event!r}", callback)
        self._callbacks[event].append(callback)
        if happened is not None:
            self._run(event, callback, happened, self._timeout)

    def run(self, event: E, argument: object, timeout: float | None = None) -> None:
        """Start the callbacks of an event."""
        for callback in self._callbacks[event]:
            self._run(event, callback, argument, self._timeout if timeout is None else timeout)

    async def wait(self, seconds: float) -> None:
        """Wait until all that were started have ended, at most so long."""
        running = self._tasks.running(_TASK)
        if running:
            await asyncio.wait(running, timeout=seconds)

    def _run(
        self, event: E, callback: Callable[[Any], object], argument: object, timeout: float
    ) -> None:
        self._tasks.spawn(run_hook(event, callback, argument, timeout=timeout), name=_TASK)


def _is_async(hook: Callable[[T], object]) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
        getattr(hook, "__call__", None)  # noqa: B004 - the bound method is what is looked at
    )
