"""The front desk with hooks: what the worker is told of each ending, and a polite deploy.

Start it with ``python -m livekit.agents start examples/front_desk_hooks.py``, call it, then press
Ctrl-C: the agent says a last sentence and ends its call, instead of being cut off in an hour.
"""

import logging
import time

from livekit.agents import Agent, AgentSession, JobContext
from livekit.agents.voice.room_io import RoomOptions

from livekit_lifecycle import ExitRecord, LifecycleOptions, LifecycleServer, get_lifecycle

logger = logging.getLogger("front-desk")


async def on_exit(record: ExitRecord) -> None:
    """In the worker: each ending of each job, also of one whose process was killed."""
    if not record.intentional:
        logger.error("page somebody: %s (%s)", record.reason, record.detail)
    else:
        logger.info("call over: %s", record.reason)


def on_drain(deadline: float) -> None:
    """In the worker: it has been told to stop."""
    logger.info("draining, %.0f s left", deadline - time.time())


server = LifecycleServer(lifecycle=LifecycleOptions(on_exit=on_exit, on_drain=on_drain))


@server.rtc_session(agent_name="front-desk")
async def front_desk(ctx: JobContext) -> None:
    """One call."""
    session: AgentSession[None] = AgentSession()
    lifecycle = get_lifecycle()

    async def draining(deadline: float) -> None:
        """In the job: finish the call by ourselves while there is time."""
        logger.info("wrapping up, %.0f s left", deadline - time.time())
        await session.say("We have to pause here. Please call again in a minute.")
        session.shutdown()

    lifecycle.on("draining", draining)
    lifecycle.on("exit", lambda record: logger.info("said goodbye: %s", record.reason))

    await session.start(
        agent=Agent(instructions="You are a receptionist."),
        room=ctx.room,
        room_options=RoomOptions(audio_output=False),
    )
