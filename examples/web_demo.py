"""The page, its back end, an agent and a LiveKit server, all on this machine: open and try.

    npm --prefix examples/web install && npm --prefix examples/web run build
    python -m examples.web_demo

Never put this on a network: whoever reaches it can end every call.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web
from livekit import api

from examples.backend import LKAPI, make_app, participants, serving_agents
from examples.web_agent import TOPIC
from scripts.livekit_server import running

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "examples" / "web" / "dist"
WORKERS: web.AppKey[list[subprocess.Popen[bytes]]] = web.AppKey("workers")


def webhook_url(backend_port: int) -> str:
    """Where the LiveKit server is to tell the back end of what happens."""
    return f"http://127.0.0.1:{backend_port}/api/webhook"


def start_worker() -> subprocess.Popen[bytes]:
    """An agent's worker, in a process group of its own."""
    command = [sys.executable, "-m", "livekit.agents", "start", "examples/web_agent.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)  # noqa: S603


async def end(request: web.Request) -> web.Response:
    """Make the agent of a room end in some way, for real."""
    body = await request.json()
    room, how, lkapi = body["room"], body["how"], request.app[LKAPI]
    if how == "room":
        await lkapi.room.delete_room(api.DeleteRoomRequest(room=room))
    elif how in {"drain", "worker"}:
        number = signal.SIGTERM if how == "drain" else signal.SIGKILL
        workers = request.app[WORKERS]
        workers[-1].send_signal(number)
        workers.append(await asyncio.to_thread(start_worker))
    else:
        agents = serving_agents(await participants(lkapi, room))
        if not agents:
            raise web.HTTPConflict(text="no agent serves this room")
        identity = agents[-1].identity
        if how == "remove":
            who = api.RoomParticipantIdentity(room=room, identity=identity)
            await lkapi.room.remove_participant(who)
        else:
            order = api.SendDataRequest(
                room=room, data=how.encode(), topic=TOPIC, destination_identities=[identity]
            )
            await lkapi.room.send_data(order)
    return web.json_response({})


async def page(_: web.Request) -> web.FileResponse:
    """The built page."""
    return web.FileResponse(PAGE / "index.html")


async def workers(app: web.Application) -> AsyncIterator[None]:
    """Agents for as long as the back end runs."""
    app[WORKERS] = [await asyncio.to_thread(start_worker)]
    yield
    for worker in app[WORKERS]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def make_demo(*, with_agents: bool = True) -> web.Application:
    """Return the back end with the page and, if wanted, agents and the means to end them."""
    app = make_app(demo=with_agents)
    app.router.add_get("/", page)
    app.router.add_static("/assets", PAGE / "assets")
    if with_agents:
        app.router.add_post("/api/end", end)
        app.cleanup_ctx.append(workers)
    return app


def main() -> None:
    """Run it until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--port", type=int, default=8080)
    port = parser.parse_args().port
    if not PAGE.is_dir():
        parser.error(f"{PAGE.relative_to(ROOT)} is missing: run `npm run build` in examples/web")
    with running(webhook=webhook_url(port)) as server:
        os.environ |= server.environment
        web.run_app(make_demo(), host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
