"""An agent among several people: it stays until the last of them has left.

Start it with ``python -m livekit.agents start examples/meeting.py``. When the one it listens to
leaves, it goes on with another who is there. Recorders, other agents and avatars are no people.
"""

from livekit.agents import Agent, AgentSession, JobContext

from livekit_lifecycle import LifecycleServer, presets

server = LifecycleServer()


@server.rtc_session(agent_name="meeting")
async def meeting(ctx: JobContext) -> None:
    """One meeting."""
    session: AgentSession[None] = AgentSession()
    await session.start(
        agent=Agent(instructions="You take notes."),
        room=ctx.room,
        room_options=presets.meeting(audio_output=False),
    )
