"""Back ends: what a list of participants means, and who may dispatch."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from livekit import api

from livekit_lifecycle import dispatch
from livekit_lifecycle._queue import CLAIM_PREFIX, CLAIM_SECONDS, is_second, pending_seconds
from livekit_lifecycle.classify import (
    AppClaimed,
    EntrypointRaised,
    Evidence,
    WorkerStopped,
    classify,
)
from livekit_lifecycle.contract import (
    State,
    drain_attributes,
    exit_attributes,
    state_attributes,
    will_attributes,
)
from livekit_lifecycle.dispatch import agent_status, ensure_agent, judge

NAME = "front-desk"
KIND = api.ParticipantInfo.Kind
ACTIVE = state_attributes(State.ACTIVE)
DONE = AppClaimed("completed")


def person(
    identity: str = "agent-1",
    *attributes: Mapping[str, str],
    kind: api.ParticipantInfo.Kind = KIND.AGENT,
    name: str = NAME,
    joined_ms: int = 0,
) -> api.ParticipantInfo:
    merged = {key: value for one in attributes for key, value in one.items()}
    if name:
        merged["lk.agent_name"] = name
    return api.ParticipantInfo(
        identity=identity,
        kind=kind,
        state=api.ParticipantInfo.State.ACTIVE,
        attributes={key: value for key, value in merged.items() if value},
        joined_at_ms=joined_ms or round(time.time() * 1000),
    )


def managed(
    *attributes: Mapping[str, str], identity: str = "agent-1", **how: Any
) -> api.ParticipantInfo:
    return person(identity, will_attributes(f"AJ_{identity}"), *attributes, **how)


def user(identity: str = "user") -> api.ParticipantInfo:
    return person(identity, kind=KIND.STANDARD, name="")


def ended(evidence: Evidence, state: State = State.CLOSED) -> dict[str, str]:
    return exit_attributes(classify(evidence), state)


# -- what is listed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "verdict", "needed"),
    [
        ({}, "starting", False),
        (ACTIVE, "serving", False),
        (state_attributes(State.WAITING, 1, 1), "serving", False),
        (ACTIVE | drain_attributes(1, 1), "serving", False),
        (ended(DONE, State.CLOSING), "closing", False),
        (ended(DONE, State.ACTIVE), "closing", False),
        (ended(DONE), "closed", True),
        (ended(WorkerStopped("shutdown")), "closed", True),
        (ended(EntrypointRaised("ValueError"), State.CLOSING), "zombie", True),
        (ended(EntrypointRaised("ValueError")), "zombie", True),
        (state_attributes(State.CLOSED), "closed", True),
        (ACTIVE | {"lifecycle.stalled": "1"}, "zombie", True),
        (ended(DONE) | {"lifecycle.stalled": "1"}, "closed", True),
        ({"lifecycle.state": "of a later version"}, "serving", False),
        ({"lifecycle.exit": "of a later version"}, "zombie", True),
    ],
)
def test_the_verdict_on_one_agent(attributes: dict[str, str], verdict: str, needed: bool) -> None:
    status = judge([user(), managed(attributes)], NAME)
    assert (status.verdict, status.should_dispatch) == (verdict, needed)
    assert (status.identity, status.job) == ("agent-1", "AJ_agent-1")
    assert status.status is not None
    assert status.why


def test_an_agent_that_does_not_answer_is_a_zombie() -> None:
    assert judge([managed(ACTIVE)], NAME, {"agent-1"}).verdict == "zombie"
    assert judge([managed(ended(DONE))], NAME, {"agent-1"}).verdict == "closed"


def test_an_agent_without_our_attributes_is_unmanaged() -> None:
    status = judge([person()], NAME)
    assert (status.verdict, status.should_dispatch) == ("unmanaged", False)
    assert (status.identity, status.job) == ("agent-1", "")


def test_an_agent_listed_with_no_attributes_at_all_may_be_ours() -> None:
    blank = person("agent-AJ_1", name="")
    assert judge([blank], NAME).verdict == "unmanaged"
    assert judge([blank, managed(ended(DONE))], NAME).verdict == "closed"


@pytest.mark.parametrize(
    "somebody",
    [
        user(),
        person("phone", kind=KIND.SIP, name=""),
        person("recorder", kind=KIND.EGRESS, name=""),
        person("avatar", {"lk.publish_on_behalf": "agent-1"}),
        person("of an agent's kind, but not dispatched", name=""),
        managed(ACTIVE, name="concierge"),
        managed(ACTIVE, name=""),
        # a user can't pass for an agent by its attributes
        person("user", will_attributes("AJ_1"), kind=KIND.STANDARD),
    ],
)
def test_who_is_not_the_agent(somebody: api.ParticipantInfo) -> None:
    status = judge([somebody], NAME)
    assert (status.verdict, status.should_dispatch, status.status) == ("absent", True, None)


def test_the_name_that_the_sdk_gives_counts_where_the_servers_is_missing() -> None:
    agent = managed(ACTIVE, {"lk.agent.name": NAME}, name="")
    assert judge([agent], NAME).verdict == "serving"


def test_an_agent_of_automatic_dispatch_has_no_name() -> None:
    assert judge([managed(ACTIVE, name=""), managed(identity="other")], "").verdict == "serving"


ALL = {
    "serving": managed(ACTIVE, identity="serving"),
    "starting": managed(identity="starting"),
    "unmanaged": person("unmanaged"),
    "closing": managed(ended(DONE, State.CLOSING), identity="closing"),
    "zombie": managed(ended(EntrypointRaised("E")), identity="zombie"),
    "closed": managed(ended(DONE), identity="closed"),
}


@pytest.mark.parametrize(("better", "worse"), list(itertools.combinations(ALL, 2)))
def test_of_several_the_better_one_decides(better: str, worse: str) -> None:
    assert judge([ALL[worse], ALL[better]], NAME).identity == better
    assert judge([ALL[better], ALL[worse]], NAME).identity == better


def test_among_equals_the_last_to_come_decides() -> None:
    first = managed(ended(DONE), identity="a", joined_ms=1)
    second = managed(ended(DONE), identity="b", joined_ms=2)
    assert judge([second, first], NAME).identity == "b"
    assert judge([first, second], NAME).identity == "b"


# -- who may dispatch ------------------------------------------------------------------------------


def listed(name: str, seconds: float, id_: str = "AD_1") -> api.AgentDispatch:
    made = api.AgentDispatch(id=id_, agent_name=name)
    made.state.created_at = round(seconds * 1e9)
    return made


def test_the_elder_claim_goes_first() -> None:
    mine = listed("claim", 100, "AD_5")
    assert not is_second(mine, [mine])
    assert not is_second(mine, [mine, listed("claim", 101), listed("another", 99)])
    assert is_second(mine, [mine, listed("claim", 99.9)])
    assert is_second(mine, [listed("claim", 100, "AD_4")]), "the same instant: the id decides"
    assert not is_second(mine, [listed("claim", 100, "AD_6")])
    assert not is_second(mine, [listed("claim", 100 - CLAIM_SECONDS)]), "left by one who died"


def test_how_long_a_dispatch_is_waited_for() -> None:
    now = 1000 * 10**9

    def rest(*seconds_ago: float, joined: float | None = None) -> float:
        all_ = [listed(NAME, 1000 - ago) for ago in seconds_ago]
        agents = [] if joined is None else [managed(joined_ms=round((1000 - joined) * 1000))]
        return pending_seconds([*all_, listed("x", 1000)], agents, NAME, now, 10)

    assert rest() == 0
    assert rest(3) == pytest.approx(7)
    assert rest(30, 4, 3) == pytest.approx(7), "the youngest"
    assert rest(30) <= 0
    assert rest(3, joined=2) <= 0, "it has had its agent"
    assert rest(3, joined=4) == pytest.approx(7), "that one came of an earlier dispatch"


# -- ensure_agent, on a server that does as it is told --------------------------------------------


def refusal(code: str, message: str = "") -> api.TwirpError:
    return api.TwirpError(code, message, status=400)


class FakeServer:
    """As much of LiveKit's server API as is used, in its own words."""

    def __init__(self) -> None:
        self.people: list[api.ParticipantInfo] = []
        self.dispatches: list[api.AgentDispatch] = []
        self.silent: set[str] = set()
        self.brings = True
        self.exists = True
        self.asked: list[str] = []
        self.all_made: list[api.AgentDispatch] = []
        self.room = SimpleNamespace(
            list_participants=self._list_participants,
            _client=SimpleNamespace(request=self._rpc),
            _auth_header=lambda _: {},
        )
        self.agent_dispatch = SimpleNamespace(
            create_dispatch=self._create, list_dispatch=self._list, delete_dispatch=self._delete
        )

    @property
    def made(self) -> list[api.AgentDispatch]:
        return [one for one in self.all_made if not one.agent_name.startswith(CLAIM_PREFIX)]

    def had(self, name: str, seconds_ago: float) -> None:
        self.dispatches.append(listed(name, time.time() - seconds_ago, "AD_before"))

    async def _list_participants(self, _: Any) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(participants=list(self.people))

    async def _create(self, request: api.CreateAgentDispatchRequest) -> api.AgentDispatch:
        await asyncio.sleep(0)
        self.exists = True
        id_ = f"AD_{len(self.all_made)}"
        made = listed(request.agent_name, time.time(), id_)
        made.metadata = request.metadata
        self.all_made.append(made)
        self.dispatches.append(made)
        if self.brings and not request.agent_name.startswith(CLAIM_PREFIX):
            agent = managed(ACTIVE, identity=f"agent-{id_}")
            asyncio.get_running_loop().call_later(0.05, self.people.append, agent)
        return made

    async def _list(self, _: str) -> list[api.AgentDispatch]:
        await asyncio.sleep(0)
        if not self.exists:
            raise refusal(api.TwirpErrorCode.UNAVAILABLE)
        return list(self.dispatches)

    async def _delete(self, id_: str, _: str) -> None:
        await asyncio.sleep(0)
        self.dispatches = [one for one in self.dispatches if one.id != id_]

    async def _rpc(self, *arguments: Any) -> None:
        identity = arguments[2].destination_identity
        self.asked.append(identity)
        code, text = (1502, "timeout") if identity in self.silent else (1400, "not supported")
        raise refusal(api.TwirpErrorCode.CANCELED, f"twirp error unknown: RpcError {code}: {text}")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setattr(dispatch, "POLL_INTERVAL", 0.01)
    monkeypatch.setattr(dispatch, "SILENCE", 0.1)
    return FakeServer()


