"""Presets: named constants, fresh objects, the caller's value wins, and nothing impossible."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from livekit.agents.voice.room_io import RoomOptions

from livekit_lifecycle import LifecycleRoomOptions, Limits, Reconnect, presets

ALL = (presets.web, presets.mobile, presets.telephony, presets.meeting, presets.immediate)


@pytest.mark.parametrize("preset", ALL)
def test_each_is_a_fresh_room_options(preset: Any) -> None:
    one, other = preset(), preset()
    assert isinstance(one, RoomOptions)
    assert one is not other
    assert one == other


@pytest.mark.parametrize("preset", ALL)
def test_the_callers_value_wins(preset: Any) -> None:
    options = preset(delete_room_on_close=True, audio_input=False, participant_identity="ann")
    assert options.delete_room_on_close is True
    assert options.audio_input is False
    assert options.participant_identity == "ann"
    assert preset(delete_room_on_close=False).delete_room_on_close is False


def test_what_they_are_for() -> None:
    assert presets.web().reconnect == Reconnect(grace=15)
    assert presets.web(follow="any").reconnect.follow == "any"
    assert presets.mobile().reconnect == Reconnect(grace=60)
    assert presets.mobile(grace=90).reconnect.grace == 90
    assert presets.telephony().reconnect == Reconnect(grace=5, broken_link_only=True)
    assert presets.telephony().delete_room_on_close is True
    assert presets.meeting().reconnect == Reconnect(grace=30, follow="any")
    assert presets.meeting().delete_room_on_close is False
    assert presets.immediate().reconnect == Reconnect(grace=0)
    assert presets.immediate().close_on_disconnect is True
    for graceful in (presets.web, presets.mobile, presets.telephony, presets.meeting):
        assert graceful().close_on_disconnect is False


def test_the_own_part_survives_the_copy_that_a_session_makes() -> None:
    options = copy.copy(presets.web(limits=Limits(idle=60)))
    assert isinstance(options, LifecycleRoomOptions)
    assert options.limits.idle == 60


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True])
def test_refuses_impossible_graces(bad: float) -> None:
    with pytest.raises(ValueError, match=rf"grace is {bad!r}; it must be a number of seconds"):
        presets.web(grace=bad)


def test_refuses_what_could_never_matter() -> None:
    with pytest.raises(ValueError, match="grace is 0, so follow='any'"):
        presets.web(grace=0, follow="any")
    with pytest.raises(ValueError, match="follow is 'all'; it must be 'same' or 'any'"):
        presets.web(follow="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the grace of 15 s could never run"):
        presets.web(close_on_disconnect=True)


@pytest.mark.parametrize("name", ["max_duration", "idle", "no_show"])
def test_refuses_impossible_limits(name: str) -> None:
    for bad in (0, -5, math.nan):
        with pytest.raises(ValueError, match=rf"{name} is {bad!r}"):
            Limits(**{name: bad})
    with pytest.raises(ValueError, match=rf"warn_before is 30 and {name} is 30"):
        Limits(**{name: 30}, warn_before=30)


def test_a_warning_comes_ten_seconds_before_or_half_way() -> None:
    assert Limits(max_duration=600).warning_for(600) == 10
    assert Limits(idle=8).warning_for(8) == 4
    assert Limits(idle=8, warn_before=2).warning_for(8) == 2


def test_a_room_that_is_made_for_the_grace() -> None:
    assert presets.room_config(presets.mobile()).departure_timeout == 64
    assert presets.room_config(presets.web(grace=30.5)).departure_timeout == 35
    with pytest.raises(TypeError, match="needs what a preset returned"):
        presets.room_config(RoomOptions())
