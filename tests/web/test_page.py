"""The page and its reader in a real browser, with agents that write what they are told to."""

from __future__ import annotations

import asyncio
import time

import pytest
from livekit import api, rtc
from playwright.async_api import expect

from livekit_lifecycle.contract import (
    AgentExit,
    Exit,
    State,
    drain_attributes,
    exit_attributes,
    state_attributes,
)
from tests.web.people import Hire, Visit, in_call

pytestmark = pytest.mark.integration

HOUR = 3_600_000
GOODBYE = exit_attributes(AgentExit(exit=Exit.INTENTIONAL, reason="completed", detail="bye"))


async def test_every_state_is_told_in_words(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    visitor = await visit(site, room_name)
    await visitor.says("Not connected")
    await visitor.call()
    await visitor.says("Waiting for an agent")
    agent = await hire()
    await visitor.says("With you")
    for state, label in (("starting", "Starting"), ("closing", "Closing"), ("closed", "Finished")):
        await agent.write(state_attributes(State(state)))
        await visitor.says(label)
    await agent.write(state_attributes(State.ACTIVE), {"lifecycle.stalled": "1"})
    await visitor.says("Not responding")
    await agent.write({"lifecycle.stalled": ""})
    await agent.wait(30)
    await visitor.says("Waiting")
    await agent.write(state_attributes(State.ACTIVE))
    await visitor.says("With you")
    await expect(visitor.page.locator("#timer")).to_be_hidden()


@pytest.mark.parametrize("clock_off", [0, HOUR, -HOUR])
async def test_the_countdown_is_right_whatever_the_clock_says(
    site: str, visit: Visit, hire: Hire, room_name: str, clock_off: int
) -> None:
    agent = await hire()
    first = await in_call(visit, site, room_name, clock_off=clock_off)
    end = time.monotonic() + 40
    await agent.wait(40)
    await first.says("Waiting")
    assert await first.seconds() == pytest.approx(end - time.monotonic(), abs=1.5)
    await asyncio.sleep(6)
    # one that joins late with the same wrong clock has only the written deadline
    late = await visit(site, room_name, clock_off=clock_off)
    await late.call()
    await late.says("Waiting")
    assert await first.seconds() == pytest.approx(end - time.monotonic(), abs=1.5)
    assert await late.seconds() == pytest.approx(end - time.monotonic(), abs=2.5)


async def test_a_drain_counts_down_while_the_agent_serves(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    agent = await hire()
    visitor = await in_call(visit, site, room_name)
    await agent.write(drain_attributes(int((time.time() + 60) * 1000), 60_000))
    await expect(visitor.page.locator("#notice")).to_be_visible()
    await visitor.says("With you")
    await expect(visitor.page.locator("#until")).to_have_text("until it has to go")


async def test_a_goodbye_is_shown_before_the_agent_leaves(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    agent = await hire()
    visitor = await in_call(visit, site, room_name)
    await agent.write(GOODBYE)
    await visitor.says("Ended on purpose")
    assert "“bye”" in await visitor.text("story")
    await agent.room.disconnect()
    await asyncio.sleep(1)
    told = await visitor.labels()
    assert told[told.index("With you") :] == ["With you", "Ended on purpose"]


async def test_a_new_agent_is_offered_once_the_old_one_has_left(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    agent = await hire()
    visitor = await in_call(visit, site, room_name)
    last = AgentExit(exit=Exit.INTENTIONAL, reason="drain", detail="drain_timeout", next="rejoin")
    await agent.write(exit_attributes(last))
    await visitor.says("Ended on purpose")
    offer = [visitor.page.locator("#again"), visitor.page.locator("#advice")]
    for one in offer:
        await expect(one).to_be_hidden()
    await agent.leave()
    for one in offer:
        await expect(one).to_be_visible()


async def test_a_leave_without_a_word_is_a_crash_once_it_has_settled(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    agent = await hire()
    visitor = await in_call(visit, site, room_name)
    await agent.room.disconnect()
    await visitor.says("Out of sight")
    await visitor.says("Crashed")
    assert "without a goodbye" in await visitor.text("story")
    await expect(visitor.page.locator("#again")).to_be_visible()


async def test_an_unmanaged_agent_is_no_crash(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    agent = await hire(managed=False)
    visitor = await visit(site, room_name)
    await visitor.call()
    await visitor.says("Here")
    await agent.room.disconnect()
    await visitor.says("Left")


@pytest.mark.parametrize("identity", ["agent", "agent-2"])
async def test_a_successor_is_a_new_agent_and_the_old_ones_end_is_kept(
    site: str, visit: Visit, hire: Hire, room_name: str, identity: str
) -> None:
    old = await hire("AJ_1")
    visitor = await in_call(visit, site, room_name)
    await hire("AJ_2", identity)
    if identity != "agent":
        await old.write(GOODBYE)
        await old.room.disconnect()
    await expect(visitor.page.locator("#earlier li")).to_have_count(1)
    await visitor.says("With you")
    earlier = await visitor.text("earlier")
    assert ("replaced · duplicate_identity" if identity == "agent" else "completed") in earlier


async def test_hang_up_says_bye_to_the_agent(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    agent = await hire()
    heard: list[str] = []

    async def bye(data: rtc.RpcInvocationData) -> str:
        heard.append(data.caller_identity)
        return ""

    agent.room.local_participant.register_rpc_method("lifecycle.bye", bye)
    visitor = await in_call(visit, site, room_name)
    await visitor.page.click("#hangup")
    await visitor.says("Over", timeout=4)
    assert len(heard) == 1


async def test_hang_up_works_with_an_agent_that_knows_no_bye(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    await hire()
    visitor = await in_call(visit, site, room_name)
    await visitor.page.click("#hangup")
    await visitor.says("Over", timeout=4)
    await visitor.page.reload()
    await visitor.says("Not connected")


async def test_a_closed_room_is_no_crash(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    await hire()
    visitor = await in_call(visit, site, room_name)
    async with api.LiveKitAPI() as lkapi:
        await lkapi.room.delete_room(api.DeleteRoomRequest(room=room_name))
    await visitor.says("Ended on purpose")
    assert await visitor.text("headline") == "The call was closed"


async def test_fifty_goodbyes_each_before_its_leave(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    visitor = await visit(site, room_name)
    await visitor.call()
    await visitor.says("Waiting for an agent")
    await visitor.page.evaluate("""() => {
        window.told = [];
        demo.room()
          .on("participantAttributesChanged", (changed, who) => {
            if ("lifecycle.exit" in changed) told.push(["exit", who.identity]);
          })
          .on("participantDisconnected", (who) => told.push(["left", who.identity]));
    }""")

    async def come_and_go(i: int) -> None:
        agent = await hire(f"AJ_{i}", f"agent-{i}")
        await visitor.page.wait_for_function(
            "who => demo.room().remoteParticipants.has(who)", arg=agent.identity
        )
        await agent.write(GOODBYE)
        await agent.room.disconnect()

    for start in range(0, 50, 10):
        await asyncio.gather(*(come_and_go(i) for i in range(start, start + 10)))
    await visitor.page.wait_for_function("told.filter(([what]) => what === 'left').length === 50")
    told = await visitor.page.evaluate("told")
    for i in range(50):
        assert [what for what, who in told if who == f"agent-{i}"] == ["exit", "left"]
    assert "Crashed" not in await visitor.labels()


async def test_by_keyboard_alone(site: str, visit: Visit, hire: Hire, room_name: str) -> None:
    await hire()
    visitor = await visit(site, room_name)
    await visitor.page.keyboard.press("Tab")
    await visitor.page.keyboard.press("Enter")
    await visitor.says("With you")
    # the button that was pressed has gone: the focus must be on the next one, not on the page
    await expect(visitor.page.locator("#hangup")).to_be_focused()
    await visitor.page.keyboard.press("Enter")
    await visitor.says("Over")
    await expect(visitor.page.locator("#join")).to_be_focused()


async def test_for_screen_readers_and_phones(
    site: str, visit: Visit, hire: Hire, room_name: str
) -> None:
    await hire()
    visitor = await in_call(visit, site, room_name, width=340)
    status = visitor.page.get_by_role("status").first
    await expect(status).to_contain_text("The agent is with you")
    await expect(visitor.page.get_by_role("button", name="Hang up")).to_be_visible()
    # a countdown that is read out each second would drown everything else
    await expect(visitor.page.locator("#timer")).to_have_attribute("aria-live", "off")
    wide = await visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide
