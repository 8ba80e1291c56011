"""One job: what happens in it becomes evidence, what is known becomes attributes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from livekit import api, rtc
from livekit.agents import AgentSession, JobContext, get_job_context

from . import _compat
from ._hooks import run_hook
from ._log import EXIT, INTERNAL_ERROR, STATE, exit_fields, log
from ._publish import Publisher
from ._watchdog import Watchdog
from .attendance import Attendance
from .classify import (
    AppClaimed,
    DuplicateAgent,
    EntrypointRaised,
    Evidence,
    JobTerminated,
    ProcessEnded,
    RoomLeft,
    SessionClosed,
    ShutdownCalled,
    WorkerDied,
    WorkerStopped,
)
from .contract import (
    KEY_DRAIN,
    AgentExit,
    ExitRecord,
    Reason,
    State,
    exit_attributes,
    parse,
    stalled_attributes,
    state_attributes,
    will_attributes,
)
from .ending import TERMINATION_SETTLE, Ending
from .options import LifecycleOptions, check_callback
from .telemetry import mark_span

Event = Literal["draining", "waiting", "returned", "limit_warning", "exit"]
EVENTS: Final[tuple[Event, ...]] = ("draining", "waiting", "returned", "limit_warning", "exit")

_lifecycles: WeakKeyDictionary[JobContext, JobLifecycle] = WeakKeyDictionary()


def find_lifecycle(ctx: JobContext) -> JobLifecycle | None:
    """The lifecycle of a job, if it has one."""
    return _lifecycles.get(ctx)


def get_lifecycle() -> JobLifecycle:
    """Return the lifecycle of the job that this code runs in.

    Raises:
        RuntimeError: Outside of a job, or in a job whose entrypoint is not managed.
    """
    lifecycle = find_lifecycle(get_job_context())
    if lifecycle is None:
        msg = (
            "this job has no lifecycle: use LifecycleServer instead of AgentServer, "
            "or put @managed under @server.rtc_session()"
        )
        raise RuntimeError(msg)
    return lifecycle


class JobLifecycle:
    """The lifecycle of one job, got by `get_lifecycle`."""

    def __init__(self, ctx: JobContext, options: LifecycleOptions, *, relay: bool) -> None:
        """Not for apps; see `get_lifecycle`."""
        self._ctx = ctx
        self._room = ctx.room
        self._options = options
        self._relay = relay
        # nobody sees the attributes of a hidden agent; its ending still is logged and told to hooks
        self._silent = not ctx.is_fake_job() and _is_hidden(ctx)
        self._publisher = Publisher(
            ctx.room,
            timeout=options.publish_timeout,
            server_write=self._server_write if _has_credentials() else None,
        )
        self._ending = Ending(publish=self._publish_exit, decided=self._guarded(self._on_decided))
        self._record: ExitRecord | None = None
        self._state = State.STARTING
        self._session: AgentSession[Any] | None = None
        self._attendance: Attendance | None = None
        self._watchdog: Watchdog | None = None
        self._user_left = ""
        self._drain_at: float | None = None
        self._hooks: dict[Event, list[Callable[[Any], object]]] = {name: [] for name in EVENTS}
        self._tasks: set[asyncio.Task[None]] = set()
        # what these do before they are wrapped
        self._shutdown = ctx.shutdown
        self._disconnect = ctx.room.disconnect
        _lifecycles[ctx] = self

    # -- for apps ----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What the agent does for its user now, as clients see it."""
        return self._state

    @property
    def exit(self) -> ExitRecord | None:
        """How this job ended; None until that is decided and was written, if it could be."""
        return self._record

    @property
    def draining_until(self) -> float | None:
        """When the worker will be gone, Unix time in seconds; None while it is not told to stop."""
        return self._drain_at

    def on(self, event: Event, callback: Callable[[Any], object]) -> None:
        """Call ``callback`` at an event of this job.

        Args:
            event: ``"draining"``: the worker has been told to stop; the callback is given the
                Unix time in seconds by which the agent will be gone. ``"waiting"``: the user is
                away; it is given the Unix time in seconds at which the grace ends, None if it
                does not. ``"returned"``: somebody is there again, a `Returned`.
                ``"limit_warning"``: a limit is about to fall due, a `LimitWarning` with the Unix
                time in seconds. ``"exit"``: the ending is decided and published, an `ExitRecord`.
                A drain or an exit that has happened already is told at once.
            callback: Of one argument, sync or async. It runs in the job's event loop, bounded by
                ``LifecycleOptions.hook_timeout``; what it raises is one warning.

        Raises:
            ValueError: There is no such event.
            TypeError: The callback can't be called with one argument.
        """
        if event not in EVENTS:
            msg = f"there is no event {event!r}; there are: {', '.join(EVENTS)}"
            raise ValueError(msg)
        check_callback(f"the callback for {event!r}", callback)
        self._hooks[event].append(callback)
        happened = {"draining": self._drain_at, "exit": self._record}.get(event)
        if happened is not None:
            self._run_hooks(event, happened, [callback])

    def end(
        self,
        detail: str = "",
        *,
        next: Literal["end", "wait", "rejoin"] = "end",  # noqa: A002 - the contract's own word
    ) -> None:
        """End the job as ``completed``: the session closes and the agent leaves.

        Args:
            detail: A short text of the app's own; the first 128 bytes of it are published. Not
                for anything a user said.
            next: What clients should do afterwards.
        """
        self._claim(AppClaimed("completed", detail, next))
        self._shutdown(detail or Reason.COMPLETED.value)

    def handoff(self, detail: str = "") -> None:
        """End the job as ``handoff``: the agent leaves, the conversation goes on with others.

        The room stays, also where the session's options say to delete it.

        Args:
            detail: A short text of the app's own; the first 128 bytes of it are published.
        """
        self._claim(AppClaimed("handoff", detail))
        self._shutdown(detail or Reason.HANDOFF.value)

    # -- for the entrypoint's wrapper --------------------------------------------------------------

    def attach(self) -> None:
        """Hook into the job's context and room, before the app's entrypoint runs."""
        ctx, room = self._ctx, self._room
        if ctx.is_fake_job():
            return  # no room and no client: console mode, simulations
        if _compat.is_job_process():
            _compat.protect_job_process()
        room.on("connection_state_changed", self._guarded(self._on_connection_state))
        room.on("disconnected", self._guarded(self._on_disconnected))
        room.on("participant_attributes_changed", self._guarded(self._on_attributes))
        room.on("participant_disconnected", self._guarded(self._on_participant_left))
        if self._options.one_per_room:
            room.on("participant_connected", self._guarded(self._on_participant_joined))
        _compat.on_job_shutdown(ctx, self._guarded(self._on_job_shutdown))
        self._wrap_context()
        if self._options.stall_after is not None:
            self._watchdog = Watchdog(
                self._options.stall_after,
                job_id=ctx.job.id,
                stalled=self._tell_stalled,
                recovered=lambda: self._post(stalled_attributes(None)),
            )
        # runs when the room is gone; the framework waits for it, so hooks are not cut off
        ctx.add_shutdown_callback(self._finish_hooks)
        self._spawn(self._outlive_worker())

    async def entrypoint_raised(self, error: BaseException) -> None:
        """The app's entrypoint raised."""
        if not self._room.isconnected():
            # what waits for something of a room raises when that room is gone, and LiveKit's word
            # for how it went follows in the same moment: then that is the cause
            await self._ending.wait_out_of_room(TERMINATION_SETTLE)
            if self._ending.out_of_room:
                return
        if isinstance(error, SystemExit):
            self._claim(ProcessEnded(error.code if isinstance(error.code, int) else 1))
        else:
            self._claim(EntrypointRaised(type(error).__name__))

    def entrypoint_returned(self) -> None:
        """The app's entrypoint returned; its session usually goes on."""
        self._guarded(self._look_for_session)()

    async def settled(self) -> None:
        """Wait until the exit is out, or can't be any more."""
        await self._ending.wait_done(self._options.publish_timeout + TERMINATION_SETTLE)

    async def before_session_end(self) -> None:
        """The framework is about to leave the room: the exit has to be out by then."""
        if not self._ctx.is_fake_job():
            self._claim(JobTerminated())  # the weakest of all claims, for want of any other
            await self.settled()

    async def after_session_end(self) -> None:
        """The app's own ``on_session_end`` is done: a crash leaves with LiveKit's AGENT_ERROR."""
        if self._record is not None and not self._record.intentional:
            await self._leave()

    # -- where an ending begins --------------------------------------------------------------------

    def _wrap_context(self) -> None:
        # Instances, never LiveKit's classes: what an app calls on its own context is where an
        # ending begins, before anything public fires.
        ctx, room = self._ctx, self._room
        delete_room, add_shutdown_callback = ctx.delete_room, ctx.add_shutdown_callback

        @functools.wraps(ctx.shutdown)
        def shutdown(reason: str = "user requested") -> None:
            self._claim(ShutdownCalled(reason, draining=self._drain_at is not None))
            self._shutdown(reason)

        @functools.wraps(delete_room)
        def delete(room_name: str | None = None) -> asyncio.Future[api.DeleteRoomResponse]:
            if room_name in (None, "", ctx.job.room.name):
                return self._delete_own_room(lambda: delete_room(room_name))
            return delete_room(room_name)

        @functools.wraps(add_shutdown_callback)
        def add(callback: Callable[..., Any]) -> None:
            add_shutdown_callback(callback)
            # a session adds its own when it starts, before it connects to the room
            self._guarded(self._look_for_session)()

        @functools.wraps(room.disconnect)
        async def disconnect(**kwargs: Any) -> None:
            if room.isconnected():
                self._claim(ShutdownCalled(draining=self._drain_at is not None))
                await self.settled()
            await self._disconnect(**kwargs)

        ctx.shutdown = shutdown  # type: ignore[method-assign]
        ctx.delete_room = delete  # type: ignore[method-assign]
        ctx.add_shutdown_callback = add  # type: ignore[method-assign]
        room.disconnect = disconnect  # type: ignore[method-assign]

    def _delete_own_room(
        self, delete: Callable[[], asyncio.Future[api.DeleteRoomResponse]]
    ) -> asyncio.Future[api.DeleteRoomResponse]:
        claimed = self._ending.claimed
        if claimed is not None and claimed.reason == Reason.HANDOFF:
            kept: asyncio.Future[api.DeleteRoomResponse] = asyncio.Future()
            kept.set_result(api.DeleteRoomResponse())
            return kept
        self._claim(ShutdownCalled(draining=self._drain_at is not None))
        if self._ending.done:
            return delete()

        async def once_the_exit_is_out() -> api.DeleteRoomResponse:
            await self.settled()
            return await delete()

        return asyncio.ensure_future(once_the_exit_is_out())

    def _look_for_session(self) -> None:
        if self._session is not None:
            return
        with contextlib.suppress(RuntimeError):  # LiveKit's word for "none was started"
            # LiveKit leaves the type of the app's own data open
            session: AgentSession[Any] = self._ctx.primary_session  # pyright: ignore[reportUnknownVariableType]
            self._session = session
            session.on("close", self._guarded(self._on_session_closed))
            _compat.on_session_closing(session, self._guarded(self._on_session_closing))
            self._attendance = Attendance(
                self._room,
                session,
                _compat.session_options(session),
                show=self._show,
                tell=self._tell_app,
                end=self._end_session,
                guarded=self._guarded,
            )

    def _on_job_shutdown(self, shutdown: _compat.JobShutdown) -> None:
        if shutdown.marked == "drain_timeout":
            self._claim(WorkerStopped("drain_timeout"))
        elif shutdown.marked:
            self._claim(WorkerStopped("shutdown"))
        elif shutdown.by_app:
            self._claim(ShutdownCalled(shutdown.reason, draining=self._drain_at is not None))
        else:
            self._claim(JobTerminated())

    def _on_session_closing(self, cause: str, error: str) -> None:
        draining = self._drain_at is not None
        self._claim(SessionClosed(cause, error=error, user_left=self._user_left, draining=draining))

    def _on_session_closed(self, event: Any) -> None:
        self._on_session_closing(str(event.reason.value), str(getattr(event.error, "type", "")))
        self._spawn(self._leave_after_session())

    # -- what happens in the room ------------------------------------------------------------------

    def _on_connection_state(self, state: rtc.ConnectionState.ValueType) -> None:
        if state != rtc.ConnectionState.CONN_CONNECTED:
            return
        me = self._room.local_participant
        if self._record is not None:
            # decided while the agent was on its way in, when nobody could be told
            self._post(exit_attributes(self._record, self._state))
        elif not parse(me.attributes).managed:
            self._post(state_attributes(self._state))
        self._tell_worker("joined", {"job_id": self._ctx.job.id})
        self._on_attributes(me.attributes, me)
        if self._options.one_per_room:
            self._spawn(self._make_way())

    def _on_disconnected(self, reason: rtc.DisconnectReason.ValueType) -> None:
        self._ending.left_room()
        self._claim(RoomLeft(_reason_name(reason)))

    def _on_attributes(self, changed: Mapping[str, str], participant: rtc.Participant) -> None:
        if participant is not self._room.local_participant:
            return
        drain_ms = parse(participant.attributes).drain_ms
        if KEY_DRAIN in changed and drain_ms is not None and self._drain_at is None:
            self._drain_at = drain_ms / 1000
            self._tell_app("draining", self._drain_at)

    def _on_participant_joined(self, _: rtc.RemoteParticipant) -> None:
        # one that was here first may be told of only now: joins without a track come in batches
        self._spawn(self._make_way())

    def _on_participant_left(self, participant: rtc.RemoteParticipant) -> None:
        # this runs before RoomIO's own handler, so the link still says who it was
        if self._linked_identity() in ("", participant.identity):
            self._user_left = _reason_name(participant.disconnect_reason)

    def _linked_identity(self) -> str:
        with contextlib.suppress(RuntimeError):  # a session without a room, or closed
            if self._session is not None:
                linked = self._session.room_io.linked_participant
                return linked.identity if linked is not None else ""
        return ""

    # -- the ending --------------------------------------------------------------------------------

    def _claim(self, evidence: Evidence) -> None:
        self._guarded(self._ending.claim)(evidence)

    async def _publish_exit(self, exit_: AgentExit) -> bool:
        attributes = self._armed(exit_attributes(exit_))
        return not self._silent and await self._publisher.publish(attributes)

    def _end_session(self, evidence: Evidence) -> None:
        self._claim(evidence)
        if self._session is not None:
            self._session.shutdown(drain=False)

    def _on_decided(self, exit_: AgentExit, published: bool) -> None:  # noqa: FBT001 - a callback
        self._state = State.CLOSING
        if self._attendance is not None:
            self._attendance.aclose()
        if self._watchdog is not None:
            self._watchdog.stop()
        self._record = record = ExitRecord(
            exit=exit_.exit,
            reason=exit_.reason,
            detail=exit_.detail,
            next=exit_.next,
            job_id=self._ctx.job.id,
            room=self._ctx.job.room.name,
            agent_name=self._ctx.job.agent_name,
            identity=self._ctx.local_participant_identity,
            at=time.time(),
            published=published,
        )
        log.info(EXIT, **exit_fields(record))
        mark_span(record)
        self._tell_worker("exit", asdict(record))
        self._tell_app("exit", record)
        cut_off = record.reason == Reason.DRAIN and record.detail != "wrapped_up"
        # after a cut the deadline that everyone was told has passed: don't wait for the entrypoint
        bound = self._options.leave_after if cut_off else self._options.closing_timeout
        self._spawn(self._leave_within(bound))

    async def _leave_after_session(self) -> None:
        await self.settled()
        self._state = State.CLOSED
        if self._record is not None:
            self._post(exit_attributes(self._record, State.CLOSED))
        if self._options.leave_after is not None and self._record is not None:
            self._shutdown(self._record.reason)
            await self._leave_within(self._options.leave_after)

    async def _leave_within(self, seconds: float | None) -> None:
        # the framework leaves by itself, unless the entrypoint or on_session_end takes its time
        if seconds is None:
            return
        await self._ending.wait_out_of_room(seconds)
        may_stay = self._state is State.CLOSED and self._options.leave_after is None
        if not self._ending.out_of_room and not may_stay:
            await self._leave()
            # what hung may never have told the framework: else the job would stay in its worker
            self._shutdown(self._record.reason if self._record is not None else "")

    async def _make_way(self) -> None:
        from .guard import has_to_leave  # noqa: PLC0415 - who does not ask for it, does not pay

        if await has_to_leave(self._room, self._ctx.job.agent_name):
            self._claim(DuplicateAgent())
            await self.settled()
            self._shutdown(Reason.REPLACED.value)
            await self._leave()  # ahead of an entrypoint that waits, for which the framework waits

    async def _leave(self) -> None:
        crashed = self._record is not None and not self._record.intentional
        reason = (
            rtc.DisconnectReason.AGENT_ERROR if crashed else rtc.DisconnectReason.CLIENT_INITIATED
        )
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._disconnect(reason=reason), self._options.publish_timeout)

    async def _outlive_worker(self) -> None:
        # When its worker dies, the framework cancels all tasks of a job: then it has to speak up.
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self._ending.done and _compat.worker_is_gone():
                self._claim(WorkerDied())
                self._publisher.expect_no_echo()
                await self._ending.finish_now()
                with contextlib.suppress(asyncio.CancelledError):  # of the room's own task
                    await self._leave()
                await self._finish_hooks("")
            raise

    async def _finish_hooks(self, _reason: str) -> None:
        hooks = {task for task in self._tasks if task.get_name() == _HOOK_TASK}
        if hooks:
            await asyncio.wait(hooks, timeout=self._options.hook_timeout)

    # -- small things ------------------------------------------------------------------------------

    def _show(self, state: State, deadline: float | None) -> None:
        if self._ending.claimed is not None:
            return
        self._state = state
        log.debug(STATE, job_id=self._ctx.job.id, state=state.value)
        if deadline is None:
            self._post(state_attributes(state))
        else:
            window = max(0.0, deadline - time.time())
            self._post(state_attributes(state, round(deadline * 1000), round(window * 1000)))

    def _post(self, attributes: Mapping[str, str]) -> None:
        if not self._silent:
            self._publisher.post(self._armed(attributes))

    def _armed(self, attributes: Mapping[str, str]) -> Mapping[str, str]:
        """Without a worker half nobody armed the agent: then the first write does."""
        room = self._room
        if room.isconnected() and parse(room.local_participant.attributes).managed:
            return attributes
        return {**will_attributes(self._ctx.job.id), **attributes}

    async def _server_write(self, attributes: Mapping[str, str]) -> None:
        await self._ctx.api.room.update_participant(self._update(attributes))

    async def _tell_stalled(self, since_ms: int) -> None:
        # in the watchdog's thread: our own loop hangs, and its connections with it
        if not self._silent and _has_credentials() and self._room.isconnected():
            async with api.LiveKitAPI() as lkapi:
                write = lkapi.room.update_participant(self._update(stalled_attributes(since_ms)))
                await asyncio.wait_for(write, self._options.publish_timeout)

    def _update(self, attributes: Mapping[str, str]) -> api.UpdateParticipantRequest:
        return api.UpdateParticipantRequest(
            room=self._ctx.job.room.name,
            identity=self._ctx.local_participant_identity,
            attributes=dict(attributes),
        )

    def _tell_worker(self, kind: str, body: Mapping[str, object]) -> None:
        if self._relay:
            _compat.send_to_worker(json.dumps({kind: body}))

    def _tell_app(self, event: Event, argument: object) -> None:
        self._run_hooks(event, argument, self._hooks[event])

    def _run_hooks(
        self, event: Event, argument: object, hooks: list[Callable[[Any], object]]
    ) -> None:
        for hook in hooks:
            coroutine = run_hook(event, hook, argument, timeout=self._options.hook_timeout)
            self._spawn(coroutine, name=_HOOK_TASK)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str = "lifecycle") -> None:
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning(INTERNAL_ERROR, error=type(error).__name__)

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """Wrap a handler of ours, so that a fault in it is one warning and nothing else."""

        @functools.wraps(function)
        def guarded(*args: Any) -> None:
            try:
                function(*args)
            except Exception as error:  # noqa: BLE001 - the user's call goes on without us
                log.warning(INTERNAL_ERROR, handler=function.__name__, error=type(error).__name__)

        return guarded


_HOOK_TASK: Final = "lifecycle_hook"


def _reason_name(reason: rtc.DisconnectReason.ValueType | None) -> str:
    return rtc.DisconnectReason.Name(reason or rtc.DisconnectReason.UNKNOWN_REASON).lower()


def _is_hidden(ctx: JobContext) -> bool:
    claims = ctx.token_claims()
    return bool(claims.video and claims.video.hidden)


def _has_credentials() -> bool:
    return all(os.environ.get(f"LIVEKIT_{name}") for name in ("URL", "API_KEY", "API_SECRET"))
