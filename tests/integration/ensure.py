"""One of several back ends: calls `ensure_agent` so many times at once, at an appointed time.

Not a test: `test_dispatch.py` runs it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from livekit import api

from livekit_lifecycle.dispatch import ensure_agent


async def main(room: str, agent_name: str, count: int, at: float) -> None:
    async with api.LiveKitAPI() as lkapi:
        await asyncio.sleep(at - time.time())
        calls = [ensure_agent(lkapi, room, agent_name) for _ in range(count)]
        statuses = await asyncio.gather(*calls)
    print(json.dumps([[status.verdict, status.job] for status in statuses]))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
