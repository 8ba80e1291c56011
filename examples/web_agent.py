"""The agent behind the web page. It needs no models, and ends in every way it is told to.

python -m livekit.agents start examples/web_agent.py
"""

from __future__ import annotations

import asyncio
import math
import os
import signal

from livekit import rtc
from livekit.agents import Agent, AgentSession, JobContext

from livekit_lifecycle import LifecycleServer, get_lifecycle, presets

TOPIC = "demo.end"

server = LifecycleServer(
    drain_timeout=int(os.environ.get("DRAIN_TIMEOUT", "20")),
    num_idle_processes=1,
    # so that a busy laptop takes the call too
    load_fnc=lambda: 0.0,
    load_threshold=math.inf,
    host="127.0.0.1",
    port=0,
)


class DeskOnFireError(Exception):
    """The bug of this agent."""


@server.rtc_session(agent_name=os.environ.get("AGENT_NAME", "front-desk"))
async def front_desk(ctx: JobContext) -> None:
    """Serve one call."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session: AgentSession[None] = AgentSession()
    await session.start(
        agent=Agent(instructions="Be brief."),
        room=ctx.room,
        room_options=presets.web(grace=float(os.environ.get("GRACE", presets.WEB_GRACE))),
    )

    def ended(_: object) -> None:
        if not over.done():
            over.set_result(None)

    def obey(packet: rtc.DataPacket) -> None:
        # only the back end may: what comes from a participant carries its name
        if packet.topic == TOPIC and packet.participant is None:
            end(packet.data.decode(), over)

    get_lifecycle().on("exit", ended)
    ctx.room.on("data_received", obey)
    await over


def end(how: str, over: asyncio.Future[None]) -> None:
    """Come to one of the endings."""
    if how == "goodbye":
        get_lifecycle().end("See you soon!")
    elif how == "handoff":
        get_lifecycle().handoff("A colleague takes over.")
    elif how == "exception":
        over.set_exception(DeskOnFireError())
    elif how == "exit":
        os._exit(3)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
