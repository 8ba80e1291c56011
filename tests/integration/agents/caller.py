"""The actor, in situations that people report: it speaks, waits, hangs, or has a broken model.

On top of the actor's own, the dispatch's metadata knows ``speak`` (seconds of speech at the start),
``pause`` (seconds between the connect and the session), ``raise`` (``after_connect``), ``expect``
(the entrypoint waits for that participant), ``hang`` (the agent's own exit never returns),
``callback`` (seconds that a shutdown callback takes), ``away`` (LiveKit's time until a silent user
is away), ``broken`` (``stt``, ``tts``, ``realtime``, or an error that is ``other``
or ``foreign``) and ``errors`` (how many a session outlives). Orders may also be ``speak``, with
seconds, ``say``, and ``burst``, with a number of writes.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from typing import Any

from livekit import rtc
from livekit.agents import (
    AgentSession,
    APIConnectOptions,
    APIError,
    JobContext,
    UserStateChangedEvent,
    llm,
    stt,
    tts,
)
from livekit.agents.ipc import job_proc_executor
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.voice.agent_session import SessionConnectOptions

from tests.integration.agents.actor import (
    BrokenLLM,
    Echo,
    PhoneBoothError,
    act,
    make_server,
    on_request,
    on_session_end,
    room_options,
    spawn,
    watch,
)

logger = logging.getLogger("caller")
RATE = 24000
FRAME = 0.1
NO_RETRY = APIConnectOptions(max_retry=0)


class Caller(Echo):
    """Has an exit of its own that may never return, as a request to somebody else's service."""

    def __init__(self, *, hang: bool) -> None:
        super().__init__()
        self._hang = hang

    async def on_exit(self) -> None:
        if self._hang:
            logger.info("exit_hangs")
            await asyncio.Event().wait()


