"""LiveKit's server with the lifecycle in it: a drop-in for ``AgentServer``."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast, overload

from livekit.agents import AgentServer, JobRequest
from livekit.agents.types import NOT_GIVEN, NotGivenOr
from livekit.agents.utils import is_given

from . import _compat
from ._arguments import ServerArguments, SessionArguments
from ._log import ARMED, INTERNAL_ERROR, KEY_RESERVED, TIGHT, log
from ._plugin import register_plugin
from .budget import ServerTimes, check_budget
from .contract import PREFIX, will_attributes
from .entrypoint import Entrypoint, ManagedEntrypoint, ManagedSessionEnd
from .lineage import Lineage, join_metadata, split_metadata
from .options import LifecycleOptions
from .worker import WorkerLifecycle

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LifecycleServer(AgentServer):
    """LiveKit's ``AgentServer``, whose agents tell everyone how they leave.

    A drop-in: every argument, method and way of starting of ``AgentServer`` is as before.

    Args:
        lifecycle: Settings of the lifecycle; the defaults fit most agents.
        **arguments: Every argument of ``AgentServer``.

    Raises:
        TypeError: ``lifecycle`` is not a `LifecycleOptions`, or an argument is not LiveKit's.
        ValueError: The lifecycle's times and the server's can't work together.

    Example:
        ```python
        server = LifecycleServer()


        @server.rtc_session(agent_name="front-desk")
        async def front_desk(ctx: JobContext) -> None: ...
        ```
    """

    def __init__(
        self, *, lifecycle: LifecycleOptions | None = None, **arguments: Unpack[ServerArguments]
    ) -> None:
        """See the class."""
        if not isinstance(lifecycle, (LifecycleOptions, type(None))):
            msg = f"lifecycle is {lifecycle!r}; it must be a LifecycleOptions"
            raise TypeError(msg)
        register_plugin()
        super().__init__(**arguments)
        self._lifecycle = lifecycle or LifecycleOptions()
        self._worker: WorkerLifecycle | None = None
        proxy = arguments.get("http_proxy", NOT_GIVEN)
        self._proxy = proxy if is_given(proxy) else None
        self._given = frozenset(arguments)
        check_budget(self._lifecycle, self._times())
        self.on("worker_started", self._start_worker_half)

    @overload
    def rtc_session(
        self, func: Entrypoint, **arguments: Unpack[SessionArguments]
    ) -> Entrypoint: ...

    @overload
    def rtc_session(
        self, func: None = None, **arguments: Unpack[SessionArguments]
    ) -> Callable[[Entrypoint], Entrypoint]: ...

    def rtc_session(
        self, func: Entrypoint | None = None, **arguments: Unpack[SessionArguments]
    ) -> Entrypoint | Callable[[Entrypoint], Entrypoint]:
        """Register the entrypoint, as ``AgentServer.rtc_session`` does, under the lifecycle.

        Args:
            func: The entrypoint; without one a decorator is returned.
            **arguments: Those of ``AgentServer.rtc_session``. The app's own ``on_request`` and
                ``on_session_end`` are called as before.

        Returns:
            What LiveKit's own returns: the app's function, unchanged.
        """
        arguments["on_request"] = ArmedRequest(arguments.get("on_request"))
        arguments["on_session_end"] = ManagedSessionEnd(arguments.get("on_session_end"))

        def register(entrypoint: Entrypoint) -> Entrypoint:
            options = self._lifecycle.for_job()
            if isinstance(entrypoint, ManagedEntrypoint):
                wrapped = entrypoint
                wrapped.adopt(options)
            else:
                wrapped = ManagedEntrypoint(entrypoint, options, relay=True)
            AgentServer.rtc_session(self, wrapped, **arguments)
            return entrypoint

        return register(func) if func is not None else register

    async def drain(self, timeout: NotGivenOr[int | None] = NOT_GIVEN) -> None:
        """Let running jobs finish, as ``AgentServer.drain`` does, and tell everyone about it.

        Args:
            timeout: Seconds until it gives up, None for never. Where not given: the server's
                ``drain_timeout``, or less if ``DrainOptions.kill_grace`` asks for it.

        Raises:
            asyncio.TimeoutError: Jobs were left. They have been told that they are cut off.
        """
        worker = self._worker
        if worker is None or self.draining:
            await super().drain(timeout)
            return
        if is_given(timeout):
            seconds = float(timeout or 0)
        else:
            seconds = self._lifecycle.drain_seconds(self._times().drain_timeout)
        worker.announce_drain(seconds)
        try:
            # LiveKit takes whole seconds by its annotation and any number in fact
            await super().drain(cast("int | None", seconds or None))
        except asyncio.TimeoutError:
            await worker.stop_jobs("drain_timeout")
            raise

    async def aclose(self) -> None:
        """Close the worker, as ``AgentServer.aclose`` does; jobs that still run are told why."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop_jobs("shutdown")
        await super().aclose()
        if worker is not None:
            await worker.aclose()

    def _times(self) -> ServerTimes:
        return ServerTimes(**_compat.server_times(self), given=self._given)

    def _tell_tight_times(self) -> None:
        # not in the constructor, which runs in each job's process too; and the command line may
        # have changed a time since then
        try:
            tight = check_budget(self._lifecycle, self._times())
        except ValueError as error:
            tight = [str(error)]
        for sentence in tight:
            log.warning(TIGHT, why=sentence)

    def _start_worker_half(self) -> None:
        try:
            self._tell_tight_times()
            self._worker = WorkerLifecycle(self, self._lifecycle, self._proxy)
        except Exception as error:  # noqa: BLE001 - the worker goes on without us
            log.warning(INTERNAL_ERROR, error=type(error).__name__)


class ArmedRequest:
    """The app's own ``on_request``, with the last will in whatever it accepts."""

    def __init__(self, on_request: Callable[[JobRequest], Any] | None) -> None:
        self._on_request = on_request
        if on_request is not None:
            functools.update_wrapper(self, on_request)

    async def __call__(self, request: JobRequest) -> None:
        """Answer a job request."""
        accept = request.accept
        # the app's hook sees its own metadata, the job is given what was handed down as well
        request.job.metadata, lineage = split_metadata(request.job.metadata)

        @functools.wraps(accept)
        async def armed(*, attributes: dict[str, str] | None = None, **arguments: Any) -> None:
            will = will_attributes(request.id, lineage.previous)
            if lineage != Lineage():
                request.job.metadata = join_metadata(request.job.metadata, lineage)
            await accept(attributes={**_without_ours(attributes or {}), **will}, **arguments)
            log.info(ARMED, job_id=request.id, agent_name=request.agent_name)

        request.accept = armed  # type: ignore[method-assign]
        if self._on_request is None:
            await request.accept()
        else:
            await self._on_request(request)


def _without_ours(attributes: dict[str, str]) -> dict[str, str]:
    reserved = sorted(key for key in attributes if key.startswith(PREFIX))
    if reserved:
        log.warning(KEY_RESERVED, keys=",".join(reserved), reserved_prefix=PREFIX)
    return {key: value for key, value in attributes.items() if key not in reserved}
