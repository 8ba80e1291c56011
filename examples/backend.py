"""A back end for a web page that talks to an agent: tokens, an agent on request, and the endings.

It needs LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET; the server's configuration has to
name ``http://…/api/webhook`` under ``webhook.urls``.

    python -m examples.backend
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from livekit import api

from livekit_lifecycle import State
from livekit_lifecycle.dispatch import ensure_agent
from livekit_lifecycle.reader import from_webhook, parse

AGENT_NAME = os.environ.get("AGENT_NAME", "front-desk")
LKAPI = web.AppKey("lkapi", api.LiveKitAPI)
EXITS: web.AppKey[deque[dict[str, Any]]] = web.AppKey("exits")
DEMO = web.AppKey("demo", bool)

routes = web.RouteTableDef()


@routes.get("/api/token")
async def token(request: web.Request) -> web.Response:
    """Let the page into its room, and see to it that an agent is there."""
    # a real back end takes both from its own login, never from the page
    room, identity = request.query["room"], request.query["identity"]
    first_agent = api.RoomConfiguration(agents=[api.RoomAgentDispatch(agent_name=AGENT_NAME)])
    jwt = (
        api.AccessToken()
        .with_identity(identity)
        .with_grants(api.VideoGrants(room_join=True, room=room))
        .with_room_config(first_agent)
        .to_jwt()
    )
    if await participants(request.app[LKAPI], room):
        # the room is there, so it brings no first agent any more; the page need not wait for one
        await ensure_agent(request.app[LKAPI], room, AGENT_NAME, timeout=0)
    url = os.environ["LIVEKIT_URL"]
    return web.json_response({"url": url, "token": jwt, "demo": request.app[DEMO]})


@routes.post("/api/agent")
async def agent(request: web.Request) -> web.Response:
    """Send a new agent, unless one serves already."""
    room = (await request.json())["room"]
    # the page has seen the last agent come and go, so its dispatch need not be waited for as long
    status = await ensure_agent(request.app[LKAPI], room, AGENT_NAME, timeout=8, patience=5)
    return web.json_response({"verdict": status.verdict, "why": status.why})


@routes.post("/api/webhook")
async def webhook(request: web.Request) -> web.Response:
    """What LiveKit tells; an agent's end is logged."""
    receiver = api.WebhookReceiver(api.TokenVerifier())
    body = await request.text()
    try:
        event = receiver.receive(body, request.headers.get("Authorization", ""))
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not LiveKit's
        raise web.HTTPUnauthorized from None
    exit_ = from_webhook(event)
    if exit_ is not None:
        record = {
            "exit": exit_.exit.value,
            "reason": exit_.reason,
            "detail": exit_.detail,
            "room": event.room.name,
            "identity": event.participant.identity,
            "job": parse(event.participant.attributes).job,
            "at": time.time(),
        }
        request.app[EXITS].appendleft(record)
        print("agent ended:", record, flush=True)
    return web.Response()


@routes.get("/api/exits")
async def exits(request: web.Request) -> web.Response:
    """The endings of one room's agents, the newest first."""
    room = request.query["room"]
    return web.json_response([one for one in request.app[EXITS] if one["room"] == room])


async def participants(lkapi: api.LiveKitAPI, room: str) -> list[api.ParticipantInfo]:
    """Everyone in a room; nobody where there is no such room."""
    answer = await lkapi.room.list_participants(api.ListParticipantsRequest(room=room))
    return list(answer.participants)


def serving_agents(people: list[api.ParticipantInfo]) -> list[api.ParticipantInfo]:
    """The agents among them that have not come to their end."""
    agents = [one for one in people if one.kind == api.ParticipantInfo.Kind.AGENT]
    statuses = [parse(one.attributes) for one in agents]
    return [
        one
        for one, status in zip(agents, statuses, strict=True)
        if status.exit is None and status.state is not State.CLOSED
    ]


def make_app(*, demo: bool = False) -> web.Application:
    """Return the application; ``demo`` tells the page to show its buttons for endings."""
    app = web.Application()
    app[DEMO] = demo
    app[EXITS] = deque(maxlen=200)
    app.add_routes(routes)

    async def connection(app: web.Application) -> AsyncIterator[None]:
        app[LKAPI] = api.LiveKitAPI()
        yield
        await app[LKAPI].aclose()

    app.cleanup_ctx.append(connection)
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
