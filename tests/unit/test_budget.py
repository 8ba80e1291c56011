"""The sums of times: LiveKit's defaults are no ground for a word, what can't work is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from livekit_lifecycle import DrainOptions, LifecycleOptions, LifecycleServer
from livekit_lifecycle.budget import ServerTimes, check_budget
from tests.logs import our_records


def times(**given: float) -> ServerTimes:
    """LiveKit's own, but for what is given."""
    own: dict[str, Any] = {
        "drain_timeout": 3600.0,
        "shutdown_process_timeout": 10.0,
        "session_end_timeout": 300.0,
    }
    return ServerTimes(**(own | given), given=frozenset(given))


@pytest.mark.parametrize(
    "options",
    [
        LifecycleOptions(),
        LifecycleOptions(drain=DrainOptions(kill_grace=120)),
        LifecycleOptions(drain=DrainOptions(end_before=20)),
        LifecycleOptions(closing_timeout=None, exit_timeout=None, leave_after=None),
    ],
)
def test_livekits_defaults_are_no_ground_for_a_warning(options: LifecycleOptions) -> None:
    assert check_budget(options, times()) == []
    assert LifecycleServer(lifecycle=options)._times() == times()


@pytest.mark.parametrize(
    ("options", "given", "sentence"),
    [
        (
            LifecycleOptions(drain=DrainOptions(kill_grace=30)),
            {"drain_timeout": 60},
            r"drain_timeout is 60 s, but kill_grace 30 s leaves a drain 27 s",
        ),
        (
            LifecycleOptions(),
            {"shutdown_process_timeout": 2},
            r"shutdown_process_timeout is 2 s: .* which takes up to 3 s",
        ),
        (
            LifecycleOptions(closing_timeout=None),
            {"session_end_timeout": 20},
            r"session_end_timeout is 20 s, .* shutdown_process_timeout 10 s",
        ),
        (
            LifecycleOptions(),
            {"session_end_timeout": 40, "shutdown_process_timeout": 60},
            r"session_end_timeout is 40 s, .* closing_timeout 30 s after the exit",
        ),
        (
            LifecycleOptions(closing_timeout=None),
            {"session_end_timeout": 600, "shutdown_process_timeout": 900},
            r"exit_timeout is 600 s, but an ending may take 675 s",
        ),
    ],
)
def test_what_is_tight_is_told_with_the_numbers(
    options: LifecycleOptions, given: dict[str, float], sentence: str
) -> None:
    (told,) = check_budget(options, times(**given))
    assert re.match(sentence, told), told


def test_what_cannot_work_is_refused_when_the_server_is_made() -> None:
    options = LifecycleOptions(drain=DrainOptions(end_before=60))
    with pytest.raises(ValueError, match=r"end_before is 60 s and a drain lasts 60 s: no call"):
        LifecycleServer(lifecycle=options, drain_timeout=60)
    LifecycleServer(lifecycle=options, drain_timeout=61)
    LifecycleServer(lifecycle=options, drain_timeout=0)  # without a limit


def test_a_time_that_the_command_line_changed_is_told_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = LifecycleServer(lifecycle=LifecycleOptions(drain=DrainOptions(end_before=60)))
    server.update_options(drain_timeout=30)
    server._tell_tight_times()
    (record,) = our_records(caplog)
    assert record.message == "lifecycle.times_are_tight"
    assert "a drain lasts 30 s" in record.__dict__["why"]
