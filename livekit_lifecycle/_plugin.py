"""Registers with LiveKit as a plugin, which has its version logged and its module preloaded."""

from __future__ import annotations

import logging
import threading

from livekit.agents import Plugin

from ._log import LOGGER_NAME
from ._version import __version__


class LifecyclePlugin(Plugin):
    """What LiveKit knows of us."""

    def __init__(self) -> None:
        # The package that LiveKit's forkserver preloads. A SIGTERM to the whole process group, as
        # systemd sends it, would kill the forkserver too, and with it the framework takes every
        # living job for dead: what is preloaded makes it ignore that.
        package = f"{__package__}._forkserver"
        super().__init__("livekit_lifecycle", __version__, package, logging.getLogger(LOGGER_NAME))


def register_plugin() -> None:
    """Register once. LiveKit takes plugins on the main thread only; elsewhere we do without."""
    if threading.current_thread() is threading.main_thread() and not any(
        isinstance(plugin, LifecyclePlugin) for plugin in Plugin.registered_plugins
    ):
        Plugin.register_plugin(LifecyclePlugin())
