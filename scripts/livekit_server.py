"""Find livekit-server, or build it once, and run it on free ports of 127.0.0.1.

``python scripts/livekit_server.py`` prints the path of the binary, building it if need be.
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
    """Ports of 127.0.0.1 that are free for TCP and UDP at this moment."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            tcp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            tcp.bind(("127.0.0.1", 0))
            port = int(tcp.getsockname()[1])
            udp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with contextlib.suppress(OSError):
                udp.bind(("127.0.0.1", port))
                found.append(port)
    return found


@contextlib.contextmanager
def running(log: Path | None = None) -> Iterator[LiveKitServer]:
    """The server named by ``LIVEKIT_URL``, else one of our own for as long as the block runs.

    Args:
        log: Where its output goes; nowhere if None.
    """
    if os.environ.get("LIVEKIT_URL"):
        yield LiveKitServer(
            os.environ["LIVEKIT_URL"],
            os.environ["LIVEKIT_API_KEY"],
            os.environ["LIVEKIT_API_SECRET"],
        )
        return
    binary = find_or_build()
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb")) if log else subprocess.DEVNULL
        server = _start(binary, output)
        try:
            yield server
        finally:
            server.kill()


def _start(binary: Path, output: IO[bytes] | int) -> LiveKitServer:
    key, secret = "lifecycle", secrets.token_hex(24)
    for attempt in range(1, START_ATTEMPTS + 1):
        http, udp = free_ports(2)
        config = (
            f"port: {http}\n"
            "bind_addresses: [127.0.0.1]\n"
            # no TCP for media: that listener can't be kept to one address
            f"rtc: {{tcp_port: 0, udp_port: {udp}, node_ip: 127.0.0.1, "
            "interfaces: {includes: [lo]}, enable_loopback_candidate: true}\n"
            f"keys: {{{key}: {secret}}}\n"
        )
        process = subprocess.Popen(
            [str(binary), "--config-body", config],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        server = LiveKitServer(f"ws://127.0.0.1:{http}", key, secret, process)
        try:
            _wait_until_up(process, http)
        except PortTakenError:
            # somebody else took a port between our look and the server's: look again
            if attempt == START_ATTEMPTS:
                raise
        except BaseException:
            server.kill()
            raise
        else:
            return server
    raise AssertionError


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
    print(find_or_build())
