"""Stand-ins for what can't be produced: a server that is slow, refuses, or loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class FakeParticipant:
    """An agent's own participant whose server does as it is told."""

    def __init__(self, room: FakeRoom) -> None:
        self._room = room
        self.identity = "agent-AJ_1"
        self.attributes: dict[str, str] = {}
        self.writes: list[dict[str, str]] = []
        self.refuses = False
        self.hangs = False
        self.delay = 0.0
        self.echo_delay = 0.0

    async def set_attributes(self, attributes: dict[str, str]) -> None:
        self.writes.append(dict(attributes))
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay)
        if self.refuses:
            return
        asyncio.get_running_loop().call_later(self.echo_delay, self._echo, attributes)

    def _echo(self, attributes: dict[str, str]) -> None:
        for key, value in attributes.items():
            if value:
                self.attributes[key] = value
            else:
                self.attributes.pop(key, None)
        self._room.emit("participant_attributes_changed", attributes, self)


class FakeRoom:
    """As much of ``rtc.Room`` as a publisher sees."""

    def __init__(self) -> None:
        self.local_participant = FakeParticipant(self)
        self.connected = True
        self._handlers: dict[str, list[Callable[..., Any]]] = {}

    def isconnected(self) -> bool:
        return self.connected

    def on(self, event: str, handler: Callable[..., Any]) -> None:
        self._handlers.setdefault(event, []).append(handler)

    def emit(self, event: str, *arguments: object) -> None:
        for handler in self._handlers.get(event, []):
            handler(*arguments)
