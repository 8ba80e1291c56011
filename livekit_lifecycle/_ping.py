"""Asks a participant whether its process lives, by an RPC that every living one answers.

Where the server is too old for the call nothing can be told, and one warning says so.
"""

from __future__ import annotations

import asyncio
import functools
import re
from typing import Final

import aiohttp
from livekit import api

from . import _compat
from ._log import FEATURE_UNAVAILABLE, log

METHOD: Final = "lifecycle.ping"
"""No participant has such a method. LiveKit's SDK says so by itself, which only the living do."""

UNANSWERED: Final = frozenset({1501, 1502, 1503})
"""LiveKit's RPC errors for a participant that did not answer, or left instead."""

_MARGIN: Final = 1.0
"""Seconds for the way to the server and back."""


async def answers(lkapi: api.LiveKitAPI, room: str, identity: str, seconds: float) -> bool | None:
    """Whether the process behind a participant answers.

    The answer comes from LiveKit's own thread in it: a process whose event loop is blocked answers,
    one that was killed or is stopped does not.

    Args:
        lkapi: A connection to the server.
        room: Name of the room.
        identity: Of the participant.
        seconds: How long it has for its answer.

    Returns:
        None where nobody can tell.
    """
    call = _compat.server_rpc(lkapi, room=room, identity=identity, method=METHOD, seconds=seconds)
    if call is None:
        _unavailable("a private name of livekit-api is gone")
        return None
    try:
        await asyncio.wait_for(call, seconds + _MARGIN)
    except api.TwirpError as error:
        return _read(error)
    except (aiohttp.ClientError, asyncio.TimeoutError):
        return None
    return True


def _read(error: api.TwirpError) -> bool | None:
    # the server puts the RPC's own error into the text of its answer
    found = re.search(r"RpcError (\d+)", error.message)
    if found:
        return int(found.group(1)) not in UNANSWERED
    if error.code in (api.TwirpErrorCode.BAD_ROUTE, api.TwirpErrorCode.UNIMPLEMENTED):
        _unavailable(error.code)
    return None


@functools.cache  # one warning in a process, not one for each look at a room
def _unavailable(error: str) -> None:
    log.warning(FEATURE_UNAVAILABLE, feature="asking an agent whether it lives", error=error)
