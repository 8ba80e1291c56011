"""Find livekit-server, or build it once, and run it on free ports of 127.0.0.1.

``python scripts/livekit_server.py`` prints the path of the binary, building it if need be.
Two of them can share their rooms by a Redis of their own, where redis-server is installed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

VERSION = "v1.13.5"
PACKAGE = f"github.com/livekit/livekit-server/cmd/server@{VERSION}"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / f"livekit-server-{VERSION}"
START_TIMEOUT = 30.0
START_ATTEMPTS = 3
QUIET_PORTS = range(20_000, 32_000)
"""Below what Linux gives to outgoing connections."""


class MissingServerError(RuntimeError):
    """There is no livekit-server, and none can be built here."""


class PortTakenError(RuntimeError):
    """The server ended right after its start, as it does when one of its ports is taken."""


@dataclass
class LiveKitServer:
    """A server to connect to, and its process where it is ours."""

    url: str
    api_key: str
    api_secret: str
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    node_id: str = ""
    """Its name in a cluster: ``CreateRoomRequest.node_id`` says who is to host a room."""

    @property
    def environment(self) -> dict[str, str]:
        """What an agent or a client needs to find it."""
        return {
            "LIVEKIT_URL": self.url,
            "LIVEKIT_API_KEY": self.api_key,
            "LIVEKIT_API_SECRET": self.api_secret,
        }

    def kill(self) -> None:
        """End it, where it is ours."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """Kill it and start it anew under everybody's feet, on the same ports.

        Raises:
            MissingServerError: It is not ours.
        """
        if self.process is None:
            msg = "the server of LIVEKIT_URL is not ours to restart"
            raise MissingServerError(msg)
        self.kill()
        self.process = _launch(list(map(str, self.process.args)), None)  # type: ignore[arg-type]


def find_or_build() -> Path:
    """Return the path of a livekit-server binary.

    Raises:
        MissingServerError: It is not on PATH and there is no Go to build it with.
    """
    on_path = shutil.which("livekit-server")
    if on_path:
        return Path(on_path)
    binary = CACHE / "server"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        msg = (
            f"livekit-server is needed: set LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET, "
            f"or put livekit-server {VERSION} on PATH, or install Go 1.26 and it is built here"
        )
        raise MissingServerError(msg)
    print(f"building livekit-server {VERSION}, once; this takes 2-3 minutes …", file=sys.stderr)
    started = time.monotonic()
    environment = {**os.environ, "GOBIN": str(CACHE), "GOFLAGS": "-trimpath"}
    build = subprocess.Popen([go, "install", PACKAGE], env=environment)
    try:
        while build.poll() is None:
            try:
                build.wait(timeout=15)
            except subprocess.TimeoutExpired:
                print(f"  … still building, {time.monotonic() - started:.0f} s", file=sys.stderr)
    finally:
        build.kill()  # an interrupted build does not go on by itself
    if build.returncode != 0:
        msg = f"`go install {PACKAGE}` failed with code {build.returncode}"
        raise MissingServerError(msg)
    return binary


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free for TCP and UDP, and that no client is given by chance."""
    found: list[int] = []
    while len(found) < count:
        port = QUIET_PORTS.start + secrets.randbelow(len(QUIET_PORTS))
        with contextlib.suppress(OSError):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


