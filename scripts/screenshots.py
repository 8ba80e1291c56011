"""Take the pictures of docs/clients.md: the page in each state it can show, small.

    python scripts/screenshots.py [name …]

A real page in a real Chromium, a real livekit-server, and agents that write what they are told to.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web
from livekit import api
from playwright.async_api import Browser, Page, async_playwright, expect

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from examples.web_demo import make_demo, webhook_url  # noqa: E402
from livekit_lifecycle.contract import (  # noqa: E402
    AgentExit,
    Exit,
    Next,
    State,
    drain_attributes,
    exit_attributes,
    state_attributes,
)
from scripts.livekit_server import free_ports, running  # noqa: E402
from scripts.page_stage import FLAGS, Puppet, build_page, find_chromium  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
WIDTH: Final = 420
RECONNECT: Final = "() => { demo.room().simulateScenario('full-reconnect') }"


@dataclass
class Stage:
    """A page in a call, alone with its agents."""

    page: Page
    room: str
    agents: list[Puppet] = field(default_factory=list)

    @property
    def agent(self) -> Puppet:
        """The one that came last."""
        return self.agents[-1]

    async def agent_comes(self, job: str = "AJ_7Hq2xWcVb9Zk", *, managed: bool = True) -> None:
        """Another agent joins, in the place of the one before."""
        puppet = Puppet(self.room, job, "agent-front-desk", managed=managed)
        self.agents.append(puppet)
        await puppet.connect()

    async def says(self, label: str) -> None:
        """Wait until the page does."""
        await expect(self.page.locator("#label")).to_have_text(label, timeout=30_000)

    async def ends(
        self, exit_: Exit, reason: str, detail: str = "", next_: Next = Next.END
    ) -> None:
        """The agent says how it ends, and leaves."""
        last = AgentExit(exit=exit_, reason=reason, detail=detail, next=next_.value)
        await self.agent.write(exit_attributes(last))
        await self.agent.leave()
        await self.page.wait_for_function("demo.room().remoteParticipants.size === 0")


Scene = Callable[[Stage], Awaitable[None]]


def soon(seconds: float) -> tuple[int, int]:
    """A deadline and its window."""
    return int((time.time() + seconds) * 1000), int(seconds * 1000)


async def _no_agent(stage: Stage) -> None:
    await stage.says("Waiting for an agent")


async def _starting(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.agent.write(state_attributes(State.STARTING))
    await stage.says("Starting")


async def _with_you(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.says("With you")


async def _limit(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.agent.write(state_attributes(State.ACTIVE, *soon(30)))
    await expect(stage.page.locator("#timer")).to_be_visible()


async def _draining(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.agent.write(drain_attributes(*soon(95)))
    await expect(stage.page.locator("#notice")).to_be_visible()


async def _waiting(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.agent.wait(15)
    await stage.says("Waiting")


async def _not_responding(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.agent.write({"lifecycle.stalled": str(soon(0)[0])})
    await stage.says("Not responding")


async def _goodbye(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.ends(Exit.INTENTIONAL, "completed", "Your table is booked.")
    await stage.says("Ended on purpose")


async def _timeout(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.ends(Exit.INTENTIONAL, "timeout", "idle")
    await stage.says("Ended on purpose")


async def _drained(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.ends(Exit.INTENTIONAL, "drain", "drain_timeout", Next.REJOIN)
    await stage.says("Ended on purpose")


async def _removed(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.says("With you")
    await stage.agent.be_removed()
    await stage.says("Ended on purpose")


async def _replaced(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.says("With you")
    await stage.agent_comes("AJ_mP4sTd8LfNyR")
    await expect(stage.page.locator("#earlier li")).to_have_count(1)


async def _room_closed(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.says("With you")
    async with api.LiveKitAPI() as lkapi:
        await lkapi.room.delete_room(api.DeleteRoomRequest(room=stage.room))
    await stage.says("Ended on purpose")


async def _crashed(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.ends(Exit.CRASH, "killed", "SIGKILL", Next.REJOIN)
    await stage.says("Crashed")


async def _successor(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.ends(Exit.CRASH, "session_error", "llm", Next.WAIT)
    await stage.says("Crashed")


async def _out_of_sight(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.says("With you")
    await stage.agent.leave()
    await stage.says("Out of sight")


async def _reconnecting(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.says("With you")
    await stage.page.evaluate(RECONNECT)
    await stage.says("Reconnecting")


async def _not_clear(stage: Stage) -> None:
    await _reconnecting(stage)
    await stage.agent.leave()
    await stage.says("Not clear")


async def _unmanaged(stage: Stage) -> None:
    await stage.agent_comes(managed=False)
    await stage.says("Here")


async def _hung_up(stage: Stage) -> None:
    await stage.agent_comes()
    await stage.says("With you")
    await stage.page.click("#hangup")
    await stage.says("Over")


SCENES: Final[dict[str, Scene]] = {
    "no-agent": _no_agent,
    "starting": _starting,
    "with-you": _with_you,
    "limit": _limit,
    "draining": _draining,
    "waiting": _waiting,
    "not-responding": _not_responding,
    "goodbye": _goodbye,
    "timeout": _timeout,
    "drained": _drained,
    "removed": _removed,
    "replaced": _replaced,
    "room-closed": _room_closed,
    "crashed": _crashed,
    "successor": _successor,
    "out-of-sight": _out_of_sight,
    "reconnecting": _reconnecting,
    "not-clear": _not_clear,
    "unmanaged": _unmanaged,
    "hung-up": _hung_up,
    "phone": _waiting,
}


async def take(browser: Browser, site: str, name: str) -> Path:
    """Play a scene and take its picture; a phone's is narrow, dark, and of the whole page."""
    phone = name == "phone"
    page = await browser.new_page(
        viewport={"width": 340 if phone else WIDTH, "height": 520},
        color_scheme="dark" if phone else "light",
    )
    await page.goto(f"{site}/?room=desk-{name}&identity=caller-7b21")
    await page.click("#join")
    stage = Stage(page, f"desk-{name}")
    await stage.says("Waiting for an agent")
    await SCENES[name](stage)
    await page.evaluate("document.activeElement.blur()")
    await page.mouse.move(0, 0)
    path = IMAGES / f"page-{name}.png"
    target = page.locator("main" if name in {"phone", "replaced"} else "#card")
    await target.screenshot(path=path)
    await page.close()
    await asyncio.gather(*(agent.room.disconnect() for agent in stage.agents))
    return path


@asynccontextmanager
async def open_site() -> AsyncIterator[str]:
    """The page with a back end that has no agents of its own, and a LiveKit server."""
    build_page()
    port = free_ports(1)[0]
    with running(webhook=webhook_url(port)) as server:
        os.environ |= server.environment
        runner = web.AppRunner(make_demo(with_agents=False))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}"
        await runner.cleanup()


async def main(names: list[str]) -> None:
    """Take the pictures of these names, or all."""
    async with open_site() as site, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for name in names or SCENES:
            path = await take(browser, site, name)
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1000:.0f} kB", flush=True)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
