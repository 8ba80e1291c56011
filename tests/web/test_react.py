"""The hook for React, beside the `useAgent` that it explains, in a real page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import web
from playwright.async_api import Browser, Page, expect

from examples.backend import make_app
from livekit_lifecycle.contract import AgentExit, Exit, exit_attributes
from scripts.livekit_server import LiveKitServer
from scripts.page_stage import WEB, Puppet
from tests.web.fixtures import built
from tests.web.people import Hire

pytestmark = pytest.mark.integration

LISTENS = {"lk.agent.state": "listening"}
GOODBYE = exit_attributes(AgentExit(exit=Exit.INTENTIONAL, reason="completed", detail="bye"))
CRASH = exit_attributes(AgentExit(exit=Exit.CRASH, reason="killed", detail="SIGKILL"))

RECONNECT = "() => { room.simulateScenario('full-reconnect') }"


@dataclass
class States:
    """What the two hooks of the page say."""

    page: Page
    agent: Puppet

    async def are(self, plain: str, told: str, *, why: str = "") -> None:
        await expect(self.page.locator("#plain")).to_have_text(plain)
        await expect(self.page.locator("#told")).to_have_text(told)
        await expect(self.page.locator("#why")).to_have_text(why)


@pytest.fixture
async def states(
    told_server: tuple[LiveKitServer, int],
    monkeypatch: pytest.MonkeyPatch,
    browser: Browser,
    hire: Hire,
    room_name: str,
) -> AsyncIterator[States]:
    """The page in a call with an agent."""
    page_files = await asyncio.to_thread(built, WEB.parent / "react")
    server, port = told_server
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    app = make_app()
    app.router.add_static("/page", page_files)
    app.router.add_static("/assets", page_files / "assets")
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    page = await browser.new_page()
    await page.goto(f"http://127.0.0.1:{port}/page/index.html?room={room_name}")
    await page.get_by_role("button", name="Start").click()
    agent = await hire()
    await agent.write(LISTENS)
    call = States(page, agent)
    await call.are("listening", "listening")
    yield call
    await runner.cleanup()


async def test_a_goodbye_has_ended_and_has_not_failed(states: States) -> None:
    await states.agent.write(GOODBYE)
    await states.are("listening", "ended", why="completed bye")
    await states.agent.leave()
    await states.are("failed", "ended", why="completed bye")


async def test_a_crash_is_one_and_the_next_agent_is_seen(states: States, hire: Hire) -> None:
    await states.agent.write(CRASH)
    await states.agent.leave()
    await states.are("failed", "crashed", why="killed SIGKILL")
    successor = await hire("AJ_2", "agent-2")
    await states.are("failed", "initializing")
    await successor.write(LISTENS)
    await states.are("failed", "listening")


async def test_a_leave_without_a_word_is_lost_and_then_crashed(states: States) -> None:
    await states.agent.leave()
    await states.are("failed", "lost")
    await states.are("failed", "crashed", why="unknown client_initiated")


async def test_the_pages_own_full_reconnect_is_no_failure(states: States) -> None:
    await states.page.evaluate(RECONNECT)
    await states.are("failed", "lost")
    await states.are("failed", "listening")


async def test_a_leave_in_the_middle_of_it_is_unclear(states: States) -> None:
    await states.page.evaluate(RECONNECT)
    await states.are("failed", "lost")
    await states.agent.leave()
    await states.are("failed", "unclear")


async def test_the_pages_own_end_is_no_failure(states: States) -> None:
    await states.page.get_by_role("button", name="End").click()
    await states.are("disconnected", "disconnected")
