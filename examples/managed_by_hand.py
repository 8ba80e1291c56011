"""For those who keep LiveKit's own server: the job half alone.

Start it with ``python -m livekit.agents start examples/managed_by_hand.py``. Goodbyes, exceptions
and a dead worker are told; a killed process is not, since nobody is left who could tell.
"""

from livekit.agents import Agent, AgentServer, AgentSession, JobContext
from livekit.agents.voice.room_io import RoomOptions

from livekit_lifecycle import managed

server = AgentServer()


@server.rtc_session(agent_name="front-desk")
@managed
async def front_desk(ctx: JobContext) -> None:
    """One call."""
    session: AgentSession[None] = AgentSession()
    await session.start(
        agent=Agent(instructions="You are a receptionist."),
        room=ctx.room,
        room_options=RoomOptions(audio_output=False),
    )
