"""The page when the LiveKit server is restarted under it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from examples.web_demo import make_demo
from scripts.livekit_server import free_ports, running
from tests.web.people import Hire, Visit

pytestmark = pytest.mark.integration

Restart = Callable[[], None]


@pytest.fixture
async def shaky_site(
    page_built: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, Restart]]:
    del page_built
    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        runner = web.AppRunner(make_demo(with_agents=False))
        await runner.setup()
        port = free_ports(1)[0]
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}", server.restart
        await runner.cleanup()


async def test_a_servers_restart_is_no_crash(
    shaky_site: tuple[str, Restart], visit: Visit, hire: Hire, room_name: str
) -> None:
    site, restart = shaky_site
    await hire()
    visitors = [await visit(site, room_name) for _ in range(4)]
    for one in visitors:
        await one.call()
        await one.says("With you")
    await asyncio.to_thread(restart)
    for one in visitors:
        await one.says("Reconnecting", timeout=30)
    await asyncio.sleep(20)
    for one in visitors:
        await one.says("With you", timeout=30)
        assert "Crashed" not in await one.labels()
        assert await one.page.locator("#earlier li").count() == 0
