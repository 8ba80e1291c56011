"""The page when the LiveKit server is restarted under it, twenty runs, and with a real agent.

A run is one page's experience of one restart, with a room and an agent of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from examples.web_demo import make_demo
from scripts.livekit_server import LiveKitServer, free_ports, running
from tests.harness import Worker, dispatch, running_worker
from tests.web.people import ENDS, Hire, Visit, Visitor, gather_some, in_call

pytestmark = pytest.mark.integration

PAGES = 10
OUTAGES = [0, 3]  # seconds without a server; each of them is a run for each of the pages
SETTLE = 4.0  # the reader's own, in seconds


@pytest.fixture
async def shaky_site(
    page_built: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, LiveKitServer]]:
    del page_built
    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        runner = web.AppRunner(make_demo(with_agents=False))
        await runner.setup()
        port = free_ports(1)[0]
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}", server
        await runner.cleanup()


async def test_a_servers_restart_is_no_crash(
    shaky_site: tuple[str, LiveKitServer], visit: Visit, hire: Hire, room_name: str
) -> None:
    site, server = shaky_site

    async def begin(i: int) -> Visitor:
        room = f"{room_name}-{i}"
        await hire(room=room)
        return await in_call(visit, site, room)

    visitors = await gather_some(begin, range(PAGES))
    for times, outage in enumerate(OUTAGES, 1):
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*(v.has_said("Reconnecting", times, timeout=30) for v in visitors))
        await asyncio.sleep(outage)
        await asyncio.to_thread(server.restart)
        await asyncio.gather(*(v.says("With you", timeout=60) for v in visitors))
        await asyncio.sleep(SETTLE + 1)
    for one in visitors:
        await one.says("With you")
        # where the page is back long before its agent, that is not clear for a while
        assert {"Crashed", "Ended on purpose"}.isdisjoint(await one.labels())
        assert await one.page.locator("#earlier li").count() == 0


async def test_a_real_agent_comes_back_each_time(
    shaky_site: tuple[str, LiveKitServer], visit: Visit, room_name: str
) -> None:
    site, server = shaky_site
    with contextlib.ExitStack() as stack:
        worker = await asyncio.to_thread(stack.enter_context, running_worker(server))
        visitor = await visit(site, room_name)
        await visitor.call()
        await dispatch(server, room_name, worker.name, {"preset": "web"})
        await visitor.says("With you", timeout=30)
        facts = await visitor.text("facts")
        breaks: list[Callable[[], Awaitable[None]]] = [
            lambda: visitor.simulate("full-reconnect"),
            lambda: visitor.simulate("signal-reconnect"),
            lambda: asyncio.to_thread(server.restart),
        ]
        for times, break_connection in enumerate(breaks, 1):
            await break_connection()
            await visitor.has_said("Reconnecting", times, timeout=30)
            # it may wait for its user first: to the agent it was the page that went away
            await visitor.says("With you", timeout=60)
            await asyncio.sleep(SETTLE + 1)
            await visitor.says("With you")
            await heard(visitor, worker, f"still there after {times}?")
        assert set(ENDS).isdisjoint(await visitor.labels())
        assert await visitor.text("facts") == facts
        await visitor.page.evaluate(
            "order => demo.room().localParticipant.publishData("
            "new TextEncoder().encode(order), { topic: 'do' })",
            json.dumps({"id": "last", "act": "end", "detail": "See you"}),
        )
        await visitor.says("Ended on purpose")


async def heard(visitor: Visitor, worker: Worker, text: str) -> None:
    """The page says it and the agent hears it."""
    await visitor.page.evaluate(
        "text => demo.room().localParticipant.sendText(text, { topic: 'lk.chat' })", text
    )
    await worker.wait_for_log("heard", text=text)
