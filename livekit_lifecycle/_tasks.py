"""Tasks of ours: kept from the garbage collector, and a fault in one is one warning."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ._log import INTERNAL_ERROR, log


class Tasks:
    """Those that run in one event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str = "lifecycle") -> None:
        """Start one."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._reap)

    def running(self, name: str | None = None) -> set[asyncio.Task[None]]:
        """Those that run, all or by name."""
        return {task for task in self._running if name is None or task.get_name() == name}

    async def cancel(self) -> None:
        """Cancel those that run, and wait until they are."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning(INTERNAL_ERROR, error=type(error).__name__)
