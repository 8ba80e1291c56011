"""A real Chromium on the example page, a real livekit-server, and agents that obey."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Browser, async_playwright, expect

from examples.web_demo import make_demo, webhook_url
from scripts.livekit_server import LiveKitServer, free_ports, running
from scripts.page_stage import FLAGS, WEB, MissingToolError, Puppet, build_page, find_chromium
from tests.lacking import lacking
from tests.web.people import Hire, Visit, Visitor

KEEP_LABELS = """
    window.labels = [];
    addEventListener("DOMContentLoaded", () => {
      const label = document.getElementById("label");
      new MutationObserver(() => window.labels.push(label.textContent))
        .observe(label, { childList: true, characterData: true, subtree: true });
    });
"""

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def page_built() -> Path:
    """The page, built anew where its sources changed."""
    return built(WEB)


def built(folder: Path) -> Path:
    """Where the page of a folder is."""
    try:
        return build_page(folder)
    except MissingToolError as missing:
        lacking(str(missing))


@pytest.fixture(scope="session")
def told_server() -> Iterator[tuple[LiveKitServer, int]]:
    """A LiveKit server, and the port of the back end that it tells of what happens."""
    port = free_ports(1)[0]
    with running(webhook=webhook_url(port)) as server:
        yield server, port


@pytest.fixture
async def site(
    page_built: Path,
    told_server: tuple[LiveKitServer, int],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[str]:
    """The page with a back end that has no agents of its own."""
    del page_built
    server, port = told_server
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    runner = web.AppRunner(make_demo(with_agents=False))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{port}"
    await runner.cleanup()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    try:
        path = find_chromium()
    except MissingToolError as missing:
        lacking(str(missing))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
async def visit(browser: Browser) -> Visit:
    """Opens the page, in a tab of its own: each has its session, and a context costs a second.

    ``clock_off`` is in ms: how far the page's wall clock is off.
    """
    context = await browser.new_context()
    await context.add_init_script(KEEP_LABELS)

    async def open_page(site: str, room: str, *, clock_off: int = 0, width: int = 900) -> Visitor:
        page = await context.new_page()
        await page.set_viewport_size({"width": width, "height": 800})
        if clock_off:
            await page.add_init_script(
                f"const now = Date.now; Date.now = () => now.call(Date) + {clock_off};"
            )
        await page.goto(f"{site}/?room={room}")
        return Visitor(page)

    return open_page


@pytest.fixture
def room_name() -> str:
    return f"web-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def hire(room_name: str) -> AsyncIterator[Hire]:
    """Brings an agent into a room, on the server that the environment names by then."""
    hired: list[Puppet] = []

    async def bring(
        job: str = "AJ_1", identity: str = "agent", *, managed: bool = True, room: str = room_name
    ) -> Puppet:
        puppet = Puppet(room, job, identity, managed=managed)
        hired.append(puppet)
        await puppet.connect()
        return puppet

    yield bring
    await asyncio.gather(*(puppet.room.disconnect() for puppet in hired))
