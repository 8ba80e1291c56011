"""For back ends: is the agent in the room still serving, or must one be dispatched again?

`agent_status` answers it, `ensure_agent` acts on it. LiveKit itself does not know: a dispatch, and
a job that is "running", outlive the agent they brought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from livekit import api
from livekit.agents.types import ATTRIBUTE_AGENT_NAME

from ._ping import answers
from ._queue import claim, is_second, pending_seconds
from ._watch import is_agent
from .contract import AgentStatus, State, parse
from .lineage import Lineage, join_metadata, split_metadata

Verdict = Literal["serving", "starting", "closing", "closed", "zombie", "absent", "unmanaged"]

POLL_INTERVAL: Final = 0.25
"""Seconds between two looks: the server's API has no event to wait for."""

PATIENCE: Final = 10.0
"""Seconds that a dispatch has to bring its agent. LiveKit too warns of a job that takes longer."""

ENSURE_TIMEOUT: Final = 20.0
"""Seconds that `ensure_agent` waits: for two dispatches, one after the other."""

ANSWER_WITHIN: Final = 2.0
"""Seconds that an agent has to answer when it is asked whether it lives; it needs milliseconds."""

SILENCE: Final = 5.0
"""Seconds of silence before `ensure_agent` sends another: a link that broke may come back."""

MAX_DISPATCHES: Final = 2
"""Of one `ensure_agent`. LiveKit drops a dispatch for which it finds no worker at that moment."""

_SERVER_AGENT_NAME: Final = "lk.agent_name"  # the server's own mark; the SDK's may be missing

_DEFAULT_IDENTITY: Final = "agent-"
"""LiveKit calls an agent so, with the job's id, unless the app has it otherwise."""

_SHOULD_DISPATCH: Final[Mapping[Verdict, bool]] = {
    # in this order the verdict of one agent goes before that of another
    "serving": False,
    "starting": False,
    "unmanaged": False,
    "closing": False,
    "zombie": True,
    "closed": True,
    "absent": True,
}
_RANK: Final = list(_SHOULD_DISPATCH)


@dataclass(frozen=True, kw_only=True)
class RoomAgentStatus:
    """What a room's agent does, and what that means for a back end.

    Attributes:
        verdict: ``serving``: an agent is there for its user, or waits for it to come back.
            ``starting``: it is in the room and serves nobody yet, as long as there is no user too.
            ``closing``: its ending is decided; wait until it is gone. ``closed``: its session is
            over, although it is still listed. ``zombie``: listed, but it crashed, stalls, or does
            not answer. ``absent``: no agent of that name is in the room, or there is no such room.
            ``unmanaged``: there is one that runs without this library, so that nobody can tell.
        should_dispatch: Whether a new agent is needed. False also where one is on its way.
        why: The same in words, for people.
        identity: Of the agent that decided it; empty where there is none.
        job: LiveKit's id of its job; empty where it is not known.
        status: What its attributes say; None where there is no agent.
    """

    verdict: Verdict
    should_dispatch: bool
    why: str
    identity: str = ""
    job: str = ""
    status: AgentStatus | None = None


async def agent_status(
    lkapi: api.LiveKitAPI,
    room: str,
    agent_name: str,
    *,
    answer_within: float = ANSWER_WITHIN,
) -> RoomAgentStatus:
    """Look whether an agent of that name serves a room.

    A killed agent stays listed for some 20 s with all its attributes. So one that says it serves
    is asked whether it lives, which takes milliseconds if it does. Where there are several of the
    name the best of them decides: one that serves, else one that starts, then ``unmanaged``,
    ``closing``, ``zombie``, ``closed``; among equals the one that came last.

    Args:
        lkapi: A connection to the server, with the right to administer the room.
        room: Name of the room; it need not exist.
        agent_name: The name that the agent is dispatched by; empty for automatic dispatch.
        answer_within: Seconds that an agent has to answer; 0: it is not asked.

    Raises:
        TwirpError: The server refuses, or can't be asked. A room that does not exist is no error.
    """
    return (await _look(lkapi, room, agent_name, answer_within)).status


