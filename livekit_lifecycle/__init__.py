"""Tell a goodbye from a crash: the lifecycle of LiveKit voice agents, published to the room."""

from typing import TYPE_CHECKING, Any

from . import presets
from ._version import __version__
from .contract import AgentExit, AgentStatus, Exit, ExitRecord, Next, Reason, State, parse
from .entrypoint import managed
from .grace import LimitWarning, Returned
from .job import JobLifecycle, get_lifecycle
from .options import DrainOptions, LifecycleOptions, Limits, Reconnect, RestartPolicy
from .presets import LifecycleRoomOptions
from .server import LifecycleServer

if TYPE_CHECKING:
    from .dispatch import RoomAgentStatus, agent_status, ensure_agent

__all__ = [
    "AgentExit",
    "AgentStatus",
    "DrainOptions",
    "Exit",
    "ExitRecord",
    "JobLifecycle",
    "LifecycleOptions",
    "LifecycleRoomOptions",
    "LifecycleServer",
    "LimitWarning",
    "Limits",
    "Next",
    "Reason",
    "Reconnect",
    "RestartPolicy",
    "Returned",
    "RoomAgentStatus",
    "State",
    "__version__",
    "agent_status",
    "ensure_agent",
    "get_lifecycle",
    "managed",
    "parse",
    "presets",
]


def __getattr__(name: str) -> Any:
    # for back ends: an agent's process does not pay for importing it
    if name in ("RoomAgentStatus", "agent_status", "ensure_agent"):
        from . import dispatch  # noqa: PLC0415

        return getattr(dispatch, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
