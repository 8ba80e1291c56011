"""What an integration test is made of: a server, real workers, and clients that note everything.

All times are ``time.monotonic()``, which on one machine is the same clock in every process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, ClassVar

from livekit import api, rtc

from livekit_lifecycle import AgentExit, parse
from livekit_lifecycle.attendance import reason_name
from scripts.livekit_server import LiveKitServer
from tests.tidy import complain_of

ROOT = Path(__file__).resolve().parent.parent
ACTOR = ROOT / "tests" / "integration" / "agents" / "actor.py"
REGISTER_TIMEOUT = 40.0
JOIN_TIMEOUT = 25.0


@dataclass(frozen=True)
class Seen:
    """One thing a client noticed."""

    at: float
    kind: str  # joined, attributes, left, disconnected
    identity: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def exit(self) -> AgentExit | None:
        return parse(self.attributes).exit


def is_serving(seen: Seen) -> bool:
    """An agent says that it is; one without our attributes by LiveKit's own."""
    if "lifecycle.state" in seen.attributes:
        return seen.attributes["lifecycle.state"] == "active"
    return seen.attributes.get("lk.agent.state") == "listening"


def words(seen: Seen) -> tuple[str, str, str, str]:
    """An exit in the contract's words: exit, reason, detail, next."""
    assert seen.exit is not None
    return seen.exit.exit.value, seen.exit.reason, seen.exit.detail, seen.exit.next


class Client:
    """A participant that notes what it sees."""

    everyone: ClassVar[list[Client]] = []  # of the test that runs

    def __init__(self, server: LiveKitServer, room: str, identity: str) -> None:
        self.server, self.room_name, self.identity = server, room, identity
        self.room = rtc.Room()
        self.seen: list[Seen] = []
        self.everyone.append(self)
        self._wakeups: set[asyncio.Event] = set()
        for event in (
            "participant_connected",
            "participant_attributes_changed",
            "participant_disconnected",
            "disconnected",
        ):
            self.room.on(event, getattr(self, f"_{event}"))

    def _note(self, kind: str, participant: rtc.Participant | None, reason: str = "") -> None:
        identity = participant.identity if participant else self.identity
        attributes = dict(participant.attributes) if participant else {}
        self.seen.append(Seen(time.monotonic(), kind, identity, attributes, reason))
        for wakeup in self._wakeups:
            wakeup.set()

    def _participant_connected(self, participant: rtc.RemoteParticipant) -> None:
        self._note("joined", participant)

    def _participant_attributes_changed(
        self, _changed: dict[str, str], participant: rtc.Participant
    ) -> None:
        self._note("attributes", participant)

    def _participant_disconnected(self, participant: rtc.RemoteParticipant) -> None:
        self._note("left", participant, reason_name(participant.disconnect_reason))

    def _disconnected(self, reason: rtc.DisconnectReason.ValueType) -> None:
        self._note("disconnected", None, reason_name(reason))

    async def connect(self, *, kind: str = "standard") -> None:
        token = token_for(self.server, self.room_name, self.identity, kind)
        await self.room.connect(self.server.url, token)
        for participant in self.room.remote_participants.values():
            self._note("joined", participant)

    async def publish_audio(self) -> None:
        """Publish a silent track: the server tells of such participants' leaves at once."""
        track = rtc.LocalAudioTrack.create_audio_track("mic", rtc.AudioSource(48000, 1))
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        await self.room.local_participant.publish_track(track, options)

    async def wait_for(
        self, wanted: Callable[[Seen], bool], timeout: float = JOIN_TIMEOUT, *, since: int = 0
    ) -> Seen:
        """The first thing noticed that fits, also one noticed before.

        Raises:
            AssertionError: Nothing fits in time; it tells everything that was noticed.
        """
        wakeup = asyncio.Event()
        self._wakeups.add(wakeup)
        deadline = time.monotonic() + timeout
        try:
            while True:
                wakeup.clear()
                for seen in self.seen[since:]:
                    if wanted(seen):
                        return seen
                try:
                    await asyncio.wait_for(wakeup.wait(), deadline - time.monotonic())
                except asyncio.TimeoutError:
                    story = "\n".join(map(str, self.seen)) or "nothing"
                    msg = f"{self.identity} did not see it in {timeout} s; it saw:\n{story}"
                    raise AssertionError(msg) from None
        finally:
            self._wakeups.discard(wakeup)

    async def wait_for_exit(self, identity: str, timeout: float = 10.0) -> Seen:
        return await self.wait_for(lambda s: s.identity == identity and s.exit is not None, timeout)

    async def wait_for_leave(self, identity: str, timeout: float = 10.0) -> Seen:
        return await self.wait_for(lambda s: s.identity == identity and s.kind == "left", timeout)

    async def say(self, text: str) -> None:
        """Write to the agent, as a chat does."""
        await self.room.local_participant.send_text(text, topic="lk.chat")

    async def bye(self, agent: str) -> str:
        """Tell the agent that the leave to come is meant; its answer."""
        return await self.room.local_participant.perform_rpc(
            destination_identity=agent, method="lifecycle.bye", payload="", response_timeout=5
        )

    async def aclose(self) -> None:
        await self.room.disconnect()


