"""Tell a goodbye from a crash: the lifecycle of LiveKit voice agents, published to the room."""

from ._version import __version__
from .contract import AgentExit, AgentStatus, Exit, ExitRecord, Next, Reason, State, parse
from .entrypoint import managed
from .job import JobLifecycle, get_lifecycle
from .options import LifecycleOptions
from .server import LifecycleServer

__all__ = [
    "AgentExit",
    "AgentStatus",
    "Exit",
    "ExitRecord",
    "JobLifecycle",
    "LifecycleOptions",
    "LifecycleServer",
    "Next",
    "Reason",
    "State",
    "__version__",
    "get_lifecycle",
    "managed",
    "parse",
]
