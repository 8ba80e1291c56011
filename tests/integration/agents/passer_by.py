"""A client that joins, says so, and stays until it is killed: a page or a phone that just dies.

Takes a token; finds the server as every other process here does.
"""

from __future__ import annotations

import asyncio
import os
import sys

from livekit import rtc


async def main() -> None:
    room = rtc.Room()
    await room.connect(os.environ["LIVEKIT_URL"], sys.argv[1])
    track = rtc.LocalAudioTrack.create_audio_track("mic", rtc.AudioSource(48000, 1))
    await room.local_participant.publish_track(track, rtc.TrackPublishOptions())
    print("joined", flush=True)  # noqa: T201
    await asyncio.Event().wait()


asyncio.run(main())
