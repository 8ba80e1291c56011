"""The grace and the limits, case by case."""

from __future__ import annotations

import pytest

from livekit_lifecycle import Limits, Reconnect, State
from livekit_lifecycle.classify import LimitReached, UserGone
from livekit_lifecycle.grace import BROKEN_LINK, End, Grace, LimitWarning, Returned, Waiting

LEFT = "client_initiated"


def grace(
    seconds: float = 15, *, follow: str = "same", broken: bool = False, **limits: float
) -> Grace:
    reconnect = Reconnect(grace=seconds, follow=follow, broken_link_only=broken)  # type: ignore[arg-type]
    return Grace(reconnect, Limits(**limits), 0.0)


def test_a_reload_is_survived() -> None:
    g = grace()
    assert g.joined("ann", 1) == []
    assert g.left("ann", LEFT, 10) == [Waiting(25)]
    assert (g.state, g.shown_deadline(10), g.next_tick(10)) == (State.WAITING, 25, 25)
    assert g.tick(24.9) == []
    assert g.joined("ann", 24.9) == [Returned("ann", "ann", same=True)]
    assert (g.state, g.shown_deadline(24.9), g.next_tick(24.9)) == (State.ACTIVE, None, None)
    assert g.tick(1000) == []


def test_no_return_ends_it_at_the_deadline_once() -> None:
    g = grace()
    g.joined("ann", 0)
    g.left("ann", "connection_timeout", 10)
    assert g.tick(25) == [End(LimitReached("grace"))]
    assert g.tick(26) == []
    assert g.joined("ann", 26) == []
    assert g.next_tick(26) is None


def test_a_return_in_the_very_moment_of_the_deadline_wins_if_it_is_seen_first() -> None:
    g = grace()
    g.joined("ann", 0)
    g.left("ann", LEFT, 10)
    assert g.joined("ann", 25) == [Returned("ann", "ann", same=True)]
    assert g.tick(25) == []


def test_each_leave_has_a_grace_of_its_own() -> None:
    g = grace()
    g.joined("ann", 0)
    for start in (10.0, 20.0, 30.0):
        assert g.left("ann", LEFT, start) == [Waiting(start + 15)]
        g.joined("ann", start + 2)
    assert g.state is State.ACTIVE


def test_nobody_is_waited_for_before_anybody_came() -> None:
    g = grace()
    assert g.left("stranger", LEFT, 5) == []
    assert (g.state, g.next_tick(5)) == (State.STARTING, None)


def test_same_does_not_listen_to_others() -> None:
    g = grace()
    g.joined("ann", 0)
    g.joined("bob", 1)
    assert g.left("ann", LEFT, 10) == [Waiting(25)]
    assert g.joined("carl", 11) == []
    assert g.left("bob", LEFT, 12) == []
    assert g.tick(25) == [End(LimitReached("grace"))]


def test_any_moves_on_to_one_who_is_there() -> None:
    g = grace(follow="any")
    g.joined("ann", 0)
    g.joined("bob", 1)
    assert g.left("ann", LEFT, 10) == [Returned("bob", "ann", same=False)]
    assert g.state is State.ACTIVE
    assert g.left("bob", LEFT, 20) == [Waiting(35)]
    assert g.joined("carl", 30) == [Returned("carl", "bob", same=False)]
    assert g.user == "carl"


def test_a_join_that_is_seen_before_the_leave_of_the_old_page() -> None:
    g = grace(follow="any")
    g.joined("page-1", 0)
    assert g.joined("page-2", 10) == []
    assert g.left("page-1", LEFT, 10) == [Returned("page-2", "page-1", same=False)]


@pytest.mark.parametrize("reason", sorted(BROKEN_LINK))
def test_telephony_waits_for_a_broken_link(reason: str) -> None:
    g = grace(5, broken=True)
    g.joined("sip", 0)
    assert g.left("sip", reason, 10) == [Waiting(15)]


@pytest.mark.parametrize(
    "reason",
    [
        "client_initiated",
        "user_unavailable",
        "user_rejected",
        "sip_trunk_failure",
        "participant_removed",
    ],
)
def test_telephony_ends_at_every_kind_of_hang_up(reason: str) -> None:
    g = grace(5, broken=True)
    g.joined("sip", 0)
    assert g.left("sip", reason, 10) == [End(UserGone(reason))]


def test_bye_means_no_grace() -> None:
    g = grace()
    g.joined("ann", 0)
    assert g.bye("ann") == [End(UserGone(said_bye=True))]
    assert g.bye("ann") == []
    assert g.left("ann", LEFT, 1) == []


def test_only_the_user_may_say_bye() -> None:
    g = grace()
    g.joined("ann", 0)
    g.joined("bob", 0)
    with pytest.raises(PermissionError):
        g.bye("bob")


def test_bye_in_a_meeting_ends_nothing_while_another_stays() -> None:
    g = grace(follow="any")
    g.joined("ann", 0)
    g.joined("bob", 0)
    assert g.bye("ann") == []
    g.left("ann", LEFT, 1)
    assert g.bye("bob") == [End(UserGone(said_bye=True))]


def test_without_a_preset_the_state_is_told_and_nothing_is_ended() -> None:
    g = Grace(None, Limits(), 0)
    g.joined("ann", 0)
    assert g.left("ann", LEFT, 10) == [Waiting(None)]
    assert (g.state, g.next_tick(10)) == (State.WAITING, None)
    assert g.joined("ann", 100) == [Returned("ann", "ann", same=True)]


def test_a_room_that_closes_sooner_cuts_the_grace() -> None:
    g = grace(60)
    assert g.cut_grace(16)
    assert not g.cut_grace(16)
    g.joined("ann", 0)
    assert g.left("ann", LEFT, 10) == [Waiting(26)]


def test_the_longest_duration_is_told_ahead_and_kept_to_while_nobody_is_there() -> None:
    g = grace(30, max_duration=100, warn_before=20)
    g.joined("ann", 0)
    assert g.next_tick(0) == 80
    assert g.shown_deadline(79) is None
    assert g.tick(80) == [LimitWarning("max_duration", 100)]
    assert g.tick(81) == []
    assert g.shown_deadline(81) == 100
    g.left("ann", LEFT, 90)
    assert g.shown_deadline(91) == 100
    assert g.tick(100) == [End(LimitReached("max_duration"))]


def test_idle_starts_anew_with_each_word_and_warns_anew() -> None:
    g = grace(idle=10, warn_before=4)
    g.joined("ann", 0)
    assert g.tick(6) == [LimitWarning("idle", 10)]
    g.activity(7)
    assert g.tick(12) == []
    assert g.tick(13) == [LimitWarning("idle", 17)]
    assert g.tick(17) == [End(LimitReached("idle"))]


def test_one_who_has_just_come_back_is_not_idle() -> None:
    g = grace(8, idle=5)
    g.joined("ann", 0)
    g.left("ann", LEFT, 1)
    g.joined("ann", 4)
    assert g.tick(5) == []
    assert g.tick(9) == [End(LimitReached("idle"))]


def test_nobody_is_idle_while_somebody_speaks() -> None:
    g = grace(idle=10)
    g.joined("ann", 0)
    g.activity(5, busy=True)
    assert g.next_tick(5) is None
    assert g.tick(100) == []
    g.activity(100, busy=False)
    assert g.next_tick(100) == 105
    assert g.tick(110) == [End(LimitReached("idle"))]


def test_no_show_runs_until_somebody_comes_and_is_shown_from_the_start() -> None:
    g = grace(no_show=30)
    assert (g.state, g.shown_deadline(0)) == (State.STARTING, 30)
    assert g.tick(30) == [End(LimitReached("no_show"))]
    met = grace(no_show=30)
    met.joined("ann", 29)
    assert met.next_tick(29) is None
