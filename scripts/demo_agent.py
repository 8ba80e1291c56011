"""The agent of the demo. It needs no models, and ends in every way it is told to.

``DEMO_PLAIN=1`` runs the same agent under LiveKit's own server, for comparison.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time

from livekit import rtc
from livekit.agents import Agent, AgentServer, AgentSession, JobContext

from livekit_lifecycle import LifecycleServer, get_lifecycle

PLAIN = os.environ.get("DEMO_PLAIN") == "1"
LAST_WORDS = 1.5
NOTICE = 0.2
"""Seconds between an order and the deed, so that the answer is out before."""

server = (AgentServer if PLAIN else LifecycleServer)(
    drain_timeout=8,
    num_idle_processes=2,
    # a busy laptop shall take every call too
    load_fnc=lambda: 0.0,
    load_threshold=math.inf,
    host="127.0.0.1",
    port=0,
)


class OutOfStockError(Exception):
    """The bug of this agent."""


@server.rtc_session(agent_name=os.environ.get("DEMO_AGENT_NAME", "demo"))
async def take_order(ctx: JobContext) -> None:
    """Serve one call."""
    session: AgentSession[None] = AgentSession()
    loop = asyncio.get_running_loop()
    bug: asyncio.Future[None] = loop.create_future()

    async def end(order: rtc.RpcInvocationData) -> str:
        if order.payload == "finish":
            loop.call_later(NOTICE, ctx.shutdown, "order placed")
        elif order.payload == "exception":
            loop.call_later(NOTICE, bug.set_exception, OutOfStockError())
        return json.dumps({"pid": os.getpid(), "at": time.monotonic() + NOTICE})

    async def wrap_up(_deadline: float) -> None:
        await asyncio.sleep(LAST_WORDS)  # where an agent with a voice would say goodbye
        session.shutdown()

    await ctx.connect()
    ctx.room.local_participant.register_rpc_method("end", end)
    if not PLAIN:
        get_lifecycle().on("draining", wrap_up)
    await session.start(agent=Agent(instructions="Take an order."), room=ctx.room)
    if ctx.job.metadata == "exception":
        await bug
