"""An agent that keeps LiveKit's own server and takes the job half alone."""

from __future__ import annotations

import os

from livekit.agents import Agent, AgentServer, AgentSession, JobContext
from livekit.agents.voice.room_io import RoomOptions

from livekit_lifecycle import managed

server = AgentServer(port=0, host="127.0.0.1", num_idle_processes=1, load_fnc=lambda: 0.0)


@server.rtc_session(agent_name=os.environ["ACTOR_NAME"])
@managed
async def front_desk(ctx: JobContext) -> None:
    session: AgentSession[None] = AgentSession()
    await session.start(
        agent=Agent(instructions="Be brief."), room=ctx.room, room_options=RoomOptions()
    )
