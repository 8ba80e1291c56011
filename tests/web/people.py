"""Who visits the page in its tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from playwright.async_api import Page, expect

from scripts.page_stage import Puppet

A = TypeVar("A")
T = TypeVar("T")

ENDS = ("Crashed", "Ended on purpose", "Not clear", "Left")


class Visitor:
    """One page in a tab of its own, so with a session of its own."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def call(self) -> None:
        await self.page.click("#join")

    async def says(self, label: str, *, timeout: float = 15.0) -> None:
        await expect(self.page.locator("#label")).to_have_text(label, timeout=timeout * 1000)

    async def has_said(self, label: str, times: int = 1, *, timeout: float = 15.0) -> None:
        """Wait until it has said so, however shortly, and that many times."""
        await self.page.wait_for_function(
            "([said, times]) => window.labels.filter((one) => one === said).length >= times",
            arg=[label, times],
            timeout=timeout * 1000,
        )

    async def verdict(self) -> str:
        """What it says in the end of an agent that has left."""
        await self.page.wait_for_function(
            "ends => ends.includes(window.labels.at(-1))", arg=list(ENDS), timeout=30_000
        )
        return (await self.labels())[-1]

    async def text(self, name: str) -> str:
        return await self.page.inner_text(f"#{name}")

    async def labels(self) -> list[str]:
        """Everything the page has said about the agent, in order."""
        return list(await self.page.evaluate("window.labels"))

    async def seconds(self) -> int:
        """What the countdown shows."""
        shown = await self.text("seconds")
        return int(shown.removesuffix(" s"))

    async def simulate(self, scenario: str) -> None:
        await self.page.evaluate("how => { demo.room().simulateScenario(how) }", scenario)


Visit = Callable[..., Awaitable[Visitor]]
Hire = Callable[..., Awaitable[Puppet]]


async def gather_some(do: Callable[[A], Awaitable[T]], over: Iterable[A]) -> list[T]:
    """Do it with all of them, a few at a time: pages that load all at once outlast time-outs."""
    few = asyncio.Semaphore(4)

    async def one(argument: A) -> T:
        async with few:
            return await do(argument)

    return await asyncio.gather(*map(one, over))


async def in_call(visit: Visit, site: str, room: str, **how: int) -> Visitor:
    """A page that is talking to the agent of a room."""
    visitor = await visit(site, room, **how)
    await visitor.call()
    await visitor.says("With you")
    return visitor
