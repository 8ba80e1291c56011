"""The check for what tests leave behind finds it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from signal import Signals

import aiohttp
import pytest

from tests.tidy import MARK, complain_of, leftovers, take_complaints

RUN = "a run of its own"
ORPHAN = """
from subprocess import DEVNULL, Popen
print(Popen(["sleep", "60"], start_new_session=True, stdout=DEVNULL).pid)
"""


def left() -> str:
    return "\n".join(leftovers(RUN, patience=0))


def test_a_process_that_its_parents_have_forgotten() -> None:
    made = subprocess.run(
        [sys.executable, "-c", ORPHAN],
        env={**os.environ, MARK: RUN},
        stdout=subprocess.PIPE,
        check=True,
    )
    pid = int(made.stdout)
    try:
        assert f"'pid': {pid}" in left()
    finally:
        os.kill(pid, Signals.SIGKILL)


def test_a_child_without_the_mark() -> None:
    child = subprocess.Popen(["sleep", "60"], env={})  # noqa: S607 - the system's own
    try:
        assert f"'pid': {child.pid}" in left()
        child.kill()
        assert f"'pid': {child.pid}" in left(), "a zombie counts until somebody reaps it"
    finally:
        child.wait()
    assert f"'pid': {child.pid}" not in left()


def test_a_socket_that_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert f"port={listener.getsockname()[1]}" in left()
    assert "listening" not in left()


async def test_a_session_that_somebody_still_holds() -> None:
    async with aiohttp.ClientSession() as session:
        assert f"open: {session}" in left()
    assert "open" not in left()


async def test_what_asyncio_logs_in_this_process() -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "Unclosed something"})
    (line,) = take_complaints()
    assert line == "this process: Unclosed something"


@pytest.mark.parametrize("words", ["Unclosed client session", "Task was destroyed but it is pend"])
def test_what_a_worker_logs(words: str) -> None:
    complain_of(f'{{"message": "{words}ing"}}', "actor")
    complain_of('{"message": "all is well"}', "actor")
    (line,) = take_complaints()
    assert words in line