def lkapi(server: FakeServer) -> api.LiveKitAPI:
    return cast("api.LiveKitAPI", server)


async def test_one_is_dispatched_and_waited_for(server: FakeServer) -> None:
    server.exists = False
    status = await ensure_agent(lkapi(server), "room", NAME, metadata="hello")
    assert status.verdict == "serving"
    assert [(one.agent_name, one.metadata) for one in server.made] == [(NAME, "hello")]
    assert [one.agent_name for one in server.dispatches] == [NAME], "no claim is left"


async def test_one_that_serves_is_left_alone(server: FakeServer) -> None:
    server.people.append(managed(ACTIVE))
    assert (await ensure_agent(lkapi(server), "room", NAME)).verdict == "serving"
    assert server.all_made == []


async def test_nobody_can_tell_of_an_unmanaged_one(server: FakeServer) -> None:
    server.people.append(person())
    assert (await ensure_agent(lkapi(server), "room", NAME)).verdict == "unmanaged"
    assert (server.all_made, server.asked) == ([], [])


async def test_one_that_starts_is_enough_where_there_is_no_user(server: FakeServer) -> None:
    server.people.append(managed())
    assert (await ensure_agent(lkapi(server), "room", NAME)).verdict == "starting"
    server.people.append(user())
    status = await ensure_agent(lkapi(server), "room", NAME, timeout=0.05)
    assert (status.verdict, status.should_dispatch) == ("starting", False)
    assert server.all_made == []


