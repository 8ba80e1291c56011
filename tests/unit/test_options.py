"""Bad input gets an error at start that names the value, the limit and what to do."""

from __future__ import annotations

import math
from typing import Any

import pytest

from livekit_lifecycle import DrainOptions, ExitRecord, LifecycleOptions, LifecycleServer, managed


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "2", None])
@pytest.mark.parametrize(
    "name",
    [
        "publish_timeout",
        "hook_timeout",
        "leave_after",
        "closing_timeout",
        "stall_after",
        "exit_timeout",
    ],
)
def test_refuses_impossible_times(name: str, bad: Any) -> None:
    if bad is None and name not in ("publish_timeout", "hook_timeout"):
        return  # those may be left open
    with pytest.raises(ValueError, match=rf"{name} is {bad!r}; it must be a number of seconds"):
        LifecycleOptions(**{name: bad})


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "2"])
@pytest.mark.parametrize("name", ["kill_grace", "end_before"])
def test_refuses_impossible_times_of_a_drain(name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {bad!r}; it must be a number of seconds"):
        DrainOptions(**{name: bad})


def test_staying_is_an_option() -> None:
    assert LifecycleOptions(leave_after=None).leave_after is None


def test_a_drain_is_over_in_time_for_a_kill() -> None:
    options = LifecycleOptions(drain=DrainOptions(kill_grace=10))
    assert options.drain_seconds(3600) == 7
    assert options.drain_seconds(0) == 7
    assert options.drain_seconds(5) == 5
    assert LifecycleOptions().drain_seconds(3600) == 3600


def test_refuses_a_kill_that_leaves_no_time() -> None:
    with pytest.raises(ValueError, match=r"kill_grace is 3 s; cutting calls off takes up to 3 s"):
        LifecycleOptions(drain=DrainOptions(kill_grace=3))


def test_refuses_an_end_that_leaves_no_time_for_a_last_word() -> None:
    with pytest.raises(ValueError, match=r"end_before is 2 s; cutting calls off takes up to 3 s"):
        LifecycleOptions(drain=DrainOptions(end_before=2))


def test_refuses_a_process_that_ends_before_its_agent_has_left() -> None:
    with pytest.raises(ValueError, match=r"exit_timeout is 20 s and closing_timeout 30 s"):
        LifecycleOptions(exit_timeout=20)
    assert LifecycleOptions(exit_timeout=20, closing_timeout=20).exit_timeout == 20


@pytest.mark.parametrize(
    ("name", "kind"), [("drain", "DrainOptions"), ("restart", "RestartPolicy")]
)
def test_refuses_parts_of_the_wrong_kind(name: str, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} is 5; it must be a {kind}"):
        LifecycleOptions(**{name: 5})  # type: ignore[arg-type]


def test_refuses_hooks_of_the_wrong_shape() -> None:
    def two(a: object, b: object) -> None: ...

    def none() -> None: ...

    for bad in (two, none):
        with pytest.raises(TypeError, match=r"on_exit is .*must be callable with one positional"):
            LifecycleOptions(on_exit=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_drain is 3; it must be a function of one argument"):
        LifecycleOptions(on_drain=3)  # type: ignore[arg-type]


def test_takes_hooks_of_every_right_shape() -> None:
    class Callable:
        def __call__(self, record: ExitRecord) -> None: ...

        async def method(self, record: ExitRecord) -> None: ...

    for good in (lambda _: None, Callable(), Callable().method, print, lambda *a: None):
        assert LifecycleOptions(on_exit=good).on_exit is good


def test_the_workers_hooks_do_not_travel_to_the_job() -> None:
    options = LifecycleOptions(on_exit=lambda _: None, on_drain=lambda _: None, publish_timeout=1)
    assert options.for_job() == LifecycleOptions(publish_timeout=1)


def test_the_server_refuses_what_is_no_options() -> None:
    with pytest.raises(TypeError, match="lifecycle is 'yes'; it must be a LifecycleOptions"):
        LifecycleServer(lifecycle="yes")  # type: ignore[arg-type]


def test_managed_refuses_what_is_no_entrypoint() -> None:
    def plain(ctx: object) -> None: ...

    with pytest.raises(TypeError, match="must be an 'async def' function"):
        managed(plain)  # type: ignore[arg-type]