async def ensure_agent(  # noqa: PLR0913 - named by keyword, each with a default
    lkapi: api.LiveKitAPI,
    room: str,
    agent_name: str,
    *,
    metadata: str = "",
    timeout: float = ENSURE_TIMEOUT,
    patience: float = PATIENCE,
) -> RoomAgentStatus:
    """See to it that one agent of that name serves a room.

    It looks, dispatches an agent if one is needed, and waits until one serves; where no user is in
    the room yet, until one has come in. A dispatch that brought nobody is made once more. It is
    safe to be called often and by many at once: who wants to dispatch first takes a place in a
    queue that the server keeps (a dispatch of a name that no agent has, deleted at once), and an
    agent that somebody else has just dispatched is waited for.

    What is left: an agent that takes longer than ``patience`` to come in may be joined by a second
    one, and so may one that was silent for 7 s and then comes back. Whoever dispatches without this
    function, a token's room configuration among them, is seen only once the dispatch is listed.
    ``LifecycleOptions(one_per_room=True)`` makes the later of two leave.

    Args:
        lkapi: A connection to the server, with the right to administer the room.
        room: Name of the room. It is made if it does not exist; make it before, if it needs
            settings of its own.
        agent_name: The name that the agent is dispatched by.
        metadata: For the agent's job, if one is dispatched. Where it takes over from a zombie, that
            one's job id travels behind it in the dispatch; ``ctx.job.metadata`` is what is given.
        timeout: Seconds to wait altogether, to which the last look at the room may add what the
            server takes to answer, and 2 s if an agent is silent; 0: dispatch if need be, and
            don't wait.
        patience: Seconds that a dispatch has to bring its agent. Until then no other is made, also
            where the agent came and went again: those who know that it did may give it less.

    Returns:
        What was seen last, also when the time is up: look at its ``verdict``.

    Raises:
        ValueError: ``agent_name`` is empty. LiveKit dispatches such agents when it makes the room.
        TwirpError: The server refuses, or can't be asked.
    """
    if not agent_name:
        msg = "agent_name is empty; only agents with a name can be dispatched: give it one"
        raise ValueError(msg)
    return await see_to_agent(
        lkapi, room, agent_name, metadata=metadata, timeout=timeout, patience=patience
    )


