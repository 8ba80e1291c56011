"""An agent that ends in any way it is told to, by a data message. Needs no models.

The dispatch's metadata says how to run it, as JSON: ``wait`` keeps the entrypoint waiting,
``options`` are fields of RoomOptions, ``on_session_end`` seconds are slept in that hook.
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.config
import math
import os
import signal
import sys
import time
from typing import Any

from livekit import rtc
from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    APIConnectOptions,
    APIError,
    JobContext,
    JobExecutorType,
    JobRequest,
    StopResponse,
    llm,
)
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.voice.agent_session import SessionConnectOptions
from livekit.agents.voice.events import ConversationItemAddedEvent
from livekit.agents.voice.room_io import RoomOptions, TextInputEvent, TextInputOptions

from livekit_lifecycle import (
    DrainOptions,
    ExitRecord,
    JobLifecycle,
    LifecycleOptions,
    LifecycleServer,
    Limits,
    RestartPolicy,
    get_lifecycle,
    presets,
)
from livekit_lifecycle.attendance import reason_name

logger = logging.getLogger("actor")
PLAIN = os.environ.get("ACTOR_PLAIN") == "1"


def on_exit(record: ExitRecord) -> None:
    logger.info(
        "worker_hook",
        extra={
            "job": record.job_id,
            "seen": [record.exit.value, record.reason, record.detail, record.published],
            "at": time.monotonic(),
        },
    )


def on_drain(deadline: float) -> None:
    logger.info("drain_hook", extra={"deadline": deadline, "at": time.monotonic()})


if os.environ.get("ACTOR_UNWATCHED") == "1":

    def attach(self: JobLifecycle) -> None:
        raise LookupError

    JobLifecycle.attach = attach  # type: ignore[method-assign]


def new_logging(_: object = None) -> None:
    logging.config.dictConfig({"version": 1, "root": {"level": "INFO", "handlers": []}})


def make_server() -> AgentServer:
    common: dict[str, Any] = {
        "num_idle_processes": int(os.environ.get("ACTOR_IDLE", "1")),
        "load_fnc": lambda: 0.0,
        # else LiveKit, while it launches a job, may refuse others for the next 2.5 s
        "load_threshold": math.inf,
        "port": 0,
        "host": "127.0.0.1",
        "drain_timeout": int(os.environ.get("ACTOR_DRAIN_TIMEOUT", "3600")),
        "multiprocessing_context": os.environ.get("ACTOR_CONTEXT", "forkserver"),
        "job_executor_type": JobExecutorType(os.environ.get("ACTOR_EXECUTOR", "process")),
        "job_memory_limit_mb": float(os.environ.get("ACTOR_MEMORY_LIMIT", "0")),
    }
    if "ACTOR_SHUTDOWN_TIMEOUT" in os.environ:
        common["shutdown_process_timeout"] = float(os.environ["ACTOR_SHUTDOWN_TIMEOUT"])
    if os.environ.get("ACTOR_NEW_LOGGING") == "1":
        common["setup_fnc"] = new_logging
    if PLAIN:
        return AgentServer(**common)
    options = json.loads(os.environ.get("ACTOR_LIFECYCLE", "{}"))
    for name, kind in (("drain", DrainOptions), ("restart", RestartPolicy)):
        if name in options:
            options[name] = kind(**options[name])
    return LifecycleServer(
        lifecycle=LifecycleOptions(on_exit=on_exit, on_drain=on_drain, **options), **common
    )


server = make_server()


class BrokenLLM(llm.LLM[Any]):
    """Fails each time, as a provider does that is down for good."""

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        parallel_tool_calls: Any = NOT_GIVEN,
        tool_choice: Any = NOT_GIVEN,
        extra_kwargs: Any = NOT_GIVEN,
    ) -> llm.LLMStream:
        return BrokenStream(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class BrokenStream(llm.LLMStream):
    async def _run(self) -> None:
        msg = "no such model"
        raise APIError(msg, retryable=False)


class Echo(Agent):
    """Answers each text with how many it has heard, so that a lost history shows."""

    def __init__(self) -> None:
        super().__init__(instructions="Be brief.")
        self.heard: list[str] = []

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        raise StopResponse


def answer(session: AgentSession[None], event: TextInputEvent) -> None:
    agent = session.current_agent
    assert isinstance(agent, Echo)
    agent.heard.append(event.text)
    logger.info(
        "heard",
        extra={
            "text": event.text,
            "who": event.participant.identity if event.participant else "",
            "count": len(agent.heard),
            "at": time.monotonic(),
        },
    )
    session.history.add_message(role="user", content=event.text)
    session.emit(
        "conversation_item_added",
        ConversationItemAddedEvent(item=session.history.items[-1]),  # type: ignore[arg-type]
    )


async def on_session_end(ctx: JobContext) -> None:
    seconds = float(json.loads(ctx.job.metadata or "{}").get("on_session_end", 0))
    await asyncio.sleep(seconds)
    logger.info("session_end_hook", extra={"job": ctx.job.id, "in_room": ctx.room.isconnected()})


def room_options(how: dict[str, Any]) -> RoomOptions:
    fields = dict(how.get("options", {}))
    if "preset" not in how:
        return RoomOptions(**fields)
    fields["text_input"] = TextInputOptions(text_input_cb=answer)
    if "limits" in how:
        fields["limits"] = Limits(**how["limits"])
    made: RoomOptions = getattr(presets, how["preset"])(**fields)
    return made


async def on_request(request: JobRequest) -> None:
    """Accepts as an app may: under a name of its own, with attributes of its own."""
    logger.info("request_hook", extra={"job": request.id, "metadata": request.job.metadata})
    await request.accept(
        identity=os.environ.get("ACTOR_IDENTITY", ""),
        attributes={"app.mood": "good", **json.loads(os.environ.get("ACTOR_ATTRIBUTES", "{}"))},
    )


class PhoneBoothError(Exception):
    """What the entrypoint raises; its text must never be seen by anyone."""


@server.rtc_session(
    agent_name=os.environ.get("ACTOR_NAME", "actor"),
    on_request=on_request,
    on_session_end=on_session_end,
)
async def entrypoint(ctx: JobContext) -> None:
    how = json.loads(ctx.job.metadata or "{}")
    logger.info("actor_starts", extra={"job": ctx.job.id, "metadata": ctx.job.metadata})
    if how.get("never_joins"):
        return
    if how.get("bad_connect"):
        await ctx.room.connect("ws://127.0.0.1:9", "no token")
    if how.get("new_logging"):
        new_logging()
    if how.get("raise") == "before_connect":
        raise PhoneBoothError("secret text")  # noqa: EM101, TRY003
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session: AgentSession[None] = AgentSession(
        llm=BrokenLLM(),
        conn_options=SessionConnectOptions(
            llm_conn_options=APIConnectOptions(max_retry=0), max_unrecoverable_errors=0
        ),
    )
    watch(ctx, session)
    if how.get("delay_connect"):
        logger.info("actor_waits")
        await asyncio.sleep(float(how["delay_connect"]))
    await ctx.connect()
    ctx.room.on("data_received", act(ctx, session, failed))
    if how.get("session", True):
        await session.start(
            agent=Echo(),
            room=ctx.room,
            room_options=room_options(how),
        )
    if how.get("raise") == "after_start":
        raise PhoneBoothError("secret text")  # noqa: EM101, TRY003
    if how.get("wait"):
        await failed


def watch(ctx: JobContext, session: AgentSession[None]) -> None:
    """Log when the agent itself sees things, on the clock that all processes here share."""

    def left(participant: rtc.RemoteParticipant) -> None:
        logger.info("saw_leave", extra={"who": participant.identity, "at": time.monotonic()})

    def joined(participant: rtc.RemoteParticipant) -> None:
        logger.info("saw_join", extra={"who": participant.identity, "at": time.monotonic()})

    def disconnected(reason: rtc.DisconnectReason.ValueType) -> None:
        logger.info("saw_disconnect", extra={"job": ctx.job.id, "reason": reason_name(reason)})

    def closed(_: Any) -> None:
        logger.info("saw_close", extra={"job": ctx.job.id, "at": time.monotonic()})

    async def shut(reason: str) -> None:
        logger.info("shutdown_callback", extra={"job": ctx.job.id, "why": reason})

    async def never_returns(_: str) -> None:
        logger.info("callback_hangs")
        if hangs == "blocking":
            time.sleep(120)  # noqa: ASYNC251 - as a careless app does
        await asyncio.Event().wait()

    hangs = json.loads(ctx.job.metadata or "{}").get("hang")
    if hangs:
        ctx.add_shutdown_callback(never_returns)
    ctx.room.on("participant_connected", joined)
    ctx.room.on("participant_disconnected", left)
    ctx.room.on("disconnected", disconnected)
    session.on("close", closed)
    ctx.add_shutdown_callback(shut)
    add_callbacks(ctx)
    if not PLAIN and os.environ.get("ACTOR_UNWATCHED") != "1":
        watch_lifecycle(ctx, session)


class Callbacks:
    """Shutdown callbacks of every other shape that LiveKit takes."""

    def __init__(self, job: str) -> None:
        self._job = job

    async def with_reason(self, reason: str) -> None:
        self.log("method", reason)

    async def without_reason(self) -> None:
        self.log("method without a reason")

    async def fails(self) -> None:
        self.log("method that raises")
        raise PhoneBoothError

    def log(self, shape: str, why: str | None = None) -> None:
        logger.info("shutdown_shape", extra={"job": self._job, "shape": shape, "why": why})


def add_callbacks(ctx: JobContext) -> None:
    if not json.loads(ctx.job.metadata or "{}").get("every_shape"):
        return
    callbacks = Callbacks(ctx.job.id)

    async def without_reason() -> None:
        callbacks.log("function without a reason")

    async def with_default(reason: str = "none given") -> None:
        callbacks.log("function with a default", reason)

    ctx.add_shutdown_callback(without_reason)
    ctx.add_shutdown_callback(with_default)
    ctx.add_shutdown_callback(callbacks.with_reason)
    ctx.add_shutdown_callback(callbacks.without_reason)
    ctx.add_shutdown_callback(callbacks.fails)
    ctx.add_shutdown_callback(lambda why: callbacks.with_reason(f"by a lambda: {why}"))
    ctx.add_shutdown_callback(lambda: callbacks.without_reason())


def watch_lifecycle(ctx: JobContext, session: AgentSession[None]) -> None:
    """Log what the job's own hooks are told."""
    lifecycle = get_lifecycle()

    def told(event: str) -> Any:
        def note(argument: Any) -> None:
            extra = {"job": ctx.job.id, "event": event, "what": str(argument)}
            logger.info("grace_hook", extra={**extra, "at": time.monotonic()})

        return note

    def draining(deadline: float) -> None:
        logger.info("draining_hook", extra={"job": ctx.job.id, "deadline": deadline})
        if json.loads(ctx.job.metadata or "{}").get("wrap_up"):
            session.shutdown()

    async def last_words(deadline: float) -> None:
        extra = {"job": ctx.job.id, "left": deadline - time.time(), "at": time.monotonic()}
        logger.info("last_words_hook", extra=extra)
        await asyncio.sleep(float(json.loads(ctx.job.metadata or "{}").get("last_words", 0)))
        logger.info("last_words_said", extra={"job": ctx.job.id, "at": time.monotonic()})

    def exited(record: ExitRecord) -> None:
        logger.info("exit_hook", extra={"job": record.job_id, "reason_seen": record.reason})

    lifecycle.on("waiting", told("waiting"))
    lifecycle.on("returned", told("returned"))
    lifecycle.on("limit_warning", told("limit_warning"))
    lifecycle.on("draining", draining)
    lifecycle.on("last_words", last_words)
    lifecycle.on("exit", exited)