async def test_one_that_closes_is_waited_for(server: FakeServer) -> None:
    server.people.append(managed(ended(DONE, State.CLOSING)))
    waiting = asyncio.create_task(ensure_agent(lkapi(server), "room", NAME))
    await asyncio.sleep(0.1)
    assert server.all_made == []
    server.people.clear()
    assert (await waiting).verdict == "serving"
    assert len(server.made) == 1


@pytest.mark.parametrize("count", [2, 10])
async def test_many_at_once_get_one(server: FakeServer, count: int) -> None:
    calls = [ensure_agent(lkapi(server), "room", NAME) for _ in range(count)]
    assert {status.verdict for status in await asyncio.gather(*calls)} == {"serving"}
    assert len(server.made) == 1


async def test_a_dispatch_that_brings_nobody_is_made_once_more(server: FakeServer) -> None:
    server.brings = False
    status = await ensure_agent(lkapi(server), "room", NAME, patience=0.1, timeout=0.5)
    assert (status.verdict, status.should_dispatch) == ("absent", True)
    assert len(server.made) == 2


async def test_somebody_elses_dispatch_is_waited_for(server: FakeServer) -> None:
    server.had(NAME, 0.05)
    waiting = asyncio.create_task(ensure_agent(lkapi(server), "room", NAME, patience=5))
    await asyncio.sleep(0.1)
    server.people.append(managed(ACTIVE))
    assert (await waiting).verdict == "serving"
    assert server.made == []


