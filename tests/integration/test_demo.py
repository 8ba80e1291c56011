"""The demo shows what it promises, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import psutil

from scripts.livekit_server import LiveKitServer
from tests.harness import ROOT


def start(server: LiveKitServer) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "scripts/demo.py"],
        cwd=ROOT,
        env={**os.environ, **server.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def test_five_endings_and_a_table(livekit_server: LiveKitServer) -> None:
    demo = start(livekit_server)
    output, _ = await asyncio.to_thread(demo.communicate)
    assert demo.returncode == 0, output
    table = output.split("ending  ")[-1]
    for words in (
        "intentional: completed",
        "intentional: close_on_disconnect",
        "a notice that it will leave",
        "intentional: drain",
        "crash: exception",
        "crash: killed",
    ):
        assert words in table, output
    assert "\033[" not in output, "plain in a pipe"


async def test_ctrl_c_leaves_nothing_running(livekit_server: LiveKitServer) -> None:
    demo = start(livekit_server)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "all are registered" in line:
            break
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) >= 3
    demo.send_signal(signal.SIGINT)
    output, _ = await asyncio.to_thread(demo.communicate)
    assert demo.returncode == 130, output
    assert "Traceback" not in output
    gone, alive = await asyncio.to_thread(psutil.wait_procs, children, 5)
    assert not alive
    assert len(gone) == len(children)