async def see_to_agent(  # noqa: PLR0913 - named by keyword, each with a default
    lkapi: api.LiveKitAPI,
    room: str,
    agent_name: str,
    *,
    metadata: str = "",
    timeout: float = ENSURE_TIMEOUT,
    patience: float = PATIENCE,
    over: str = "",
) -> RoomAgentStatus:
    """`ensure_agent`, which documents it, for those who know that one dispatch is over.

    Args:
        lkapi: See there.
        room: See there.
        agent_name: See there.
        metadata: See there.
        timeout: See there.
        patience: See there.
        over: Id of a dispatch that is known to have had its agent.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    dispatched, not_before = 0, clock()
    silent_since: float | None = None
    while True:
        look = await _look(lkapi, room, agent_name, ANSWER_WITHIN)
        if look.settled:
            return look.status
        silent_since = (silent_since or clock()) if look.silent else None
        given_up = silent_since is None or clock() - silent_since >= SILENCE
        needed = look.status.should_dispatch and given_up and clock() >= not_before
        if needed and dispatched < MAX_DISPATCHES:
            plan = _Plan(agent_name, _with_previous(metadata, look.status), patience, over)
            made, wait = await _dispatch(lkapi, room, plan, look.silent)
            dispatched += made
            not_before = clock() + wait
        if clock() + POLL_INTERVAL > deadline:
            return _on_its_way(look.status) if clock() < not_before else look.status
        await asyncio.sleep(POLL_INTERVAL)


# -- one look --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Look:
    status: RoomAgentStatus
    settled: bool
    silent: frozenset[str]  # identities of those that did not answer


async def _look(lkapi: api.LiveKitAPI, room: str, agent_name: str, answer_within: float) -> _Look:
    people = await list_participants(lkapi, room)
    asked = [one.identity for one in people if answer_within and _says_it_lives(one, agent_name)]
    replies = await asyncio.gather(*(answers(lkapi, room, who, answer_within) for who in asked))
    silent = frozenset(who for who, reply in zip(asked, replies, strict=True) if reply is False)
    status = judge(people, agent_name, silent)
    ready = status.verdict == "starting" and not any(map(is_user, people))
    settled = ready or status.verdict in ("serving", "unmanaged")
    return _Look(status=status, settled=settled, silent=silent)


async def list_participants(lkapi: api.LiveKitAPI, room: str) -> list[api.ParticipantInfo]:
    """Who is in a room; nobody where there is no such room."""
    try:
        answer = await lkapi.room.list_participants(api.ListParticipantsRequest(room=room))
    except api.TwirpError as error:
        if error.code == api.TwirpErrorCode.NOT_FOUND:  # a server may say so of a missing room
            return []
        raise
    gone = api.ParticipantInfo.State.DISCONNECTED
    return [one for one in answer.participants if one.state != gone]


def judge(
    participants: Iterable[api.ParticipantInfo],
    agent_name: str,
    silent: Collection[str] = (),
) -> RoomAgentStatus:
    """What the participants of a room say about its agent of that name. Pure.

    Args:
        participants: Everyone who is listed.
        agent_name: The name that the agent is dispatched by.
        silent: Identities of agents that did not answer.
    """
    found = sorted(_agents(participants, agent_name), key=lambda one: -one.joined_at_ms)
    judged = [_judge_one(one, silent=one.identity in silent) for one in found]
    nobody = _status("absent", "no agent of that name is in the room")
    return min(judged, key=lambda status: _RANK.index(status.verdict), default=nobody)


def _judge_one(one: api.ParticipantInfo, *, silent: bool) -> RoomAgentStatus:
    status = parse(one.attributes)
    verdict, why = _verdict(status, silent=silent)
    made = _status(verdict, why)
    return replace(made, identity=one.identity, job=status.job, status=status)


def _verdict(status: AgentStatus, *, silent: bool) -> tuple[Verdict, str]:  # noqa: PLR0911 - a table
    if not status.managed:
        return "unmanaged", "an agent is there, but it does not say what it does"
    if status.exit is not None and not status.exit.intentional:
        return "zombie", f"it crashed ({status.exit.reason}) and is still listed"
    if status.state is State.CLOSED:
        return "closed", "its session is over, it is only still listed"
    if status.state is State.CLOSING or status.exit is not None:
        return "closing", "it is about to leave: wait until it is gone"
    if status.stalled_ms is not None:
        return "zombie", "its event loop stalls: it is in the room but serves nobody"
    if silent:
        return "zombie", "it is listed, but does not answer"
    if status.state is State.STARTING:
        return "starting", "it is in the room and serves nobody yet"
    if status.state is State.WAITING:
        return "serving", "it waits for its user to come back"
    if status.drain_ms is not None:
        return "serving", "it serves, although its worker has been told to stop"
    return "serving", "it serves"


def _status(verdict: Verdict, why: str) -> RoomAgentStatus:
    return RoomAgentStatus(verdict=verdict, should_dispatch=_SHOULD_DISPATCH[verdict], why=why)


def _on_its_way(status: RoomAgentStatus) -> RoomAgentStatus:
    why = f"{status.why}; one has been dispatched and is not here yet"
    return replace(status, should_dispatch=False, why=why)


def name_of(attributes: Mapping[str, str]) -> str:
    """The name that an agent was dispatched by; empty for automatic dispatch."""
    return attributes.get(_SERVER_AGENT_NAME) or attributes.get(ATTRIBUTE_AGENT_NAME, "")


def _agents(
    participants: Iterable[api.ParticipantInfo], agent_name: str
) -> list[api.ParticipantInfo]:
    agents = [one for one in participants if is_agent(one.kind, one.attributes)]
    named = [one for one in agents if one.attributes and name_of(one.attributes) == agent_name]
    # LiveKit has been seen to list agents without any of their attributes: such a one may be ours
    return named or [one for one in agents if _is_blank(one)]


def _is_blank(one: api.ParticipantInfo) -> bool:
    return not one.attributes and one.identity.startswith(_DEFAULT_IDENTITY)


def _says_it_lives(one: api.ParticipantInfo, agent_name: str) -> bool:
    active = one.state == api.ParticipantInfo.State.ACTIVE  # else it can't be asked yet
    living = judge([one], agent_name).verdict in ("serving", "starting")
    return active and living


def is_user(one: api.ParticipantInfo) -> bool:
    """Whether an agent may be there for this one."""
    kinds = api.ParticipantInfo.Kind
    return one.kind not in (kinds.AGENT, kinds.EGRESS)


# -- one dispatch ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    agent_name: str
    metadata: str
    patience: float
    over: str


def _with_previous(metadata: str, status: RoomAgentStatus) -> str:
    """Hand down whom the new agent takes over from, unless the metadata says it already."""
    own, lineage = split_metadata(metadata)
    if lineage.previous or status.verdict != "zombie" or not status.job:
        return metadata
    return join_metadata(own, Lineage(status.job))


async def _dispatch(
    lkapi: api.LiveKitAPI, room: str, plan: _Plan, silent: Collection[str]
) -> tuple[bool, float]:
    """Dispatch, unless somebody else is about to or has.

    Returns:
        Whether it did, and for how many seconds nothing more should be done.
    """
    # Deleting one of two dispatches would be simpler, but their agents would talk at once for some
    # seconds: the server ends a deleted dispatch's job no sooner than its look for workers is over.
    name = plan.agent_name
    async with claim(lkapi, room, name) as mine:
        listed = await lkapi.agent_dispatch.list_dispatch(room)
        if is_second(mine, listed):
            return False, POLL_INTERVAL
        people = await list_participants(lkapi, room)
        open_ones = [one for one in listed if one.id != plan.over]
        agents = _agents(people, name)
        rest = pending_seconds(open_ones, agents, name, mine.state.created_at, plan.patience)
        if rest > 0:
            return False, rest
        if not judge(people, name, silent).should_dispatch:
            return False, POLL_INTERVAL  # one has come in since we looked
        await lkapi.agent_dispatch.create_dispatch(
            api.CreateAgentDispatchRequest(agent_name=name, room=room, metadata=plan.metadata)
        )
        return True, plan.patience