async def test_an_old_dispatch_is_no_proof_of_life(server: FakeServer) -> None:
    server.had(NAME, 30)
    assert (await ensure_agent(lkapi(server), "room", NAME)).verdict == "serving"
    assert len(server.made) == 1


async def test_the_agent_of_a_dispatch_that_has_ended_is_not_waited_for(server: FakeServer) -> None:
    server.had(NAME, 1)
    server.people.append(managed(ended(EntrypointRaised("ValueError"))))
    assert (await ensure_agent(lkapi(server), "room", NAME)).verdict == "serving"
    assert len(server.made) == 1


async def test_a_caller_that_does_not_wait(server: FakeServer) -> None:
    status = await ensure_agent(lkapi(server), "room", NAME, timeout=0)
    assert (status.verdict, status.should_dispatch) == ("absent", False)
    assert "dispatched" in status.why
    assert len(server.made) == 1


async def test_a_claim_whose_caller_died_holds_nobody_up_for_long(server: FakeServer) -> None:
    server.had(CLAIM_PREFIX + NAME, CLAIM_SECONDS - 0.2)
    assert (await ensure_agent(lkapi(server), "room", NAME)).verdict == "serving"
    assert len(server.made) == 1


async def test_a_silent_agent_is_given_some_time(server: FakeServer) -> None:
    server.people += [user(), managed(ACTIVE)]
    server.silent.add("agent-1")
    assert (await agent_status(lkapi(server), "room", NAME)).verdict == "zombie"
    waiting = asyncio.create_task(ensure_agent(lkapi(server), "room", NAME))
    await asyncio.sleep(0.05)
    server.silent.clear()
    assert (await waiting).identity == "agent-1"
    assert server.made == []


async def test_then_another_is_dispatched(server: FakeServer) -> None:
    server.people += [user(), managed(ACTIVE)]
    server.silent.add("agent-1")
    status = await ensure_agent(lkapi(server), "room", NAME)
    assert (status.verdict, status.identity) == ("serving", f"agent-{server.made[0].id}")
    assert len(server.made) == 1


async def test_who_is_not_asked_is_believed(server: FakeServer) -> None:
    server.people.append(managed(ACTIVE))
    server.silent.add("agent-1")
    status = await agent_status(lkapi(server), "room", NAME, answer_within=0)
    assert (status.verdict, server.asked) == ("serving", [])


async def test_a_livekit_that_can_not_ask_is_no_failure(server: FakeServer) -> None:
    server.people.append(managed(ACTIVE))
    del server.room._client
    assert (await agent_status(lkapi(server), "room", NAME)).verdict == "serving"


async def test_a_server_that_says_that_there_is_no_such_room(server: FakeServer) -> None:
    async def missing(_: Any) -> None:
        raise refusal(api.TwirpErrorCode.NOT_FOUND)

    server.room.list_participants = missing
    assert (await agent_status(lkapi(server), "room", NAME)).verdict == "absent"


async def test_an_agent_without_a_name_can_not_be_dispatched(server: FakeServer) -> None:
    with pytest.raises(ValueError, match="agent_name is empty"):
        await ensure_agent(lkapi(server), "room", "")


async def test_what_the_server_refuses_is_told_and_no_claim_is_left(server: FakeServer) -> None:
    async def refuse(_: Any) -> None:
        raise refusal(api.TwirpErrorCode.PERMISSION_DENIED)

    server.agent_dispatch.list_dispatch = refuse
    with pytest.raises(api.TwirpError):
        await ensure_agent(lkapi(server), "room", NAME)
    assert server.dispatches == []
