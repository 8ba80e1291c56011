"""Who meets in the tests of the page: visitors with a browser, and agents that obey."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from livekit import api, rtc
from playwright.async_api import Page, expect

from livekit_lifecycle.contract import State, state_attributes

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


class Puppet:
    """An agent in the room and nothing else: it writes what it is told to."""

    def __init__(self, room: str, job: str, identity: str, **attributes: str) -> None:
        self.room = rtc.Room()
        self.job, self.identity = job, identity
        self._room_name = room
        self._token = (
            api.AccessToken()
            .with_identity(identity)
            .with_kind("agent")
            .with_attributes(attributes)
            .with_grants(
                api.VideoGrants(room_join=True, room=room, agent=True, can_update_own_metadata=True)
            )
            .to_jwt()
        )

    async def connect(self) -> None:
        await self.room.connect(os.environ["LIVEKIT_URL"], self._token)
        # joins and leaves of those with a track are told at once
        voice = rtc.LocalAudioTrack.create_audio_track("voice", rtc.AudioSource(48000, 1))
        await self.room.local_participant.publish_track(voice)

    async def leave(self) -> None:
        """Leave for sure: on a busy machine LiveKit's SDK loses one in some hundred leaves.

        The server would notice only by its time-out, 20 s later.
        """
        await self.room.disconnect()
        await asyncio.sleep(0.5)
        async with api.LiveKitAPI() as lkapi:
            who = api.RoomParticipantIdentity(room=self._room_name, identity=self.identity)
            with contextlib.suppress(api.TwirpError):  # it has left
                await lkapi.room.remove_participant(who)

    async def write(self, *changes: dict[str, str]) -> None:
        merged = {key: value for change in changes for key, value in change.items()}
        await self.room.local_participant.set_attributes(merged)

    async def wait(self, seconds: float) -> None:
        """Say that it waits for its user."""
        deadline = int((time.time() + seconds) * 1000)
        await self.write(state_attributes(State.WAITING, deadline, int(seconds * 1000)))


Visit = Callable[..., Awaitable[Visitor]]


Hire = Callable[..., Awaitable[Puppet]]


async def gather_some(wanted: Iterable[Awaitable[T]]) -> list[T]:
    """All of them, a few at a time: twenty pages that load at once outlast time-outs."""
    few = asyncio.Semaphore(4)

    async def one(awaitable: Awaitable[T]) -> T:
        async with few:
            return await awaitable

    return await asyncio.gather(*map(one, wanted))


async def in_call(visit: Visit, site: str, room: str, **how: int) -> Visitor:
    """A page that is talking to the agent of a room."""
    visitor = await visit(site, room, **how)
    await visitor.call()
    await visitor.says("With you")
    return visitor