def act(ctx: JobContext, session: AgentSession[None], failed: asyncio.Future[None]) -> Any:
    """The handler of orders: prints who does it and when, then does it."""

    def do(packet: rtc.DataPacket) -> None:
        if packet.topic == "do":
            order = json.loads(packet.data)
            deed = {"message": "deed", "id": order["id"], "job": ctx.job.id, "pid": os.getpid()}
            # not by the log, whose records may still be queued when the process dies of its deed
            line = json.dumps({**deed, "at": time.monotonic()})
            print(f"{line}\n", end="", flush=True)  # noqa: T201 - one write, or lines get mixed
            if "after" in order:
                loop = asyncio.get_running_loop()
                loop.call_later(order["after"], perform, ctx, session, failed, order)
            else:
                perform(ctx, session, failed, order)

    return do


def perform(
    ctx: JobContext, session: AgentSession[None], failed: asyncio.Future[None], order: Any
) -> None:
    what = order.get("act")
    deeds: dict[str, Any] = {
        "shutdown": lambda: ctx.shutdown(order["reason"]) if "reason" in order else ctx.shutdown(),
        "session_shutdown": lambda: session.shutdown(drain=False),
        "session_aclose": lambda: spawn(session.aclose()),
        "delete_room": lambda: ctx.delete_room(),
        "delete_room_and_close": lambda: delete_room_and_close(ctx, session),
        "server_leave": lambda: spawn(
            ctx.room.simulate_scenario(rtc.SimulateScenarioKind.SIMULATE_SERVER_LEAVE)
        ),
        "disconnect": lambda: spawn(ctx.room.disconnect()),
        "raise": lambda: failed.set_exception(PhoneBoothError("secret text")),
        "session_error": lambda: session.generate_reply(user_input="hello"),
        "sys_exit": lambda: sys.exit(order.get("code", 3)),
        "os_exit": lambda: os._exit(order.get("code", 3)),
        "signal": lambda: os.kill(os.getpid(), getattr(signal, order["name"])),
        "eat": lambda: EATEN.append(bytearray(order["mb"] * 1024 * 1024)),
        "block": lambda: time.sleep(order["seconds"]),
        "busy": lambda: spawn(stay_busy(order["seconds"])),
        "task_error": lambda: spawn(fail_later()),
    }
    if not PLAIN:
        deeds["end"] = lambda: get_lifecycle().end(
            order.get("detail", ""), next=order.get("next", "end")
        )
        deeds["handoff"] = lambda: get_lifecycle().handoff(order.get("detail", ""))
    if what in deeds:
        deeds[what]()


def delete_room_and_close(ctx: JobContext, session: AgentSession[None]) -> None:
    ctx.delete_room()
    session.shutdown(drain=False)


EATEN: list[bytearray] = []
TASKS: set[asyncio.Task[Any]] = set()


def spawn(coroutine: Any) -> None:
    task = asyncio.ensure_future(coroutine)
    TASKS.add(task)
    task.add_done_callback(TASKS.discard)


async def stay_busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.5)  # noqa: ASYNC251 - as code that computes
        await asyncio.sleep(0.05)
    logger.info("busy_is_over")


async def fail_later() -> None:
    msg = "secret text"
    raise PhoneBoothError(msg)


if __name__ == "__main__":
    from livekit.agents import cli

    cli.run_app(server)
