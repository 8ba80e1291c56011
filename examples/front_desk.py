"""The smallest agent under the lifecycle. It needs no model keys: it greets in writing.

Start it with ``python -m livekit.agents start examples/front_desk.py``.
"""

from livekit.agents import Agent, AgentSession, JobContext
from livekit.agents.voice.room_io import RoomOptions

from livekit_lifecycle import LifecycleServer

server = LifecycleServer()  # was: AgentServer()


@server.rtc_session(agent_name="front-desk")
async def front_desk(ctx: JobContext) -> None:
    """One call."""
    session: AgentSession[None] = AgentSession()
    await session.start(
        agent=Agent(instructions="You are a receptionist."),
        room=ctx.room,
        room_options=RoomOptions(audio_output=False),
    )
    await session.say("Hello! How can I help?")
