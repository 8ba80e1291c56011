"""One job: what happens in it becomes evidence, what is known becomes attributes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from weakref import WeakKeyDictionary

from livekit import rtc
from livekit.agents import JobContext, get_job_context

from . import _compat
from ._context import ContextHooks
from ._hooks import Hooks
from ._log import EXIT, INTERNAL_ERROR, STATE, exit_fields, log
from ._tasks import Tasks
from ._voice import Voice, has_credentials
from ._watch import is_agent
from ._watchdog import Watchdog, tell_where_it_hangs
from .attendance import reason_name
from .classify import (
    AppClaimed,
    EntrypointRaised,
    Evidence,
    JobTerminated,
    ProcessEnded,
    Replaced,
    RoomLeft,
    ShutdownCalled,
    WorkerDied,
    WorkerStopped,
    with_successor,
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
)
from .ending import ROOM_SETTLE, TERMINATION_SETTLE, Ending
from .lineage import split_metadata
from .options import CUT_MARGIN, LifecycleOptions
from .sessions import Sessions
from .telemetry import mark_span

if TYPE_CHECKING:
    from .succession import Succession

Event = Literal["draining", "last_words", "waiting", "returned", "limit_warning", "exit"]
EVENTS: Final[tuple[Event, ...]] = get_args(Event)

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
        self._job_id = ctx.job.id
        self._options = options
        self._send = _compat.open_relay() if relay else None
        self._voice = Voice(ctx, options.publish_timeout)
        self._ending = Ending(
            publish=lambda exit_: self._voice.publish(exit_attributes(exit_)),
            decided=self._guarded(self._on_decided),
            complete=self._plan_successor,
        )
        self._metadata = ctx.job.metadata
        self._succession: Succession | None = None
        self._record: ExitRecord | None = None
        self._state = State.STARTING
        self._sessions: Sessions | None = None
        self._watchdog: Watchdog | None = None
        self._drain_at: float | None = None
        self._tasks = Tasks()
        self._hooks = Hooks[Event](EVENTS, self._tasks, options.hook_timeout)
        self._context = ContextHooks(ctx)
        self._shutdown = self._context.shutdown

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
                Unix time in seconds by which the agent will be gone. ``"last_words"``: the call is
                about to be ended because of that (``DrainOptions.end_before``); the callback is
                given the Unix time in seconds by which it has to be done, may say a last
                sentence, and the call goes on until it returns. ``"waiting"``: the user is
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
        happened = {"draining": self._drain_at, "exit": self._record}.get(event)
        self._hooks.add(event, callback, happened)

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
            _lifecycles[ctx] = self
            return  # no room and no client: console mode, simulations
        if _compat.is_job_process():
            _compat.protect_job_process()
            _compat.on_stack_dump(tell_where_it_hangs(self._job_id))
        ctx.job.metadata, _ = split_metadata(self._metadata)
        room.on("connection_state_changed", self._guarded(self._on_connection_state))
        room.on("disconnected", self._guarded(self._on_disconnected))
        room.on("participant_attributes_changed", self._guarded(self._on_attributes))
        room.on("participant_connected", self._guarded(self._on_participant_joined))
        self._sessions = Sessions(
            ctx,
            ends=self._claim,
            closed=lambda: self._tasks.spawn(self._leave_after_sessions()),
            show=self._show,
            tell=self._hooks.run,
            draining=lambda: self._drain_at is not None,
            guarded=self._guarded,
        )
        _compat.on_job_shutdown(ctx, self._guarded(self._on_job_shutdown))
        self._context.wrap(
            ends=self._app_ends,
            settled=self.settled,
            keeps_room=self._hands_over,
            # a session adds its own when it starts, before it connects to the room
            callback_added=self._guarded(self._sessions.look),
        )
        if self._options.stall_after is not None:
            self._watchdog = Watchdog(
                self._options.stall_after,
                job_id=ctx.job.id,
                stalled=self._voice.tell_stalled,
                recovered=lambda: self._voice.post(stalled_attributes(None)),
            )
        # runs when the room is gone; the framework waits for it, so hooks are not cut off
        ctx.add_shutdown_callback(self._finish_hooks)
        self._tasks.spawn(self._outlive_worker())
        _lifecycles[ctx] = self
        self._tell_worker("watched", {"job_id": self._job_id})

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
        if self._sessions is not None:
            self._guarded(self._sessions.look)()

    async def settled(self) -> None:
        """Wait until the exit is out, or can't be any more."""
        await self._ending.wait_done(self._options.publish_timeout + ROOM_SETTLE)

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

    def _app_ends(self, text: str) -> None:
        self._claim(ShutdownCalled(text, draining=self._drain_at is not None))

    def _hands_over(self) -> bool:
        claimed = self._ending.claimed
        return claimed is not None and claimed.reason == Reason.HANDOFF

    def _on_job_shutdown(self, shutdown: _compat.JobShutdown) -> None:
        if shutdown.marked == "drain_timeout":
            self._claim(WorkerStopped("drain_timeout"))
        elif shutdown.marked:
            self._claim(WorkerStopped("shutdown"))
        elif shutdown.by_app:
            self._app_ends(shutdown.reason)
        else:
            self._claim(JobTerminated())

    # -- what happens in the room ------------------------------------------------------------------

    def _on_connection_state(self, state: rtc.ConnectionState.ValueType) -> None:
        if state != rtc.ConnectionState.CONN_CONNECTED:
            return
        me = self._room.local_participant
        if self._record is not None:
            # decided while the agent was on its way in, when nobody could be told
            self._voice.post(exit_attributes(self._record, self._state))
        elif not parse(me.attributes).managed:
            self._voice.post(state_attributes(self._state))
        self._tell_worker("joined", {"job_id": self._job_id})
        self._on_attributes(me.attributes, me)
        for one in self._room.remote_participants.values():
            self._look_for_successor(one)
        if self._options.one_per_room:
            self._tasks.spawn(self._make_way_for_elders())

    def _on_disconnected(self, reason: rtc.DisconnectReason.ValueType) -> None:
        self._ending.left_room()
        self._claim(RoomLeft(reason_name(reason)))

    def _on_attributes(self, changed: Mapping[str, str], participant: rtc.Participant) -> None:
        if participant is not self._room.local_participant:
            return
        drain_ms = parse(participant.attributes).drain_ms
        if KEY_DRAIN in changed and drain_ms is not None and self._drain_at is None:
            self._drain_at = drain_ms / 1000
            self._hooks.run("draining", self._drain_at)
            if self._options.drain.end_before is not None:
                at = self._drain_at - self._options.drain.end_before
                self._tasks.spawn(self._end_in_time(at, self._drain_at))

    def _on_participant_joined(self, one: rtc.RemoteParticipant) -> None:
        self._look_for_successor(one)
        if self._options.one_per_room:
            # one that was here first may be told of only now: joins without a track come in batches
            self._tasks.spawn(self._make_way_for_elders())

    def _look_for_successor(self, one: rtc.RemoteParticipant) -> None:
        status = parse(one.attributes)
        takes_over = status.previous == self._job_id and status.exit is None
        if takes_over and is_agent(one.kind, one.attributes):
            # we were taken for dead, and somebody was sent in our place
            self._tasks.spawn(self._make_way(Replaced("successor")))

    # -- the ending --------------------------------------------------------------------------------

    def _claim(self, evidence: Evidence) -> None:
        self._guarded(self._ending.claim)(evidence)

    async def _plan_successor(self, exit_: AgentExit) -> AgentExit:
        policy = self._options.restart
        if exit_.intentional or policy is None or not has_credentials():
            return exit_
        from .succession import Succession  # noqa: PLC0415 - off, unless asked for

        self._succession = Succession(self._ctx.api, self._ctx.job, self._metadata, policy)
        planned = await self._succession.plan(self._options.publish_timeout)
        return with_successor(exit_) if planned else exit_

    def _on_decided(self, exit_: AgentExit, published: bool) -> None:  # noqa: FBT001 - a callback
        self._state = State.CLOSING
        if self._sessions is not None:
            self._sessions.aclose()
        if self._watchdog is not None:
            self._watchdog.stop()
        self._record = record = ExitRecord(
            **asdict(exit_),
            job_id=self._job_id,
            room=self._ctx.job.room.name,
            agent_name=self._ctx.job.agent_name,
            identity=self._ctx.local_participant_identity,
            at=time.time(),
            published=published,
        )
        log.info(EXIT, **exit_fields(record))
        mark_span(record)
        self._tell_worker("exit", asdict(record))
        self._hooks.run("exit", record)
        self._tasks.spawn(self._leave_within(self._closing_seconds(record)))

    def _closing_seconds(self, record: ExitRecord) -> float | None:
        if record.reason != Reason.DRAIN or record.detail == "wrapped_up":
            return self._options.closing_timeout
        # after a cut the deadline that everyone was told has passed: don't wait for the entrypoint
        left = (self._drain_at or 0) - CUT_MARGIN - time.time()
        return max(self._options.leave_after or 0, left)

    async def _leave_after_sessions(self) -> None:
        await self.settled()
        self._state = State.CLOSED
        if self._record is not None:
            self._voice.post(exit_attributes(self._record, State.CLOSED))
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

    async def _make_way_for_elders(self) -> None:
        from .guard import has_to_leave  # noqa: PLC0415 - who does not ask for it, does not pay

        if await has_to_leave(self._room, self._ctx.job.agent_name):
            await self._make_way(Replaced("duplicate_agent"))

    async def _make_way(self, evidence: Replaced) -> None:
        self._claim(evidence)
        await self.settled()
        self._shutdown(Reason.REPLACED.value)
        await self._leave()  # ahead of an entrypoint that waits, for which the framework waits

    async def _end_in_time(self, at: float, deadline: float) -> None:
        await asyncio.sleep(max(0.0, at - time.time()))
        if self._ending.claimed is not None:
            return
        self._claim(WorkerStopped("drain_timeout"))
        await self.settled()
        until = deadline - self._options.cut_seconds
        self._hooks.run("last_words", until, until - time.time())
        await self._hooks.wait(until - time.time())
        self._shutdown(Reason.DRAIN.value)
        await self._leave_within(self._options.leave_after)

    async def _leave(self) -> None:
        crashed = self._record is not None and not self._record.intentional
        reason = (
            rtc.DisconnectReason.AGENT_ERROR if crashed else rtc.DisconnectReason.CLIENT_INITIATED
        )
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(
                self._context.disconnect(reason=reason), self._options.publish_timeout
            )

    async def _outlive_worker(self) -> None:
        # When its worker dies, the framework cancels all tasks of a job: then it has to speak up.
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self._ending.done and _compat.worker_is_gone():
                self._claim(WorkerDied())
                self._voice.expect_no_echo()
                await self._ending.finish_now()
                if self._succession is not None:  # which else the worker sees to
                    await self._succession.dispatch(self._options.publish_timeout)
                with contextlib.suppress(asyncio.CancelledError):  # of the room's own task
                    await self._leave()
                await self._finish_hooks("")
            raise

    async def _finish_hooks(self, _reason: str) -> None:
        await self._hooks.wait(self._options.hook_timeout)

    # -- small things ------------------------------------------------------------------------------

    def _show(self, state: State, deadline: float | None) -> None:
        if self._ending.claimed is not None:
            return
        self._state = state
        log.debug(STATE, job_id=self._job_id, state=state.value)
        if deadline is None:
            self._voice.post(state_attributes(state))
        else:
            window = max(0.0, deadline - time.time())
            self._voice.post(state_attributes(state, round(deadline * 1000), round(window * 1000)))

    def _tell_worker(self, kind: str, body: Mapping[str, object]) -> None:
        if self._send is not None:
            self._send(json.dumps({kind: body}))

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """Wrap a handler of ours, so that a fault in it is one warning and nothing else."""

        @functools.wraps(function)
        def guarded(*args: Any) -> None:
            try:
                function(*args)
            except Exception as error:  # noqa: BLE001 - the user's call goes on without us
                log.warning(INTERNAL_ERROR, handler=function.__name__, error=type(error).__name__)

        return guarded
