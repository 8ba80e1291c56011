"""A web page's agent: it survives a reload and a short loss of the network.

Start it with ``python -m livekit.agents start examples/page_reload.py``, open your page, reload it:
the same agent goes on with the same conversation. Close the tab: the agent waits for 15 s, counted
down in its attributes, and leaves. A hang-up button calls the RPC ``lifecycle.bye`` first, then
nobody waits.
"""

import logging

from livekit.agents import Agent, AgentSession, JobContext

from livekit_lifecycle import LifecycleServer, Limits, Returned, get_lifecycle, presets

logger = logging.getLogger("page-reload")

server = LifecycleServer()


@server.rtc_session(agent_name="page-reload")
async def page(ctx: JobContext) -> None:
    """One conversation, however often the page is reloaded."""

    def returned(event: Returned) -> None:
        logger.info("welcome back" if event.same else "hello, somebody new")

    get_lifecycle().on("returned", returned)
    get_lifecycle().on("waiting", lambda deadline: logger.info("waiting until %s", deadline))

    session: AgentSession[None] = AgentSession()
    await session.start(
        agent=Agent(instructions="You are a helper on a web page."),
        room=ctx.room,
        # follow="any" if your page gets a new identity at each load
        room_options=presets.web(limits=Limits(no_show=30), audio_output=False),
    )
