"""The wire contract: what is written and what is read."""

from __future__ import annotations

from livekit_lifecycle import contract
from livekit_lifecycle.contract import (
    AgentExit,
    AgentStatus,
    Exit,
    Next,
    Reason,
    State,
    clip_detail,
    drain_attributes,
    exit_attributes,
    parse,
    state_attributes,
    will_attributes,
)


def test_every_key_has_our_prefix_and_none_is_livekits() -> None:
    keys = [value for name, value in vars(contract).items() if name.startswith("KEY_")]
    assert len(keys) == 13
    assert all(key.startswith("lifecycle.") for key in keys)


def test_the_will_says_whose_it_is_and_that_nobody_is_served_yet() -> None:
    assert will_attributes("AJ_1") == {
        "lifecycle.version": "1",
        "lifecycle.job": "AJ_1",
        "lifecycle.state": "starting",
    }
    assert will_attributes("AJ_2", "AJ_1")["lifecycle.previous"] == "AJ_1"


def test_an_exit_is_one_write_with_its_state_and_stops_the_countdown() -> None:
    bye = AgentExit(exit=Exit.INTENTIONAL, reason="completed", detail="done", next="end")
    assert exit_attributes(bye) == {
        "lifecycle.state": "closing",
        "lifecycle.exit": "intentional",
        "lifecycle.reason": "completed",
        "lifecycle.detail": "done",
        "lifecycle.next": "end",
        "lifecycle.deadline": "",
        "lifecycle.window": "",
    }


def test_a_drain_notice_carries_deadline_and_window() -> None:
    assert drain_attributes(1_700_000_000_000, 3_600_000) == {
        "lifecycle.drain": "1700000000000",
        "lifecycle.drain_window": "3600000",
    }


def test_a_state_without_deadline_deletes_the_old_one() -> None:
    assert state_attributes(State.ACTIVE)["lifecycle.deadline"] == ""
    waiting = state_attributes(State.WAITING, 5, 4)
    assert waiting["lifecycle.deadline"] == "5"
    assert waiting["lifecycle.window"] == "4"


def test_an_agent_without_version_is_unmanaged_whatever_else_it_says() -> None:
    assert parse({"lifecycle.exit": "crash"}) == AgentStatus(managed=False)
    assert parse({"lk.agent.state": "listening"}).managed is False
    assert parse({}).exit is None


def test_words_of_a_later_version_are_accepted() -> None:
    status = parse(
        {
            "lifecycle.version": "7",
            "lifecycle.state": "meditating",
            "lifecycle.exit": "intentional",
            "lifecycle.reason": "enlightened",
            "lifecycle.next": "levitate",
        }
    )
    assert status.state is State.ACTIVE
    assert status.exit == AgentExit(
        exit=Exit.INTENTIONAL, reason="enlightened", detail="", next="levitate"
    )


def test_an_unknown_exit_is_a_crash() -> None:
    exit_ = parse({"lifecycle.version": "1", "lifecycle.exit": "oops"}).exit
    assert exit_ == AgentExit(
        exit=Exit.CRASH, reason=Reason.UNKNOWN.value, detail="", next=Next.REJOIN.value
    )


def test_numbers_that_are_none_are_no_numbers() -> None:
    for bad in ("", "-1", "1.5", "1e3", "٣", "1" * 16, " 1", "soon"):
        status = parse({"lifecycle.version": "1", "lifecycle.deadline": bad})
        assert status.deadline_ms is None, bad


def test_a_detail_is_cut_at_128_bytes_and_never_inside_a_character() -> None:
    assert clip_detail("x" * 10_000) == "x" * 128
    assert clip_detail("é" * 100) == "é" * 64
    assert clip_detail("a" + "é" * 100) == "a" + "é" * 63
    assert clip_detail("🎉" * 100) == "🎉" * 32


def test_a_detail_is_one_clean_line() -> None:
    assert clip_detail("  bye\nfor\tnow\x00 ") == "bye for now"
    assert clip_detail("half \ud83d") == "half ?"
    assert clip_detail("\n \t") == ""


def test_words_print_as_themselves() -> None:
    assert f"{Exit.CRASH}" == "crash"
    assert str(Reason.WORKER_LOST) == "worker_lost"
