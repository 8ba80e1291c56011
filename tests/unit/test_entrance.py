"""The entrance: exactly this is public."""

from __future__ import annotations

import logging
import subprocess
import sys

import livekit_lifecycle
from livekit_lifecycle._log import log


def test_the_list_of_exports_is_exactly_this() -> None:
    assert livekit_lifecycle.__all__ == [
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
    assert all(hasattr(livekit_lifecycle, name) for name in livekit_lifecycle.__all__)


def test_everything_public_is_documented() -> None:
    for name in livekit_lifecycle.__all__:
        thing = getattr(livekit_lifecycle, name)
        assert isinstance(thing, str) or thing.__doc__, name


def test_importing_leaves_the_apps_logging_alone() -> None:
    before = logging.getLoggerClass()
    script = (
        "import logging, structlog\n"
        "import livekit.agents\n"
        "seen = logging.getLoggerClass(), logging.root.level, list(logging.root.handlers)\n"
        "import livekit_lifecycle\n"
        "assert seen == (logging.getLoggerClass(), logging.root.level, logging.root.handlers)\n"
        "assert not structlog.is_configured()\n"
        "assert logging.getLogger('livekit_lifecycle').handlers == []\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert logging.getLoggerClass() is before


def test_our_log_lines_name_the_file_that_wrote_them() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[assignment,method-assign]
    logger = logging.getLogger("livekit_lifecycle")
    logger.addHandler(handler)
    try:
        log.warning("lifecycle.test", job_id="AJ_1")
    finally:
        logger.removeHandler(handler)
    assert records[0].filename == "test_entrance.py"
    assert records[0].__dict__["job_id"] == "AJ_1"
