"""Which ending a test makes happen: a mark, a check that it did, and the table of docs/matrix.md.

As a plugin (``-p tests.endings``) it can run each such test several times (``--times``) and write
the table (``--matrix FILE``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pytest

from livekit_lifecycle.contract import INTENTIONAL_REASONS, Reason
from tests.harness import Client, Worker

ROOT: Final = Path(__file__).parent.parent
HOOK_WITHIN: Final = 5.0

Hook = Literal["published", "unpublished", "nothing"]

CLIENT_TOLD: Final = "the exit within 2 s, then the leave"
CLIENT_DERIVES: Final = "nothing can be written: readers take it from LiveKit's reason"
NEVER_THERE: Final = "nothing: the agent was never there"
HOOK_WORDS: Final[dict[Hook, str]] = {
    "published": "the same",
    "unpublished": "the same, `published=False`",
    "nothing": "nothing: its worker is dead",
}


@dataclass(frozen=True)
class Ending:
    """What a test makes happen.

    Attributes:
        reason: A word of the contract.
        detail: A token of the contract, or an example of the app's own text.
        how: How it is made to happen, for people.
        client: What a client sees and when, for people.
        hook: What the worker's hook is told.
        written: Whether a client of the test sees the exit as attributes.
    """

    reason: Reason
    detail: str
    how: str
    client: str
    hook: Hook
    written: bool


def ending(
    verdict: str,
    how: str,
    *,
    client: str = CLIENT_TOLD,
    hook: Hook = "published",
    written: bool = True,
) -> pytest.MarkDecorator:
    """Mark a test as the one that makes an ending happen.

    Args:
        verdict: ``reason/detail``, or the reason alone where there is no detail.
        how: How it is made to happen.
        client: What a client sees and when.
        hook: What the worker's hook is told.
        written: Whether a client sees it as attributes.
    """
    reason, _, detail = verdict.partition("/")
    return pytest.mark.ending(Ending(Reason(reason), detail, how, client, hook, written))


def endings_of(item: pytest.Item) -> list[Ending]:
    """Those that a test is marked with."""
    return [mark.args[0] for mark in item.iter_markers("ending")]


@pytest.fixture(autouse=True)
def the_ending_did_happen(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where a marked test did not see what its mark says, in the room and in the hook."""
    Client.everyone.clear()
    Worker.everyone[:] = [worker for worker in Worker.everyone if worker.returncode is None]
    before = {worker: len(worker.lines) for worker in Worker.everyone}
    yield
    for one in endings_of(request.node):
        wanted = (one.reason.value, one.detail)
        seen = {
            (exit_.reason, exit_.detail)
            for client in Client.everyone
            for exit_ in (noted.exit for noted in client.seen)
            if exit_ is not None
        }
        assert (wanted in seen) is one.written, f"{wanted} written: {one.written}; seen: {seen}"
        if one.hook == "nothing":
            assert not [told for told in _hooks(before) if told[1] == one.reason.value]
        else:
            verdict = "intentional" if one.reason in INTENTIONAL_REASONS else "crash"
            _await_hook(before, (verdict, *wanted, one.hook == "published"))


def _hooks(before: Mapping[Worker, int]) -> list[tuple[object, ...]]:
    return [
        tuple(line["seen"])
        for worker in Worker.everyone
        for line in worker.lines[before.get(worker, 0) :]
        if line.get("message") == "worker_hook"
    ]


def _await_hook(before: Mapping[Worker, int], wanted: tuple[object, ...]) -> None:
    deadline = time.monotonic() + HOOK_WITHIN
    while wanted not in (told := _hooks(before)):
        living = any(worker.returncode is None for worker in Worker.everyone)
        assert living and time.monotonic() < deadline, f"{wanted} was not told: {told}"  # noqa: PT018
        time.sleep(0.05)


# -- as a plugin -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=int, default=1, help="run each test so many times")
    parser.addoption("--matrix", type=Path, help="write the table of endings into this file")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    times = metafunc.config.getoption("--times", 1)
    if times > 1:
        metafunc.fixturenames.append("_run")
        metafunc.parametrize("_run", range(times))


def pytest_collection_finish(session: pytest.Session) -> None:
    file = session.config.getoption("--matrix", None)
    if file is not None:
        order = list(Reason)
        rows = {(one, _name(item)) for item in session.items for one in endings_of(item)}
        in_order = sorted(
            rows, key=lambda row: (order.index(row[0].reason), row[0].detail, row[0].how, row[1])
        )
        file.write_text(HEADER + "".join(_row(one, test) for one, test in in_order))


HEADER: Final = """\
# Every ending, made to happen

Each row is run on a real livekit-server with real job processes and real signals: once by
`make test`, ten times by `make chaos`. A row fails if the test did not see just this in the room
and in the worker's hook. What the words mean is in [endings](endings.md).

This page is made out of the tests' own marks, by `make matrix`; files are those of
`tests/integration`.

| exit | reason | detail | how it is made to happen | a client sees | the hook is told | test |
| --- | --- | --- | --- | --- | --- | --- |
"""


def _name(item: pytest.Item) -> str:
    file = item.path.relative_to(ROOT / "tests" / "integration")
    return f"{file}::{item.name.partition('[')[0]}"


def _row(one: Ending, test: str) -> str:
    exit_ = "intentional" if one.reason in INTENTIONAL_REASONS else "crash"
    detail = f"`{one.detail}`" if one.detail else ""
    hook = HOOK_WORDS[one.hook]
    cells = (exit_, f"`{one.reason}`", detail, one.how, one.client, hook, f"`{test}`")
    return f"| {' | '.join(cells)} |\n"
