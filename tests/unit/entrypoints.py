"""Entrypoints as an app's module holds them."""

from __future__ import annotations

from livekit.agents import JobContext

from livekit_lifecycle import LifecycleServer, managed

server = LifecycleServer()
managed_server = LifecycleServer()


@server.rtc_session(agent_name="front-desk")
async def front_desk(ctx: JobContext) -> None:
    """The app's own words."""


@managed
async def night_desk(ctx: JobContext) -> None:
    """Managed by hand."""


async def plain(ctx: JobContext) -> None:
    """Registered by a call."""


async def ended(ctx: JobContext) -> None:
    """The app's own on_session_end."""
