"""An agent as people have it today: nothing of this project in it."""

from __future__ import annotations

import os

from livekit.agents import Agent, AgentServer, AgentSession, JobContext
from livekit.agents.voice.room_io import RoomOptions

server = AgentServer(port=0, host="127.0.0.1", num_idle_processes=1, load_fnc=lambda: 0.0)


@server.rtc_session(agent_name=os.environ["ACTOR_NAME"])
async def front_desk(ctx: JobContext) -> None:
    session: AgentSession[None] = AgentSession()
    await session.start(
        agent=Agent(instructions="Be brief."), room=ctx.room, room_options=RoomOptions()
    )


if __name__ == "__main__":
    from livekit.agents import cli

    cli.run_app(server)
