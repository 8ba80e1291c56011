"""What the demo is made of: workers as real processes, and clients that note what they see.

All times are ``time.monotonic()``, which on one machine is the same clock in every process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from livekit import api, rtc

from scripts.livekit_server import LiveKitServer

ROOT: Final = Path(__file__).resolve().parent.parent
REGISTER_TIMEOUT: Final = 60.0
COLOUR: Final = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
CODES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


class DemoError(Exception):
    """The demo can't go on; the text is for its user."""


@dataclass(frozen=True)
class Seen:
    """What a client noticed of an agent; ``left`` is LiveKit's reason of its leave."""

    at: float
    attributes: dict[str, str]
    left: str = ""


@dataclass
class Outcome:
    """What a client saw of an ending; times in seconds after the cause.

    ``after`` is that of the leave, or of the moment when the client gave up waiting for it.
    """

    exit: tuple[str, str, str] | None = None
    exit_after: float = 0.0
    drain_after: float | None = None
    left: str = ""
    after: float = 0.0
    agent_state: str = ""


class Worker:
    """A worker as its users start it, in a process group of its own."""

    def __init__(self, server: LiveKitServer, label: str, *, plain: bool = False) -> None:
        self.server, self.label = server, label
        self.agent_name = f"demo-{uuid.uuid4().hex[:8]}"
        self._registered: Future[None] = Future()
        environment = {
            "PYTHONPATH": str(ROOT),
            "DEMO_AGENT_NAME": self.agent_name,
            "LIVEKIT_AGENT_NAME_OVERRIDE": "",  # it would win
            "DEMO_PLAIN": "1" if plain else "",
        }
        file = str(ROOT / "scripts" / "demo_agent.py")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "livekit.agents", "start", file, "--log-level", "INFO"],
            env={**os.environ, **server.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        tail: deque[str] = deque(maxlen=20)
        for line in self.process.stdout or ():
            tail.append(line)
            if "registered worker" in line and not self._registered.done():
                self._registered.set_result(None)
        if not self._registered.done():
            msg = f"{self.label} ended at its start; its last lines:\n{''.join(tail)}"
            self._registered.set_exception(DemoError(msg))

    async def wait_registered(self) -> None:
        """Wait until the server may send it calls."""
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._registered), REGISTER_TIMEOUT)
        except asyncio.TimeoutError:
            msg = f"{self.label} did not register within {REGISTER_TIMEOUT:.0f} s"
            raise DemoError(msg) from None

    def kill(self) -> None:
        """End it with everything it started."""
        # nobody has waited for it until now, so the id is still its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Client:
    """A participant who notes what the agent in the room does."""

    def __init__(self, server: LiveKitServer, identity: str, room: str) -> None:
        self.room = rtc.Room()
        self.agent = ""
        self._server = server
        token = api.AccessToken(server.api_key, server.api_secret).with_identity(identity)
        self._token = token.with_grants(api.VideoGrants(room_join=True, room=room))
        self._seen: asyncio.Queue[Seen] = asyncio.Queue()
        self.room.on("participant_connected", self._note)
        self.room.on("participant_attributes_changed", lambda _, who: self._note(who))
        self.room.on("participant_disconnected", self._note_leave)

    def _note(self, who: rtc.Participant, left: str = "") -> None:
        if who.identity.startswith("agent-"):
            self.agent = who.identity
            self._seen.put_nowait(Seen(time.monotonic(), dict(who.attributes), left))

    def _note_leave(self, who: rtc.RemoteParticipant) -> None:
        reason = who.disconnect_reason or rtc.DisconnectReason.UNKNOWN_REASON
        self._note(who, rtc.DisconnectReason.Name(reason).lower())

    async def connect(self, agent_name: str = "", metadata: str = "") -> None:
        """Join; whoever makes the room names the agent that is to come."""
        agents = [api.RoomAgentDispatch(agent_name=agent_name, metadata=metadata)]
        config = api.RoomConfiguration(agents=agents if agent_name else [])
        await self.room.connect(self._server.url, self._token.with_room_config(config).to_jwt())
        for participant in self.room.remote_participants.values():
            self._note(participant)
        # the server tells others at once of the leave of one who has a track
        track = rtc.LocalAudioTrack.create_audio_track("microphone", rtc.AudioSource(48000, 1))
        await self.room.local_participant.publish_track(track)

    async def next(self, until: float) -> Seen | None:
        """What it noticed next; None once it is ``until``."""
        with contextlib.suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(self._seen.get(), until - time.monotonic())
        return None


def paint(text: str, colour: str) -> str:
    """Return ``text`` in a colour, if it goes to a terminal."""
    return f"\033[{CODES[colour]}m{text}\033[0m" if COLOUR and colour else text


def say(text: str, colour: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(paint(text, colour), flush=True)
