"""The page with real agents of a real worker, each of which comes to its end for real."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import expect

from examples.web_demo import ROOT
from scripts.livekit_server import free_ports
from tests.web.people import Visit, Visitor

pytestmark = pytest.mark.integration

REGISTER_TIMEOUT = 40.0
DRAIN_TIMEOUT = 8
GRACE = 6


@dataclass
class Demo:
    """The demo as its users start it."""

    url: str
    log: Path

    def registered(self) -> int:
        """How many workers have registered so far."""
        return self.log.read_text(encoding="utf-8").count('"registered worker"')

    def wait_for_worker(self, count: int) -> None:
        deadline = time.monotonic() + REGISTER_TIMEOUT
        while self.registered() < count:
            assert time.monotonic() < deadline, self.log.read_text(encoding="utf-8")[-4000:]
            time.sleep(0.1)


@pytest.fixture(scope="module")
def demo(page_built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    del page_built
    port = free_ports(1)[0]
    log = tmp_path_factory.mktemp("demo") / "log"
    environment = {key: value for key, value in os.environ.items() if key != "LIVEKIT_URL"}
    environment |= {
        "DRAIN_TIMEOUT": str(DRAIN_TIMEOUT),
        "GRACE": str(GRACE),
        "AGENT_NAME": f"desk-{port}",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.web_demo", "--port", str(port)],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            made = Demo(f"http://127.0.0.1:{port}", log)
            made.wait_for_worker(1)
            yield made
        finally:
            process.terminate()
            process.wait()


async def served(visit: Visit, demo: Demo, room: str) -> Visitor:
    visitor = await visit(demo.url, room)
    await visitor.call()
    await visitor.says("With you", timeout=30)
    return visitor


async def heard(demo: Demo, room: str) -> list[tuple[str, str, str]]:
    """The endings that the back end was told of by LiveKit."""
    deadline = time.monotonic() + 10
    while True:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{demo.url}/api/exits", params={"room": room}) as answer,
        ):
            records = [(r["exit"], r["reason"], r["detail"]) for r in await answer.json()]
        if records or time.monotonic() > deadline:
            return records
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ("goodbye", ("intentional", "completed", "See you soon!")),
        ("handoff", ("intentional", "handoff", "A colleague takes over.")),
        ("exception", ("crash", "exception", "DeskOnFireError")),
        ("exit", ("crash", "exited", "code:3")),
        ("kill", ("crash", "killed", "SIGKILL")),
        ("remove", ("intentional", "removed", "participant_removed")),
        ("room", ("intentional", "room_closed", "deleted")),
    ],
)
async def test_an_ending(
    demo: Demo, visit: Visit, room_name: str, how: str, facts: tuple[str, str, str]
) -> None:
    label, wrong = "Ended on purpose", "Crashed"
    if facts[0] == "crash":
        label, wrong = wrong, label
    visitor = await served(visit, demo, room_name)
    at = time.monotonic()
    await visitor.page.click(f"button[data-how={how}]")
    await visitor.says(label)
    assert time.monotonic() - at < 3
    shown = await visitor.text("facts") + await visitor.text("story")
    assert all(word in shown for word in facts)
    assert wrong not in await visitor.labels()
    assert await heard(demo, room_name) == [facts]


async def test_after_a_crash_a_new_agent_comes_when_asked_for(
    demo: Demo, visit: Visit, room_name: str
) -> None:
    visitor = await served(visit, demo, room_name)
    await visitor.page.click("button[data-how=kill]")
    await visitor.says("Crashed")
    await visitor.page.click("#again")
    await visitor.says("With you", timeout=30)
    await expect(visitor.page.locator("#earlier li")).to_have_count(1)
    assert "killed · SIGKILL" in await visitor.text("earlier")


async def test_hang_up_is_the_users_own_leave(demo: Demo, visit: Visit, room_name: str) -> None:
    visitor = await served(visit, demo, room_name)
    await visitor.page.click("#hangup")
    await visitor.says("Over", timeout=4)
    assert await heard(demo, room_name) == [("intentional", "close_on_disconnect", "user_bye")]


async def test_a_closed_tab_is_waited_for_until_the_deadline(
    demo: Demo, visit: Visit, room_name: str
) -> None:
    visitor = await served(visit, demo, room_name)
    other = await served(visit, demo, room_name)
    await visitor.page.close()
    await other.says("Waiting")
    assert await other.seconds() == pytest.approx(GRACE, abs=2)
    await other.says("Ended on purpose", timeout=GRACE + 5)
    assert "timeout · grace · next: end" in await other.text("facts")


async def test_a_reload_and_a_late_second_page_see_the_same_agent(
    demo: Demo, visit: Visit, room_name: str
) -> None:
    visitor = await served(visit, demo, room_name)
    agent = await visitor.text("facts")
    await visitor.page.reload()
    await visitor.says("With you")
    assert await visitor.text("facts") == agent
    second = await served(visit, demo, room_name)
    assert await second.text("facts") == agent
    await visitor.page.click("button[data-how=goodbye]")
    for one in (visitor, second):
        await one.says("Ended on purpose")


async def test_a_drain_is_counted_down_and_then_named(
    demo: Demo, visit: Visit, room_name: str
) -> None:
    visitor = await served(visit, demo, room_name)
    workers = demo.registered()
    await visitor.page.click("button[data-how=drain]")
    await expect(visitor.page.locator("#notice")).to_be_visible()
    await visitor.says("With you")
    assert await visitor.seconds() == pytest.approx(DRAIN_TIMEOUT, abs=1.5)
    await visitor.says("Ended on purpose", timeout=DRAIN_TIMEOUT + 5)
    assert "drain · drain_timeout · next: rejoin" in await visitor.text("facts")
    await asyncio.to_thread(demo.wait_for_worker, workers + 1)
    await visitor.page.click("#again")
    await visitor.says("With you", timeout=30)


async def test_the_worker_is_killed(demo: Demo, visit: Visit, room_name: str) -> None:
    visitor = await served(visit, demo, room_name)
    workers = demo.registered()
    await visitor.page.click("button[data-how=worker]")
    await visitor.says("Crashed")
    assert "worker_lost" in await visitor.text("facts")
    await asyncio.to_thread(demo.wait_for_worker, workers + 1)
