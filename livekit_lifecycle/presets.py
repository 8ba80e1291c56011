"""RoomOptions for the usual kinds of call: named constants, and the caller's value wins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from livekit import api
from livekit.agents.voice.room_io import RoomOptions

from .options import Limits, Reconnect

Follow = Literal["same", "any"]

WEB_GRACE: Final = 15.0
"""Seconds; a page reload takes two or three, and 15 fit into LiveKit's departure timeout of 20."""
MOBILE_GRACE: Final = 60.0
"""Seconds that an app may be in the background."""
TELEPHONY_GRACE: Final = 5.0
"""Seconds for a broken link; a phone that hung up does not come back."""
MEETING_GRACE: Final = 30.0
"""Seconds after the last person left."""
ROOM_MARGIN: Final = 4.0
"""Seconds before a room closes by which a grace has to be over: a leave is seen up to 3 s late."""


@dataclass
class LifecycleRoomOptions(RoomOptions):
    """LiveKit's ``RoomOptions`` with the lifecycle's own part.

    Attributes:
        reconnect: How long the session outlives its user's leave.
        limits: When the session ends whatever else happens.

    Raises:
        ValueError: ``close_on_disconnect`` together with a grace: LiveKit would end the session
            before the grace began.
    """

    reconnect: Reconnect = field(default_factory=lambda: Reconnect(grace=WEB_GRACE))
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Refuse what can't work together."""
        if self.close_on_disconnect and self.reconnect.grace > 0:
            msg = (
                f"close_on_disconnect=True ends the session at once, so the grace of "
                f"{self.reconnect.grace:g} s could never run; leave close_on_disconnect out, or "
                "use presets.immediate()"
            )
            raise ValueError(msg)


def web(
    *, grace: float = WEB_GRACE, follow: Follow = "same", **fields: Any
) -> LifecycleRoomOptions:
    """For a page that is reloaded and a phone that loses its network.

    Any leave starts the grace, since a reload is a polite leave too; a client whose user wants to
    hang up calls the RPC ``lifecycle.bye`` first.

    Args:
        grace: Seconds.
        follow: ``"any"`` for pages that get a new identity at each load.
        **fields: Fields of ``RoomOptions``, and ``limits``.

    Raises:
        ValueError: Values that can't work, with the numbers.
    """
    return _options(Reconnect(grace=grace, follow=follow), fields)


def mobile(
    *, grace: float = MOBILE_GRACE, follow: Follow = "same", **fields: Any
) -> LifecycleRoomOptions:
    """For apps that go to the background.

    Its grace needs a room that stays open for so long: see `room_config`. In any other room the
    grace is cut to fit, with a warning.

    Args:
        grace: Seconds.
        follow: Who may come back.
        **fields: Fields of ``RoomOptions``, and ``limits``.

    Raises:
        ValueError: Values that can't work, with the numbers.
    """
    return _options(Reconnect(grace=grace, follow=follow), fields)


def telephony(
    *, grace: float = TELEPHONY_GRACE, follow: Follow = "same", **fields: Any
) -> LifecycleRoomOptions:
    """For SIP calls: ends at once at every kind of hang-up and deletes the room.

    LiveKit's own ``close_on_disconnect`` does not close on a user who was unavailable, a trunk that
    failed, or a caller who was removed. The grace is for a broken link only.

    Args:
        grace: Seconds.
        follow: Who may come back.
        **fields: Fields of ``RoomOptions``, and ``limits``.

    Raises:
        ValueError: Values that can't work, with the numbers.
    """
    fields.setdefault("delete_room_on_close", True)
    reconnect = Reconnect(grace=grace, follow=follow, broken_link_only=grace > 0)
    return _options(reconnect, fields)


def meeting(
    *, grace: float = MEETING_GRACE, follow: Follow = "any", **fields: Any
) -> LifecycleRoomOptions:
    """For several people: ends when the last of them has left, and never deletes the room.

    The leave of one is no end while another stays; the agent then listens to one who is there.
    Recorders, other agents and avatars are no people.

    Args:
        grace: Seconds after the last one left.
        follow: Who may come back.
        **fields: Fields of ``RoomOptions``, and ``limits``.

    Raises:
        ValueError: Values that can't work, with the numbers.
    """
    fields.setdefault("delete_room_on_close", False)
    return _options(Reconnect(grace=grace, follow=follow), fields)


def immediate(**fields: Any) -> LifecycleRoomOptions:
    """LiveKit's own default, said aloud: the session ends when its user leaves.

    A page reload ends it too, and so does a full reconnect of the client's SDK.

    Args:
        **fields: Fields of ``RoomOptions``, and ``limits``.
    """
    fields.setdefault("close_on_disconnect", True)
    return _options(Reconnect(grace=0), fields)


def room_config(options: RoomOptions) -> api.RoomConfiguration:
    """The configuration of a room that stays open for as long as the grace of these options.

    Give it to the access token that creates the room (``AccessToken.with_room_config``), or its
    ``departure_timeout`` to ``CreateRoomRequest``. LiveKit can't change it afterwards.

    Args:
        options: What a preset returned.

    Raises:
        TypeError: They are not of a preset.
    """
    if not isinstance(options, LifecycleRoomOptions):
        msg = f"options is {options!r}; room_config needs what a preset returned"
        raise TypeError(msg)
    needed = math.ceil(options.reconnect.grace + ROOM_MARGIN)
    return api.RoomConfiguration(departure_timeout=needed)


def _options(reconnect: Reconnect, fields: dict[str, Any]) -> LifecycleRoomOptions:
    fields.setdefault("close_on_disconnect", False)
    return LifecycleRoomOptions(reconnect=reconnect, **fields)
