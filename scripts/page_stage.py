"""What it takes to show the page: building it, a Chromium to open it, and agents that obey."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from livekit import api, rtc

from livekit_lifecycle.contract import State, state_attributes, will_attributes

WEB: Final = Path(__file__).resolve().parent.parent / "examples" / "web"
FLAGS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class MissingToolError(RuntimeError):
    """This machine has no such program; the text is its name and what it is for."""


def build_page(folder: Path = WEB) -> Path:
    """Return where a page is, built anew where its sources or the reader changed.

    Raises:
        MissingToolError: There is no npm.
    """
    npm = shutil.which("npm")
    if npm is None:
        msg = "npm, to build the page"
        raise MissingToolError(msg)
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


def find_chromium() -> str:
    """Return the path of a Chromium or Chrome.

    Raises:
        MissingToolError: There is none.
    """
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        msg = "chromium"
        raise MissingToolError(msg)
    return path


class Puppet:
    """An agent in the room and nothing else: it writes what it is told to."""

    def __init__(self, room: str, job: str, identity: str, *, managed: bool = True) -> None:
        self.room = rtc.Room()
        self.identity = identity
        self._room_name = room
        attributes = will_attributes(job) | state_attributes(State.ACTIVE) if managed else {}
        self._token = (
            api.AccessToken()
            .with_identity(identity)
            .with_kind("agent")
            .with_attributes({key: value for key, value in attributes.items() if value})
            .with_grants(
                api.VideoGrants(room_join=True, room=room, agent=True, can_update_own_metadata=True)
            )
            .to_jwt()
        )

    async def connect(self) -> None:
        """Join, on the server that the environment names by now."""
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
        with contextlib.suppress(api.TwirpError):  # it has left
            await self.be_removed()

    async def be_removed(self) -> None:
        """Be put out by the server."""
        async with api.LiveKitAPI() as lkapi:
            who = api.RoomParticipantIdentity(room=self._room_name, identity=self.identity)
            await lkapi.room.remove_participant(who)

    async def write(self, *changes: dict[str, str]) -> None:
        """Change its attributes, in one write."""
        merged = {key: value for change in changes for key, value in change.items()}
        await self.room.local_participant.set_attributes(merged)

    async def wait(self, seconds: float) -> None:
        """Say that it waits for its user."""
        deadline = int((time.time() + seconds) * 1000)
        await self.write(state_attributes(State.WAITING, deadline, int(seconds * 1000)))
