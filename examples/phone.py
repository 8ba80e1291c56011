"""A phone agent: any kind of hang-up ends the call at once, and a call has a longest duration.

Start it with ``python -m livekit.agents start examples/phone.py`` and send it SIP calls.
"""

from livekit.agents import Agent, AgentSession, JobContext

from livekit_lifecycle import LifecycleServer, Limits, LimitWarning, get_lifecycle, presets

server = LifecycleServer()


@server.rtc_session(agent_name="phone")
async def phone(ctx: JobContext) -> None:
    """One call."""
    session: AgentSession[None] = AgentSession()

    async def limit_warning(event: LimitWarning) -> None:
        if event.limit == "max_duration":
            await session.say("We have to end in half a minute.")

    get_lifecycle().on("limit_warning", limit_warning)
    await session.start(
        agent=Agent(instructions="You answer the phone."),
        room=ctx.room,
        room_options=presets.telephony(
            limits=Limits(max_duration=600, idle=60, warn_before=30), audio_output=False
        ),
    )
