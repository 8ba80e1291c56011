"""How many crashes are too many, and what travels in the metadata."""

from __future__ import annotations

import math
from typing import Any

import pytest

from livekit_lifecycle import RestartPolicy
from livekit_lifecycle.lineage import Lineage, join_metadata, split_metadata

POLICY = RestartPolicy(max_restarts=2, within=60)


def test_after_too_many_crashes_within_the_time_nobody_follows() -> None:
    one = Lineage().after_crash(POLICY, "AJ_1", 100)
    assert one == Lineage("AJ_1", (100,))
    two = one.after_crash(POLICY, "AJ_2", 110)
    assert two == Lineage("AJ_2", (100, 110))
    assert two.after_crash(POLICY, "AJ_3", 159) is None


def test_old_crashes_are_forgotten() -> None:
    two = Lineage("AJ_2", (100, 110))
    assert two.after_crash(POLICY, "AJ_3", 160) == Lineage("AJ_3", (110, 160))
    assert two.after_crash(POLICY, "AJ_3", 1000) == Lineage("AJ_3", (1000,))


@pytest.mark.parametrize(
    "own",
    [
        "",
        "front desk",
        '{"a": 1}',
        "two\nlines",
        "\nlivekit_lifecycle: ",
        "\nlivekit_lifecycle: {}",
        '\nlivekit_lifecycle: {"previous": 1, "crashes": "x"}',
        "livekit_lifecycle: []",
        "\nlivekit_lifecycle: null",
    ],
)
def test_the_apps_own_metadata_stays_as_it_is(own: str) -> None:
    assert split_metadata(own) == (own, Lineage())
    lineage = Lineage("AJ_1", (1.5, 2.5))
    assert split_metadata(join_metadata(own, lineage)) == (own, lineage)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", None])
def test_refuses_an_impossible_number_of_restarts(bad: Any) -> None:
    with pytest.raises(ValueError, match=rf"max_restarts is {bad!r}; it must be a whole number"):
        RestartPolicy(max_restarts=bad)


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan, None])
def test_refuses_an_impossible_time(bad: Any) -> None:
    with pytest.raises(ValueError, match=rf"within is {bad!r}; it must be a number of seconds"):
        RestartPolicy(within=bad)
