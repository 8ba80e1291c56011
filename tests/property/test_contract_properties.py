"""Properties of the codec and the classifier, for whatever may come."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from livekit_lifecycle.classify import Evidence, classify, supersedes
from livekit_lifecycle.contract import (
    INTENTIONAL_REASONS,
    AgentExit,
    AgentStatus,
    Exit,
    Next,
    Reason,
    State,
    clip_detail,
    encode,
    parse,
)

words = st.text(min_size=1, max_size=20).filter(lambda s: s.isprintable())
numbers = st.none() | st.integers(min_value=0, max_value=10**15 - 1)
exits = st.builds(
    AgentExit,
    exit=st.sampled_from(Exit),
    reason=st.sampled_from([r.value for r in Reason]) | words,
    detail=st.text(max_size=200).map(clip_detail),
    next=st.sampled_from([n.value for n in Next]),
)
statuses = st.builds(
    AgentStatus,
    managed=st.just(True),
    version=st.just("1"),
    job=st.just("AJ_x") | words,
    previous=st.just("") | words,
    state=st.sampled_from(State),
    deadline_ms=numbers,
    window_ms=numbers,
    drain_ms=numbers,
    drain_window_ms=numbers,
    stalled_ms=numbers,
    exit=st.none() | exits,
)
evidences: st.SearchStrategy[Evidence] = st.one_of(*map(st.from_type, get_args(Evidence)))
keys = st.sampled_from(sorted(encode(AgentStatus(managed=True, version="1", job="x")))) | st.text()


@given(statuses)
def test_what_is_written_is_what_is_read(status: AgentStatus) -> None:
    assert parse(encode(status)) == status


@given(statuses)
def test_every_written_value_is_a_string_that_is_not_empty(status: AgentStatus) -> None:
    assert all(type(value) is str and value != "" for value in encode(status).values())


@given(st.dictionaries(keys, st.text() | st.integers() | st.none()))
def test_anything_can_be_read(attributes: dict[str, str]) -> None:
    status = parse(attributes)
    assert status.managed is (status.version != "")


@given(st.dictionaries(keys, st.text()))
def test_what_has_been_read_can_be_written_and_read_again(attributes: dict[str, str]) -> None:
    status = parse(attributes)
    again = parse(encode(status))
    # a detail of somebody else's making may be tidied up on the way, nothing else changes
    assert (again.managed, again.job, again.state) == (status.managed, status.job, status.state)
    assert (again.exit is None) is (status.exit is None)


@given(st.text())
def test_a_detail_fits_and_is_stable(text: str) -> None:
    detail = clip_detail(text)
    assert len(detail.encode("utf-8", "replace")) <= 128
    assert clip_detail(detail) == detail


@given(evidences)
def test_each_evidence_has_exactly_one_name(evidence: Evidence) -> None:
    verdict = classify(evidence)
    assert classify(evidence) == verdict
    assert Reason(verdict.reason)
    assert Next(verdict.next)
    assert (verdict.exit is Exit.INTENTIONAL) is (Reason(verdict.reason) in INTENTIONAL_REASONS)
    assert len(verdict.detail.encode()) <= 128


@given(evidences, evidences)
def test_no_two_claims_supersede_each_other(a: Evidence, b: Evidence) -> None:
    assert not (supersedes(classify(a), classify(b)) and supersedes(classify(b), classify(a)))
