"""Reconnects, the page's own and its agent's: twenty runs of each, and no false crash.

A run is one page's experience of one reconnect; ten pages have two each. Where agents leave, each
page has a room and an agent of its own, and the twenty leaves are spread over the reconnect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import pytest
from livekit import rtc

from livekit_lifecycle.contract import AgentExit, Exit, exit_attributes
from scripts.page_stage import Puppet
from tests.web.people import ENDS, Hire, Visit, Visitor, gather_some, in_call

pytestmark = pytest.mark.integration

RUNS = 20
PAGES = 10  # at once, each of them several times
SETTLE = 4.0  # the reader's own, in seconds
SCENARIOS = ["full-reconnect", "signal-reconnect"]
GOODBYE = exit_attributes(AgentExit(exit=Exit.INTENTIONAL, reason="completed", detail="bye"))


@dataclass
class Call:
    """A page and its agent, alone in a room."""

    room: str
    visitor: Visitor
    agent: Puppet


async def test_an_agents_own_full_reconnect_is_no_end(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    agent = await hire()
    visitor = await in_call(visit, site, room_name)
    for _ in range(3):
        await agent.room.simulate_scenario(rtc.SimulateScenarioKind.SIMULATE_FULL_RECONNECT)
        await asyncio.sleep(SETTLE + 1)
    await visitor.says("With you")
    assert set(ENDS).isdisjoint(await visitor.labels())


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_pages_own_reconnect_is_no_end(
    site: str, visit: Visit, hire: Hire, room_name: str, scenario: str
) -> None:
    await hire()
    visitors = await gather_some(lambda _: in_call(visit, site, room_name), range(PAGES))

    async def reconnect(one: Visitor) -> None:
        for times in range(1, RUNS // PAGES + 1):
            await one.simulate(scenario)
            await one.has_said("Reconnecting", times, timeout=30)
            await one.says("With you", timeout=30)
        await asyncio.sleep(SETTLE + 1)

    await asyncio.gather(*map(reconnect, visitors))
    for one in visitors:
        assert set(ENDS).isdisjoint(await one.labels())


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_an_agent_that_leaves_in_the_middle_of_it_has_not_crashed(
    site: str, visit: Visit, hire: Hire, room_name: str, scenario: str
) -> None:
    async def begin(i: int) -> Call:
        room = f"{room_name}-{i}"
        agent = await hire(room=room)
        return Call(room, await in_call(visit, site, room), agent)

    async def succeed(times: int, call: Call) -> None:
        call.agent = await hire(f"AJ_{times}", room=call.room)
        await call.visitor.says("With you")

    async def run(call: Call, delay: float, *, goodbye: bool) -> str:
        already = (await call.visitor.labels()).count("Reconnecting")
        await call.visitor.simulate(scenario)
        await call.visitor.has_said("Reconnecting", already + 1, timeout=30)
        await asyncio.sleep(delay)
        if goodbye:
            await call.agent.write(GOODBYE)
        await call.agent.leave()
        return await call.visitor.verdict()

    calls = await gather_some(begin, range(PAGES))
    # half of them from its first moment on, half of them once it seems over but has not settled
    for times, (start, goodbye) in enumerate([(0, False), (1, True), (1, False), (0, True)]):
        if times:
            await gather_some(partial(succeed, times), calls)
        runs = [run(one, start + 0.1 * i, goodbye=goodbye) for i, one in enumerate(calls)]
        told = set(await asyncio.gather(*runs))
        # of a goodbye it depends on what still came through before it left
        assert told <= ({"Not clear", "Ended on purpose"} if goodbye else {"Not clear"})
