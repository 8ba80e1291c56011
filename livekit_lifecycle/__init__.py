"""Tell a goodbye from a crash: the lifecycle of LiveKit voice agents, published to the room."""

from . import presets
from ._version import __version__
from .contract import AgentExit, AgentStatus, Exit, ExitRecord, Next, Reason, State, parse
from .entrypoint import managed
from .grace import LimitWarning, Returned
from .job import JobLifecycle, get_lifecycle
from .options import LifecycleOptions, Limits, Reconnect
from .presets import LifecycleRoomOptions
from .server import LifecycleServer

__all__ = [
    "AgentExit",
    "AgentStatus",
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
    "Returned",
    "State",
    "__version__",
    "get_lifecycle",
    "managed",
    "parse",
    "presets",
]