class BrokenSTT(stt.STT[str]):
    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=False))

    async def _recognize_impl(self, *_: Any, **__: Any) -> stt.SpeechEvent:
        raise NotImplementedError

    def stream(
        self,
        *,
        language: Any = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> stt.RecognizeStream:
        return BrokenHearing(stt=self, conn_options=conn_options)


class BrokenHearing(stt.RecognizeStream):
    async def _run(self) -> None:
        await self._input_ch.recv()
        msg = "no such model"
        raise APIError(msg, retryable=False)


class BrokenTTS(tts.TTS[str]):
    def __init__(self) -> None:
        capabilities = tts.TTSCapabilities(streaming=False)
        super().__init__(capabilities=capabilities, sample_rate=RATE, num_channels=1)

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        return BrokenSpeech(tts=self, input_text=text, conn_options=conn_options)


class BrokenSpeech(tts.ChunkedStream):
    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        msg = "no such voice"
        raise APIError(msg, retryable=False)


class QuotaError(llm.RealtimeModelError):
    """An error of a third party's own type.

    It has to be one of LiveKit's by class: with any other, LiveKit fails to make its `CloseEvent`.
    """

    type: str = "quota_error"  # type: ignore[assignment]


class ForeignError:
    """One of no class of LiveKit's, which fails to make its `CloseEvent` of it."""

    type = "foreign_error"

    def __init__(self, *, error: Exception, recoverable: bool, **_: Any) -> None:
        self.error, self.recoverable = error, recoverable


class BrokenRealtime(llm.RealtimeModel):
    """Answers each request with an error, as a service whose session has expired."""

    def __init__(self, error: Any) -> None:
        super().__init__(
            capabilities=llm.RealtimeCapabilities(
                message_truncation=False,
                turn_detection=True,
                user_transcription=False,
                auto_tool_reply_generation=False,
                audio_output=True,
                manual_function_calls=False,
            )
        )
        self.error = error

    def session(self, *, turn_detection_disabled: bool = False) -> llm.RealtimeSession[Any]:
        return BrokenTalk(self)

    async def aclose(self) -> None: ...


class BrokenTalk(llm.RealtimeSession[Any]):
    def __init__(self, model: BrokenRealtime) -> None:
        super().__init__(model)
        self._error = model.error

    @property
    def chat_ctx(self) -> llm.ChatContext:
        return llm.ChatContext.empty()

    @property
    def tools(self) -> llm.ToolContext:
        return llm.ToolContext.empty()

    def generate_reply(self, **_: Any) -> asyncio.Future[llm.GenerationCreatedEvent]:
        msg = "no such session"
        error = APIError(msg, retryable=False)
        self.emit(
            "error",
            self._error(timestamp=time.time(), label="broken", error=error, recoverable=False),
        )
        answer: asyncio.Future[llm.GenerationCreatedEvent] = asyncio.Future()
        answer.set_exception(llm.RealtimeError(msg))
        return answer

    async def update_instructions(self, instructions: str) -> None: ...
    async def update_chat_ctx(self, chat_ctx: llm.ChatContext) -> None: ...
    async def update_tools(self, tools: list[llm.Tool]) -> None: ...
    def update_options(self, **_: Any) -> None: ...
    def push_audio(self, frame: rtc.AudioFrame) -> None: ...
    def push_video(self, frame: rtc.VideoFrame) -> None: ...
    def commit_audio(self) -> None: ...
    def clear_audio(self) -> None: ...
    def interrupt(self) -> None: ...
    def truncate(self, **_: Any) -> None: ...
    async def aclose(self) -> None: ...


REALTIME_ERRORS: dict[str, Any] = {
    "realtime": llm.RealtimeModelError,
    "other": QuotaError,
    "foreign": ForeignError,
}


async def silence(seconds: float) -> AsyncIterator[rtc.AudioFrame]:
    for _ in range(round(seconds / FRAME)):
        yield rtc.AudioFrame.create(RATE, 1, round(RATE * FRAME))


def speak(session: AgentSession[None], seconds: float) -> None:
    session.say("silence", audio=silence(seconds))


def ping_sooner() -> None:
    """Let the worker take a job for dead sooner: LiveKit has no setting for its 60 s."""
    init = job_proc_executor.ProcJobExecutor.__init__
    seconds = float(os.environ["CALLER_PING_TIMEOUT"])

    @functools.wraps(init)
    def sooner(self: Any, **arguments: Any) -> None:
        init(self, **{**arguments, "ping_interval": 0.5, "ping_timeout": seconds})

    job_proc_executor.ProcJobExecutor.__init__ = sooner  # type: ignore[method-assign]


if "CALLER_PING_TIMEOUT" in os.environ:
    ping_sooner()
server = make_server()


@server.rtc_session(
    agent_name=os.environ.get("ACTOR_NAME", "caller"),
    on_request=on_request,
    on_session_end=on_session_end,
)
async def entrypoint(ctx: JobContext) -> None:
    how = json.loads(ctx.job.metadata or "{}")
    session = make_session(how)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watch(ctx, session)
    session.on("user_state_changed", saw_user_state)
    if "callback" in how:
        add_slow_callback(ctx, float(how["callback"]))
    await ctx.connect()
    if how.get("raise") == "after_connect":
        raise PhoneBoothError("secret text")  # noqa: EM101, TRY003
    ctx.room.on("data_received", act(ctx, session, failed))
    ctx.room.on("data_received", more_acts(ctx, session))
    if "pause" in how:
        logger.info("caller_pauses", extra={"job": ctx.job.id})
        await asyncio.sleep(float(how["pause"]))
    agent = Caller(hang=bool(how.get("hang")))
    await session.start(agent=agent, room=ctx.room, room_options=room_options(how))
    if "speak" in how:
        speak(session, float(how["speak"]))
    if "expect" in how:
        logger.info("caller_expects", extra={"job": ctx.job.id})
        await ctx.wait_for_participant(identity=how["expect"])
    if how.get("wait"):
        await failed


def make_session(how: dict[str, Any]) -> AgentSession[None]:
    broken = how.get("broken")
    return AgentSession(
        llm=BrokenRealtime(REALTIME_ERRORS[broken]) if broken in REALTIME_ERRORS else BrokenLLM(),
        stt=BrokenSTT() if broken == "stt" else NOT_GIVEN,
        tts=BrokenTTS() if broken == "tts" else NOT_GIVEN,
        user_away_timeout=how.get("away"),
        conn_options=SessionConnectOptions(
            llm_conn_options=NO_RETRY,
            stt_conn_options=NO_RETRY,
            tts_conn_options=NO_RETRY,
            max_unrecoverable_errors=int(how.get("errors", 0)),
        ),
    )


def saw_user_state(event: UserStateChangedEvent) -> None:
    logger.info("user_state", extra={"to": event.new_state, "at": time.monotonic()})


def add_slow_callback(ctx: JobContext, seconds: float) -> None:
    async def clean_up() -> None:
        logger.info("slow_callback", extra={"job": ctx.job.id})
        await asyncio.sleep(seconds)
        logger.info("slow_callback_done", extra={"job": ctx.job.id})

    ctx.add_shutdown_callback(clean_up)


def more_acts(ctx: JobContext, session: AgentSession[None]) -> Any:
    def do(packet: rtc.DataPacket) -> None:
        order = json.loads(packet.data) if packet.topic == "do" else {}
        if order.get("act") == "speak":
            speak(session, float(order["seconds"]))
        elif order.get("act") == "say":
            session.say("hello")
        elif order.get("act") == "burst":
            me = ctx.room.local_participant
            for number in range(order["writes"]):
                spawn(me.set_attributes({"app.step": str(number)}))
            ctx.shutdown("done")

    return do


if __name__ == "__main__":
    from livekit.agents import cli

    cli.run_app(server)