def token_for(server: LiveKitServer, room: str, identity: str, kind: str) -> str:
    return (
        api.AccessToken(server.api_key, server.api_secret)
        .with_identity(identity)
        .with_kind(kind)  # type: ignore[arg-type]
        .with_grants(api.VideoGrants(room_join=True, room=room))
        .to_jwt()
    )


class Worker:
    """A worker as its users start it: a process of its own, with its own jobs."""

    everyone: ClassVar[list[Worker]] = []  # that ran in the test that runs

    def __init__(
        self,
        server: LiveKitServer,
        *,
        file: Path = ACTOR,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        command: list[str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.server = server
        self.name = name or f"actor-{uuid.uuid4().hex[:8]}"
        self.everyone.append(self)
        self.lines: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self._changed = threading.Condition()
        start = [sys.executable, "-m", "livekit.agents", "start", str(file), "--log-level", "DEBUG"]
        self._process = subprocess.Popen(
            [*(command or start), *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                **server.environment,
                "ACTOR_NAME": self.name,
                "LIVEKIT_AGENT_NAME_OVERRIDE": self.name,
                **(environment or {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            complain_of(line.rstrip(), self.name)
            entry = _entry(line.rstrip())
            with self._changed:
                self.raw.append(line.rstrip())
                self.lines.append(entry)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def log(self, message: str, **fields: Any) -> list[dict[str, Any]]:
        """The worker's log lines so far with this message and these fields."""
        return [line for line in list(self.lines) if _fits(line, message, fields)]

    async def wait_for_log(
        self, message: str, timeout: float = 15.0, **fields: Any
    ) -> dict[str, Any]:
        """The first log line that fits, also one that was there before."""
        return await asyncio.to_thread(self.await_log, message, timeout, **fields)

    async def wait_for_only_log(self, message: str, **fields: Any) -> dict[str, Any]:
        """The same, where there must not be another one so far."""
        line = await self.wait_for_log(message, **fields)
        found = self.log(message, **fields)
        assert len(found) == 1, f"{len(found)} log lines {message!r} {fields}"
        return line

    def await_log(self, message: str, timeout: float, **fields: Any) -> dict[str, Any]:
        """The same, for a thread.

        Raises:
            AssertionError: There is none in time, or the worker is gone; it shows the log's end.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for line in self.lines:
                    if _fits(line, message, fields):
                        return line
                left = deadline - time.monotonic()
                if left <= 0 or (self.returncode is not None and not self._reader.is_alive()):
                    tail = "\n".join(self.raw[-60:])
                    msg = f"no log line {message!r} {fields} in {timeout} s:\n{tail}"
                    raise AssertionError(msg)
                self._changed.wait(min(left, 0.5))

    async def wait_for_logs(
        self, message: str, count: int, timeout: float = 15.0, **fields: Any
    ) -> list[dict[str, Any]]:
        """As many log lines that fit, those included that were there before.

        Raises:
            AssertionError: There are fewer in time.
        """

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(
                    lambda: len(self.log(message, **fields)) >= count, timeout
                )

        enough = await asyncio.to_thread(wait)
        found = self.log(message, **fields)
        assert enough, f"{len(found)} log lines {message!r} {fields} in {timeout} s, not {count}"
        return found

    async def wait_for_news(self, timeout: float = 15.0) -> None:
        """Wait for the next log line, whichever.

        Raises:
            AssertionError: There is none in time.
        """

        def wait() -> bool:
            with self._changed:
                return self._changed.wait(timeout)

        assert await asyncio.to_thread(wait), f"nothing was logged in {timeout} s"

    def signal(self, number: Signals) -> float:
        """Send the worker a signal; the time of it."""
        at = time.monotonic()
        os.kill(self.pid, number)
        return at

    def signal_group(self, number: Signals) -> float:
        """Send it to the worker and all its jobs, as a terminal or systemd does."""
        at = time.monotonic()
        os.killpg(self.pid, number)
        return at

    async def wait_exit(self, timeout: float = 30.0) -> int:
        """Wait until it is gone; its exit code. All it logged can be read then."""
        code = await asyncio.to_thread(self._process.wait, timeout)
        # jobs that outlive it have the same output, and keep the reader reading
        await asyncio.to_thread(self._reader.join, 1.0)
        return code

    def kill(self) -> None:
        """End it with everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, Signals.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=5)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _entry(line: str) -> dict[str, Any]:
    """A log line as its message and fields: JSON or, in dev mode, in colours."""
    coloured = re.fullmatch(r".* - \w+ +\S+ - (.*?)(?: (\{.*\}))?", re.sub(r"\x1b\[\d*m", "", line))
    message, fields = coloured.groups() if coloured else (line, line)
    try:
        entry = json.loads(fields or "{}")
    except ValueError:
        entry = None
    return {"message": message, **entry} if isinstance(entry, dict) else {"message": line}


def _fits(line: Mapping[str, Any], message: str, fields: Mapping[str, Any]) -> bool:
    return message in str(line.get("message", "")) and all(
        line.get(key) == value for key, value in fields.items()
    )


@contextlib.contextmanager
def running_worker(server: LiveKitServer, **arguments: Any) -> Iterator[Worker]:
    """A worker that has registered; ended with all its jobs, by their process group."""
    worker = Worker(server, **arguments)
    try:
        worker.await_log("registered worker", REGISTER_TIMEOUT)
        yield worker
    finally:
        worker.kill()


@dataclass
class Call:
    """One room with a user, an observer and an agent that serves."""

    server: LiveKitServer
    worker: Worker
    room: str
    user: Client
    observer: Client
    agent: str = ""
    job: str = ""

    async def do(self, act: str, **order: Any) -> dict[str, Any]:
        """Tell the actor to end in some way; its pid, job id and the time of the deed."""
        return await do(self.user, self.worker, self.agent, act, **order)

    async def wait_for_track(self, timeout: float = 2.0) -> None:
        """Until then the server may keep the agent's leave to itself for 3 s. Not all have one."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            agent = self.observer.room.remote_participants.get(self.agent)
            if agent is not None and agent.track_publications:
                return
            await asyncio.sleep(0.02)

    async def user_leaves(self) -> None:
        await self.user.room.disconnect()

    async def user_returns(self, identity: str = "user", *, track: bool = True) -> Client:
        """Another client, as after a page reload."""
        self.user = Client(self.server, self.room, identity)
        await self.user.connect()
        if track:
            await self.user.publish_audio()
        return self.user

    async def wait_for_state(self, state: str, timeout: float = 10.0, *, since: int = 0) -> Seen:
        return await self.observer.wait_for(
            lambda s: s.identity == self.agent and s.attributes.get("lifecycle.state") == state,
            timeout,
            since=since,
        )

    async def heard(self, text: str, timeout: float = 10.0) -> dict[str, Any]:
        """The user says it until the agent hears it: LiveKit drops what comes before it is seen."""
        for _ in range(int(timeout / 0.1)):
            await self.user.say(text)
            with contextlib.suppress(AssertionError):
                return await self.worker.wait_for_log("heard", 0.1, text=text, room=self.room)
        msg = f"the agent did not hear {text!r} in {timeout} s"
        raise AssertionError(msg)

    async def ending(self, timeout: float = 10.0) -> tuple[Seen, Seen]:
        """How it ended for the observer: the exit as first seen, and the leave."""
        exit_ = await self.observer.wait_for_exit(self.agent, timeout)
        left = await self.observer.wait_for_leave(self.agent, timeout)
        return exit_, left


@contextlib.asynccontextmanager
async def call(
    server: LiveKitServer,
    worker: Worker,
    *,
    active: bool = True,
    track: bool = True,
    user: str = "user",
    departure_timeout: int = 0,
    host: LiveKitServer | None = None,
    **how: Any,
) -> AsyncIterator[Call]:
    """A room of its own with a user, an observer and a dispatched agent.

    Args:
        server: Where user and observer connect and the agent is dispatched; the worker may be at
            another one of the same cluster.
        worker: Whose agent.
        active: Wait until the agent serves; else only until it is in the room.
        track: The user publishes a silent track, so that its leave is told at once.
        user: Identity of the user.
        departure_timeout: Of the room, in seconds; the server's own if 0.
        host: Which one of a cluster hosts the room; left to them if None.
        **how: Goes to the actor as metadata.
    """
    room = f"room-{uuid.uuid4().hex[:10]}"
    made = Call(server, worker, room, Client(server, room, user), Client(server, room, "observer"))
    try:
        if departure_timeout or host:
            request = api.CreateRoomRequest(
                name=room,
                departure_timeout=departure_timeout,
                node_id=host.node_id if host else "",
            )
            async with server_api(server) as lkapi:
                await lkapi.room.create_room(request)
        await made.user.connect()
        if track:
            await made.user.publish_audio()
        await dispatch(server, room, worker.name, how)
        joined = await made.user.wait_for(lambda s: s.identity.startswith("agent-"))
        made.agent, made.job = joined.identity, joined.identity.removeprefix("agent-")
        # after the agent, so that it is the user that the agent links to; as an agent, since
        # anybody else would count as one who may come instead of the user
        await made.observer.connect(kind="agent")
        if active:
            await made.user.wait_for(is_serving)
            if how.get("options", {}).get("audio_output", True):
                await made.wait_for_track()
        yield made
    finally:
        await asyncio.gather(made.user.aclose(), made.observer.aclose())


@contextlib.asynccontextmanager
async def in_room(
    server: LiveKitServer, identity: str, *, room: str = "", kind: str = "standard"
) -> AsyncIterator[Client]:
    """A client in a room, in one of its own if none is named."""
    client = Client(server, room or f"room-{uuid.uuid4().hex[:10]}", identity)
    try:
        await client.connect(kind=kind)
        yield client
    finally:
        await client.aclose()


async def do(client: Client, worker: Worker, agent: str, act: str, **order: Any) -> dict[str, Any]:
    """Tell an actor what to do; returns when it does it."""
    number = uuid.uuid4().hex
    await client.room.local_participant.publish_data(
        json.dumps({"id": number, "act": act, **order}), topic="do", destination_identities=[agent]
    )
    return await worker.wait_for_log("deed", id=number)


async def dispatch(server: LiveKitServer, room: str, name: str, how: Mapping[str, Any]) -> None:
    async with server_api(server) as lkapi:
        await lkapi.agent_dispatch.create_dispatch(
            api.CreateAgentDispatchRequest(agent_name=name, room=room, metadata=json.dumps(how))
        )


@contextlib.asynccontextmanager
async def server_api(server: LiveKitServer) -> AsyncIterator[api.LiveKitAPI]:
    lkapi = api.LiveKitAPI(server.url, server.api_key, server.api_secret)
    try:
        yield lkapi
    finally:
        await lkapi.aclose()
