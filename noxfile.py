"""The supported Pythons and the lowest and newest livekit-agents: ``nox``, or one with ``-s``."""

from __future__ import annotations

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
LOWEST, NEWEST = "livekit-agents==1.8.6", "livekit-agents>=1.8.6,<1.9"
FAST = ("tests/unit", "tests/property", "tests/contract")
MAIN = tuple(
    f"tests/integration/test_{name}.py" for name in ("goodbyes", "crashes", "hangs", "restart")
)

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["fast", "lowest"]


def install(session: nox.Session, livekit_agents: str) -> None:
    """The package and what its tests need."""
    session.install("--upgrade", "pip")
    session.install("--editable", ".", "--group", "test", livekit_agents)


@nox.session(python=PYTHONS)
def fast(session: nox.Session) -> None:
    """What needs no server, on every Python."""
    install(session, NEWEST)
    session.run("python", "-m", "pytest", *FAST, *session.posargs)


@nox.session(python="3.10")
def lowest(session: nox.Session) -> None:
    """The lowest livekit-agents on the lowest Python, with the main endings on a real server."""
    install(session, LOWEST)
    session.run("python", "-m", "pytest", *FAST, *MAIN, *session.posargs)
