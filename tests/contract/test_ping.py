"""The private names of livekit-api that asking an agent whether it lives rests on."""

from __future__ import annotations

from typing import Any

from livekit.api import VideoGrants
from livekit.api.room_service import RoomService
from livekit.protocol.room import PerformRpcRequest, PerformRpcResponse

SEE = "see livekit_lifecycle/_ping.py"


def test_the_room_service_has_a_client_and_a_way_to_authorize() -> None:
    http: Any = None
    service = RoomService(http, "http://localhost", "key", "s" * 32)
    assert callable(service._client.request), SEE
    header = service._auth_header(VideoGrants(room_admin=True, room="room"))
    assert header["authorization"].startswith("Bearer "), SEE


def test_the_protocol_has_an_rpc_to_a_participant() -> None:
    fields = set(PerformRpcRequest.DESCRIPTOR.fields_by_name)
    needed = {"room", "destination_identity", "method", "response_timeout_ms"}
    assert needed <= fields, SEE
    assert PerformRpcResponse.DESCRIPTOR.full_name == "livekit.PerformRpcResponse", SEE


def test_there_is_no_public_way_yet() -> None:
    assert not hasattr(RoomService, "perform_rpc"), "livekit-api has a method for it now: use that"
