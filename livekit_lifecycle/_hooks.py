"""Run other people's callbacks: bounded, caught one by one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TypeVar

from ._log import HOOK_FAILED, log

T = TypeVar("T")


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


def _is_async(hook: Callable[[T], object]) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
        getattr(hook, "__call__", None)  # noqa: B004 - the bound method is what is looked at
    )
