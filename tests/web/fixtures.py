"""A real Chromium on the example page, a real livekit-server, and agents that obey."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Browser, async_playwright, expect

from examples.web_demo import PAGE, make_demo, webhook_url
from livekit_lifecycle.contract import State, state_attributes, will_attributes
from scripts.livekit_server import LiveKitServer, free_ports, running
from tests.lacking import lacking
from tests.web.people import Hire, Puppet, Visit, Visitor

WEB = PAGE.parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
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
    return build_page(WEB)


def build_page(folder: Path) -> Path:
    """Where a page is, built anew where its sources or the reader changed."""
    npm = shutil.which("npm")
    if npm is None:
        lacking("npm, to build the page")
    # pytest-xdist runs this in several processes
    with (Path(tempfile.gettempdir()) / "lifecycle-page.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(npm, folder)


def _build(npm: str, folder: Path) -> Path:
    built = folder / "dist"
    if not (folder / "node_modules").is_dir():
        subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder, check=True
        )
    sources = [folder / "index.html", *(folder / "src").iterdir(), WEB / "src" / "reader.ts"]
    index = built / "index.html"
    if not index.exists() or index.stat().st_mtime < max(p.stat().st_mtime for p in sources):
        subprocess.run([npm, "run", "build"], cwd=folder, check=True)
    return built


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
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        lacking("chromium")
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
        attributes = will_attributes(job) | state_attributes(State.ACTIVE) if managed else {}
        puppet = Puppet(room, job, identity, **{k: v for k, v in attributes.items() if v})
        hired.append(puppet)
        await puppet.connect()
        return puppet

    yield bring
    await asyncio.gather(*(puppet.room.disconnect() for puppet in hired))
