"""Of two agents of one name: which of them has to leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from livekit import rtc

from livekit_lifecycle.classify import AppClaimed, WorkerDied, classify
from livekit_lifecycle.contract import (
    State,
    drain_attributes,
    exit_attributes,
    state_attributes,
    will_attributes,
)
from livekit_lifecycle.guard import elders, has_to_leave

AGENT = rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
ACTIVE = state_attributes(State.ACTIVE)


@dataclass
class Someone:
    identity: str
    attributes: dict[str, str] = field(default_factory=dict)
    joined_at: datetime | None = NOON
    kind: int = AGENT


def agent(
    job: str, seconds: float = 0, more: dict[str, str] | None = None, name: str = "desk"
) -> Someone:
    attributes = {**will_attributes(job), **ACTIVE, "lk.agent_name": name, **(more or {})}
    kept = {key: value for key, value in attributes.items() if value}
    return Someone(f"agent-{job}", kept, NOON + timedelta(seconds=seconds))


def test_the_later_one_leaves_and_the_earlier_one_stays() -> None:
    earlier, later = agent("AJ_2"), agent("AJ_1", 0.05)
    assert elders(later, [earlier], "desk") == ["agent-AJ_2"]
    assert elders(earlier, [later], "desk") == []


def test_of_two_in_the_same_instant_exactly_one_leaves() -> None:
    one, other = agent("AJ_1"), agent("AJ_2")
    assert [elders(one, [other], "desk"), elders(other, [one], "desk")] == [[], ["agent-AJ_1"]]


@pytest.mark.parametrize(
    "earlier",
    [
        agent("AJ_1", more=exit_attributes(classify(AppClaimed("completed")))),
        agent("AJ_1", more=exit_attributes(classify(WorkerDied()), State.CLOSED)),
        agent("AJ_1", more={"lifecycle.stalled": "1"}),
        agent("AJ_1", more=state_attributes(State.CLOSED)),
        agent("AJ_1", name="another"),
        agent("AJ_1", more={"lk.publish_on_behalf": "agent-AJ_2"}),
        Someone("agent-AJ_1", {"lk.agent_name": "desk"}),
        Someone("user", {"lk.agent_name": "desk", **will_attributes("AJ_1")}, kind=0),
        Someone("agent-AJ_1", {"lk.agent_name": "desk", **will_attributes("AJ_1")}, None),
    ],
    ids=["ended", "crashed", "stalls", "closed", "name", "avatar", "unmanaged", "user", "when?"],
)
def test_what_is_no_ground_to_leave(earlier: Someone) -> None:
    assert elders(agent("AJ_2", 1), [earlier], "desk") == []


@pytest.mark.parametrize(
    "more", [state_attributes(State.STARTING), state_attributes(State.WAITING, 1, 1)]
)
def test_one_that_starts_or_waits_is(more: dict[str, str]) -> None:
    assert elders(agent("AJ_2", 1), [agent("AJ_1", more=more)], "desk") == ["agent-AJ_1"]
    drains = agent("AJ_1", more=drain_attributes(1, 1))
    assert elders(agent("AJ_2", 1), [drains], "desk") == ["agent-AJ_1"]


def test_a_successor_does_not_make_way_for_the_one_that_it_takes_over_from() -> None:
    successor = agent("AJ_2", 1, {"lifecycle.previous": "AJ_1"})
    assert elders(successor, [agent("AJ_1"), agent("AJ_0")], "desk") == ["agent-AJ_0"]


def test_agents_of_automatic_dispatch_have_no_name() -> None:
    assert elders(agent("AJ_2", 1, name=""), [agent("AJ_1", name="")], "") == ["agent-AJ_1"]
    assert elders(agent("AJ_2", 1, name=""), [agent("AJ_1")], "") == []


class Asker(Someone):
    error: Exception | None = None

    async def perform_rpc(self, **_: Any) -> str:
        if self.error is not None:
            raise self.error
        return ""


@pytest.mark.parametrize(
    ("error", "leaves"),
    [
        (None, True),
        (rtc.RpcError(rtc.RpcError.ErrorCode.UNSUPPORTED_METHOD, ""), True),
        (rtc.RpcError(rtc.RpcError.ErrorCode.CONNECTION_TIMEOUT, ""), False),
        (rtc.RpcError(rtc.RpcError.ErrorCode.RESPONSE_TIMEOUT, ""), False),
        (rtc.RpcError(rtc.RpcError.ErrorCode.RECIPIENT_DISCONNECTED, ""), False),
        (OSError(), False),
    ],
)
async def test_only_one_that_answers_is_made_way_for(error: Exception | None, leaves: bool) -> None:
    later = agent("AJ_2", 1)
    me = Asker(later.identity, later.attributes, later.joined_at)
    me.error = error

    class Room:
        local_participant = me
        remote_participants = {"agent-AJ_1": agent("AJ_1")}  # noqa: RUF012 - a stand-in

    assert await has_to_leave(cast("rtc.Room", Room()), "desk") is leaves
