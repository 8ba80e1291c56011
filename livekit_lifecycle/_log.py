"""The one logger, the names of its events, and the fields they may have.

Events go through structlog into the standard library's logger ``livekit_lifecycle``, and so
through whatever handlers LiveKit or the app put there; structlog's global configuration and the
app's own logging are left alone. Fields that may hold a person's data have a ``pii`` segment in
their name, which is how LiveKit marks what must not leave for somebody else's exporter.
"""

from __future__ import annotations

import logging
from typing import Final

import structlog

from .contract import ExitRecord

LOGGER_NAME: Final = "livekit_lifecycle"

PRIVATE_DETAIL: Final = "lifecycle.pii.detail"
"""Name of the field for a detail that is the app's own text."""

ARMED: Final = "lifecycle.armed"
DRAIN_ANNOUNCED: Final = "lifecycle.drain_announced"
STATE: Final = "lifecycle.state"
EXIT: Final = "lifecycle.exit"
CRASH_REPORTED: Final = "lifecycle.crash_reported"
PUBLISH_FAILED: Final = "lifecycle.publish_failed"
HOOK_FAILED: Final = "lifecycle.hook_failed"
KEY_RESERVED: Final = "lifecycle.key_reserved"
NO_CREDENTIALS: Final = "lifecycle.no_credentials"
NOT_ATTACHED: Final = "lifecycle.not_attached"
INTERNAL_ERROR: Final = "lifecycle.internal_error"
FEATURE_UNAVAILABLE: Final = "lifecycle.feature_unavailable"
STALLED: Final = "lifecycle.loop_stalled"
STALLED_OVER: Final = "lifecycle.loop_recovered"
HANGS: Final = "lifecycle.process_hangs"
WHERE: Final = "lifecycle.process_hangs_here"
TIGHT: Final = "lifecycle.times_are_tight"
THREADS: Final = "lifecycle.jobs_in_threads"
SUCCESSOR_SENT: Final = "lifecycle.successor_sent"
NO_SUCCESSOR: Final = "lifecycle.no_successor"
GRACE_CUT: Final = "lifecycle.grace_cut"
IDLE_PROCESS_DIED: Final = "lifecycle.idle_process_died"


def _standard_logger() -> logging.Logger:
    # structlog's factory sets the logger class of the whole process for the sake of right call
    # sites; ours alone shall have it
    before = logging.getLoggerClass()
    try:
        return structlog.stdlib.LoggerFactory()(LOGGER_NAME)
    finally:
        logging.setLoggerClass(before)


log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
    _standard_logger(),
    processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
    wrapper_class=structlog.stdlib.BoundLogger,
    context_class=dict,
)


def exit_fields(record: ExitRecord) -> dict[str, str | bool]:
    """The fields of an ending that may be logged."""
    detail_key = PRIVATE_DETAIL if record.has_free_text else "detail"
    return {
        "job_id": record.job_id,
        "agent_name": record.agent_name,
        "exit": record.exit.value,
        "reason": record.reason,
        "next": record.next,
        "published": record.published,
        **({detail_key: record.detail} if record.detail else {}),
    }
