"""Who meets in the tests of the page: visitors with a browser, and agents that obey."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from livekit import api, rtc
from playwright.async_api import BrowserContext, Page, expect

from livekit_lifecycle.contract import State, state_attributes


class Visitor:
    """One page in a browser context of its own, so with a session of its own."""

    def __init__(self, context: BrowserContext, page: Page) -> None:
        self.context, self.page = context, page

    async def call(self) -> None:
        await self.page.click("#join")

    async def says(self, label: str, *, timeout: float = 15.0) -> None:
        await expect(self.page.locator("#label")).to_have_text(label, timeout=timeout * 1000)

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

    async def connect(self, *, track: bool = True) -> None:
        await self.room.connect(os.environ["LIVEKIT_URL"], self._token)
        if track:
            # joins and leaves of those with a track are told at once
            voice = rtc.LocalAudioTrack.create_audio_track("voice", rtc.AudioSource(48000, 1))
            await self.room.local_participant.publish_track(voice)

    async def write(self, *changes: dict[str, str]) -> None:
        merged = {key: value for change in changes for key, value in change.items()}
        await self.room.local_participant.set_attributes(merged)

    async def wait(self, seconds: float) -> None:
        """Say that it waits for its user."""
        deadline = int((time.time() + seconds) * 1000)
        await self.write(state_attributes(State.WAITING, deadline, int(seconds * 1000)))


Visit = Callable[..., Awaitable[Visitor]]


Hire = Callable[..., Awaitable[Puppet]]
