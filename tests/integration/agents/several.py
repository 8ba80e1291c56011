"""An agent that starts a session for each participant, as a transcriber of many does.

The dispatch's metadata says how, as the actor's. With ``consult`` there is one session for the room
and one for a room of its own, whose token and URL it gives.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession, JobContext

from livekit_lifecycle import get_lifecycle
from tests.integration.agents.actor import (
    Echo,
    make_server,
    on_request,
    on_session_end,
    room_options,
    spawn,
)

logger = logging.getLogger("several")
server = make_server()


@server.rtc_session(agent_name="several", on_request=on_request, on_session_end=on_session_end)
async def entrypoint(ctx: JobContext) -> None:
    how = json.loads(ctx.job.metadata)
    sessions: dict[str, AgentSession[None]] = {}

    async def serve(identity: str, room: rtc.Room) -> None:
        options = room_options(how)
        options.participant_identity = identity
        options.text_input = False
        session: AgentSession[None] = AgentSession()
        sessions[identity] = session
        session.on(
            "close", lambda _: logger.info("closed", extra={"job": ctx.job.id, "who": identity})
        )
        await session.start(agent=Echo(), room=room, room_options=options)
        logger.info("started", extra={"job": ctx.job.id, "who": identity})

    def joined(participant: rtc.RemoteParticipant) -> None:
        if participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD:
            spawn(serve(participant.identity, ctx.room))

    def ordered(packet: rtc.DataPacket) -> None:
        order = json.loads(packet.data)
        who = order.get("who", "")
        deeds: dict[str, Any] = {
            "shutdown": lambda: ctx.shutdown("done"),
            "close": lambda: sessions[who].shutdown(drain=False),
            "look": lambda: sessions[who].room_io.linked_participant,
        }
        seen = deeds[order["act"]]()
        extra = {"id": order["id"], "job": ctx.job.id, "linked": getattr(seen, "identity", "")}
        logger.info("deed", extra=extra)

    await ctx.connect()
    ctx.room.on("data_received", ordered)
    get_lifecycle().on("exit", lambda _: logger.info("exit_hook", extra={"job": ctx.job.id}))
    if "consult" in how:
        elsewhere = rtc.Room()
        await elsewhere.connect(how["consult"]["url"], how["consult"]["token"])
        ctx.add_shutdown_callback(elsewhere.disconnect)
        await serve("user", ctx.room)
        spawn(serve("expert", elsewhere))
        return
    ctx.room.on("participant_connected", joined)
    for participant in ctx.room.remote_participants.values():
        joined(participant)
