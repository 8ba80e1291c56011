"""Reports of attributes that are not written, or written too late."""

from __future__ import annotations

from livekit import api

from scripts.livekit_server import LiveKitServer
from tests.harness import Worker, call, server_api, words


async def test_the_goodbye_overtakes_what_waits_to_be_written(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/client-sdk-js#1168: writes wait for one another. Also livekit/python-sdks#651."""
    async with call(livekit_server, worker) as made:
        at = (await made.do("burst", writes=50))["at"]
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "completed", "done", "end")
        assert exit_.at - at < 2
        assert exit_.at <= left.at
        assert words(left) == words(exit_)
        assert not worker.log("lifecycle.publish_failed", job_id=made.job)


async def test_an_agent_that_lost_the_right_to_write_still_tells_its_state(
    livekit_server: LiveKitServer, worker: Worker
) -> None:
    """livekit/client-sdk-flutter#768: writes without the right do nothing, and nobody says so.

    Also livekit/protocol#1129: the right is off where nobody thought of it.
    """
    async with call(livekit_server, worker, preset="web") as made:
        rights = api.ParticipantPermission(
            can_publish=True, can_subscribe=True, can_publish_data=True, agent=True
        )
        async with server_api(livekit_server) as lkapi:
            await lkapi.room.update_participant(
                api.UpdateParticipantRequest(room=made.room, identity=made.agent, permission=rights)
            )
        mark = len(made.observer.seen)
        await made.user_leaves()
        waiting = await made.wait_for_state("waiting", since=mark)
        assert int(waiting.attributes["lifecycle.window"]) > 0
        await made.user_returns()
        await made.wait_for_state("active", since=made.observer.seen.index(waiting))
        await made.do("shutdown", reason="done")
        exit_, left = await made.ending()
        assert words(exit_) == ("intentional", "completed", "done", "end")
        assert exit_.at <= left.at
        assert len(worker.log("lifecycle.publish_failed")) <= 1, "at most one warning"
        assert not worker.log("lifecycle.internal_error")
