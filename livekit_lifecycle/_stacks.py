"""Where a job hangs, in source lines only: no values, no words of a user."""

from __future__ import annotations

import asyncio
import sys
import traceback
from types import FrameType
from typing import Final

MAX_TASKS: Final = 20
FRAMES_PER_TASK: Final = 5


def stack_of(thread: int) -> str:
    """The stack of a thread of this process; empty where it has ended.

    Args:
        thread: Its `threading.get_ident`.
    """
    # the documented way, whatever its name looks like
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return stack_from(frames.get(thread))


def stack_from(frame: FrameType | None) -> str:
    """The stack that ends in a frame."""
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


def stacks_of_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Where each task of a loop waits, called from any thread."""
    waiting = [task for task in asyncio.all_tasks(loop) if not task.done()][:MAX_TASKS]
    return "\n".join(map(_of_task, waiting))


def _of_task(task: asyncio.Task[object]) -> str:
    coroutine = task.get_coro()
    frames = [
        "".join(traceback.format_stack(frame, limit=1))
        for frame in task.get_stack(limit=FRAMES_PER_TASK)
    ]
    return f"{getattr(coroutine, '__qualname__', coroutine)}:\n{''.join(frames)}"