@contextlib.contextmanager
def running(log: Path | None = None, *, webhook: str = "") -> Iterator[LiveKitServer]:
    """The server named by ``LIVEKIT_URL``, else one of our own for as long as the block runs.

    Args:
        log: Where its output goes; nowhere if None.
        webhook: A URL to tell of what happens; the server of ``LIVEKIT_URL`` has its own.
    """
    if os.environ.get("LIVEKIT_URL"):
        yield LiveKitServer(
            os.environ["LIVEKIT_URL"],
            os.environ["LIVEKIT_API_KEY"],
            os.environ["LIVEKIT_API_SECRET"],
        )
        return
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb")) if log else None
        server = _start(find_or_build(), output, webhook)
        try:
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def running_cluster(logs: Path | None = None) -> Iterator[tuple[LiveKitServer, LiveKitServer]]:
    """Two servers of our own over one Redis, also ours, for as long as the block runs.

    Who connects to one of them can be in a room that the other one hosts.

    Args:
        logs: A folder for their output; it goes nowhere if None.

    Raises:
        MissingServerError: redis-server or livekit-server is missing.
    """
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(_running_redis())
        secret = secrets.token_hex(24)
        servers: list[LiveKitServer] = []
        for name in ("one", "other"):
            output = stack.enter_context((logs / f"{name}.log").open("wb")) if logs else None
            known = {server.node_id for server in servers}
            server = _start(find_or_build(), output, secret=secret, redis=redis)
            stack.callback(server.kill)
            (server.node_id,) = _nodes(redis) - known
            servers.append(server)
        yield servers[0], servers[1]


@contextlib.contextmanager
def _running_redis() -> Iterator[int]:
    """A Redis that keeps nothing, on a free port of 127.0.0.1."""
    binary = shutil.which("redis-server")
    if binary is None:
        msg = "redis-server is needed: `apt-get install redis-server`"
        raise MissingServerError(msg)
    (port,) = free_ports(1)
    command = [binary, "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while _ask_redis(port, "PING") != ["PONG"]:
            if process.poll() is not None or time.monotonic() > deadline:
                msg = f"redis-server did not answer, code {process.returncode}"
                raise MissingServerError(msg)
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def _nodes(redis: int) -> set[str]:
    """Who has registered; LiveKit keeps them in one hash."""
    return set(_ask_redis(redis, "HKEYS", "nodes"))


def _ask_redis(port: int, *words: str) -> list[str]:
    asked = subprocess.run(
        ["redis-cli", "-p", str(port), *words],  # noqa: S607 - comes with redis-server
        capture_output=True,
        check=False,
        text=True,
    )
    return asked.stdout.split()


def _start(
    binary: Path,
    output: IO[bytes] | None,
    webhook: str = "",
    *,
    secret: str = "",
    redis: int | None = None,
) -> LiveKitServer:
    key, secret = "lifecycle", secret or secrets.token_hex(24)
    for _ in range(START_ATTEMPTS):
        http, udp = free_ports(2)
        config = (
            f"port: {http}\n"
            "bind_addresses: [127.0.0.1]\n"
            # no TCP for media: that listener can't be kept to one address
            f"rtc: {{tcp_port: 0, udp_port: {udp}, node_ip: 127.0.0.1, "
            "interfaces: {includes: [lo]}, enable_loopback_candidate: true}\n"
            f"keys: {{{key}: {secret}}}\n"
        )
        if webhook:
            config += f"webhook: {{api_key: {key}, urls: ['{webhook}']}}\n"
        if redis is not None:
            config += f"redis: {{address: '127.0.0.1:{redis}'}}\n"
        # somebody else may take a port between our look and the server's: then look again
        with contextlib.suppress(PortTakenError):
            process = _launch([str(binary), "--config-body", config], output)
            return LiveKitServer(f"ws://127.0.0.1:{http}", key, secret, process)
    msg = f"livekit-server ended at its start, {START_ATTEMPTS} times"
    raise MissingServerError(msg)


def _launch(command: list[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command,
        stdout=output or subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    port = int(command[-1].split("port: ", 1)[1].split("\n", 1)[0])
    try:
        _wait_until_up(process, port)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            msg = f"livekit-server ended at once with code {process.returncode}"
            raise PortTakenError(msg)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    msg = f"livekit-server did not answer within {START_TIMEOUT:.0f} s"
    raise MissingServerError(msg)


if __name__ == "__main__":
    try:
        print(os.environ.get("LIVEKIT_URL") or find_or_build())
    except MissingServerError as missing:
        raise SystemExit(str(missing)) from None
