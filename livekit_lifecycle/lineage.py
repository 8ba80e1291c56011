"""What an agent hands down to the one that is dispatched after it: in the dispatch's metadata.

A dispatch is the only thing of a job that outlives its worker, so this is where crashes are
counted. The app's own metadata stays as it is: what is handed down comes after it, on a line of its
own that the app never sees.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from .options import RestartPolicy

_MARK: Final = "\nlivekit_lifecycle: "


@dataclass(frozen=True)
class Lineage:
    """Where an agent comes from.

    Attributes:
        previous: Job id of the instance that it takes over from; empty for none.
        crashes: When those before it crashed, Unix times in seconds.
    """

    previous: str = ""
    crashes: tuple[float, ...] = ()

    def after_crash(self, policy: RestartPolicy, job_id: str, now: float) -> Lineage | None:
        """What a successor is handed down; None after too many crashes.

        Args:
            policy: How many are too many.
            job_id: Of the instance that crashed.
            now: Unix time in seconds.
        """
        recent = tuple(at for at in self.crashes if now - at < policy.within)
        if len(recent) >= policy.max_restarts:
            return None
        return Lineage(job_id, (*recent, now))


def split_metadata(metadata: str) -> tuple[str, Lineage]:
    """Return the app's own metadata and what was handed down. Never raises."""
    own, mark, handed = metadata.rpartition(_MARK)
    if not mark:
        return metadata, Lineage()
    try:
        fields = json.loads(handed)
        crashes = tuple(float(at) for at in fields["crashes"])
        return own, Lineage(str(fields["previous"]), crashes)
    except (ValueError, TypeError, KeyError):
        return metadata, Lineage()  # the app's own after all


def join_metadata(metadata: str, lineage: Lineage) -> str:
    """Return metadata for a dispatch. ``split_metadata`` is the way back.

    Args:
        metadata: The app's own.
        lineage: What is handed down.
    """
    return f"{metadata}{_MARK}{json.dumps(asdict(lineage))}"
