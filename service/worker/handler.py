"""What a delivery comes to: a context, a stored answer again, an error, or the dead letter."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from service.aio import LARGE_TEXT, time_limit
from service.build.after_answer import AfterAnswer
from service.build.report import Built
from service.builder import Answered, ContextBuilder
from service.config.settings import BusSettings
from service.errors import (
    ContextBuilderError,
    DeadlineExceededError,
    ForbiddenError,
    IdConflictError,
    InvalidRequestError,
    OverloadedError,
    Problem,
    shown,
)
from service.observe.metrics import timed
from service.ports.bus import (
    Answer,
    AnswerMode,
    Bus,
    Identity,
    Outcome,
    Receipt,
    ReplyKind,
    StoredResult,
)
from service.ports.stream import Delivery
from service.wire.envelope import Envelope, echo
from service.wire.protocol import (
    BuildRequest,
    BuildResponse,
    RejectedError,
    Topics,
    decode,
    failed,
    written,
)
from service.worker.recorder import Recorder
from service.worker.sender import Sender
from service.worker.telemetry import BusSpans, note_build


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A delivery, read: its envelope, and the request or what is wrong with it."""

    delivery: Delivery
    envelope: Envelope
    request: BuildRequest | None = None
    error: ContextBuilderError | None = None

    @property
    def identity(self) -> Identity:
        """Return what makes two requests the same one."""
        return Identity(self.envelope.owner_key, self.envelope.id)


async def read(delivery: Delivery, settings: BusSettings) -> Incoming:
    """Read a delivery; a large one in a thread, so that the event loop stays free.

    Raises:
        RejectedError: Nobody can be answered for it.
    """
    if len(delivery.payload) < LARGE_TEXT:
        return _decoded(delivery, settings)
    return await asyncio.to_thread(_decoded, delivery, settings)


def _decoded(delivery: Delivery, settings: BusSettings) -> Incoming:
    try:
        request = decode(
            delivery.payload,
            received_at=delivery.received_at,
            max_bytes=settings.max_payload_bytes,
        )
    except RejectedError as rejected:
        if rejected.envelope is None:
            raise
        return Incoming(delivery=delivery, envelope=rejected.envelope, error=rejected.error)
    return Incoming(delivery=delivery, envelope=request.envelope, request=request)


log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """An answer that is to be sent."""

    answer: Answer
    built: Built | None = None
    #: What the request counts as once it is sent: ``success``, or the error's code; None for what
    #: was answered, and counted, before.
    outcome: str | None


class Handler:
    """Answers deliveries."""

    def __init__(
        self,
        bus: Bus,
        builder: ContextBuilder,
        sender: Sender,
        recorder: Recorder | None,
        afterwards: Sequence[AfterAnswer],
    ) -> None:
        self._bus = bus
        self._builder = builder
        self._sender = sender
        self._recorder = recorder
        self._afterwards = afterwards
        self._metrics = builder.metrics
        self._spans = BusSpans(builder.tracer, builder.settings.bus)
        self._settings = builder.settings.bus
        self._reply_prefixes = tuple(self._settings.reply_prefixes)

    async def read(self, deliveries: Sequence[Delivery]) -> list[Incoming]:
        """Read deliveries; what nobody can be answered for goes to the dead letter."""
        incoming: list[Incoming] = []
        for delivery in deliveries:
            try:
                incoming.append(await read(delivery, self._settings))
            except RejectedError as rejected:
                log.warning("request.unreadable", entry=delivery.token, reason=rejected.detail)
                await self._bus.requests.dead_letter(delivery, rejected.detail)
                self._metrics.buried("unreadable")
        return incoming

    async def handle(self, incoming: Incoming, stored: StoredResult | None) -> None:
        """Answer one delivery and settle it."""
        if stored is None:
            receipt = await self._send(incoming, await self._first_answer(incoming))
            if receipt.outcome is not Outcome.ANSWERED:
                return
            # another delivery of this request was answered while this one was built
            (stored,) = await self._bus.stored([incoming.identity])
        await self._send(incoming, await self._further_answer(incoming, stored))

    async def _send(self, incoming: Incoming, made: _Made) -> Receipt:
        """Send an answer; what was built for it is worked on, and counted, when it is out."""
        answer = made.answer
        with timed(self._metrics, "send"):
            self._spans.sends(answer)
            receipt = await self._sender.send(answer)
        if receipt.outcome is Outcome.FORBIDDEN:
            receipt = await self._sender.send(self._diverted(incoming, answer))
            if receipt.outcome is Outcome.SENT:
                self._metrics.answered(InvalidRequestError.code)
            return receipt
        if receipt.outcome is Outcome.NOT_MINE:
            self._metrics.duplicate("lease_lost")
        if receipt.outcome is Outcome.SENT:
            if made.outcome:
                self._metrics.answered(made.outcome)
            for work in self._afterwards:
                work.keep(made.built)
            if self._builder.compactor:
                self._builder.compactor.keep(made.built)
        return receipt

    def _diverted(self, incoming: Incoming, answer: Answer) -> Answer:
        """Return the error that stands for an answer which may not go where it was asked to."""
        error = _bad_reply("the service has no right to write there")
        response = written(self._failed(incoming, error))
        topic = self._response_topic
        return replace(answer, response=response, reply_to=topic, reply_kind="channel")

    async def refuse(self, payload: bytes) -> None:
        """Tell the sender of a payload that the backlog is full, if it can be told."""
        try:
            request = decode(payload, max_bytes=self._settings.max_payload_bytes)
        except RejectedError as rejected:
            envelope = rejected.envelope
        else:
            envelope = request.envelope
        if envelope is None:
            return
        error = OverloadedError("too many requests are waiting; try again later")
        response = written(failed(envelope, error, self._bus.now()))
        self._metrics.answered(error.code)
        # a list or a stream is for answers; who reads one hears of this on the common channel
        reply_to, kind = self._reply(envelope)
        channel = reply_to if kind == "channel" else self._response_topic
        try:
            await self._bus.tell(channel, response)
        except ForbiddenError:  # tried again, it would keep all others waiting at the channel
            log.warning("bus.reply_refused", reply_to=channel, kind="channel")

    @property
    def _response_topic(self) -> str:
        return f"{self._settings.prefix}{Topics.CONTEXT_BUILD_RESPONSE}"

    async def _first_answer(self, incoming: Incoming) -> _Made:
        attempts = incoming.delivery.attempt - 1
        if attempts >= self._settings.max_deliveries:
            reason = f"delivered {attempts} times without an answer"
            error = ContextBuilderError(f"the request was {reason}")
            self._metrics.buried("deliveries")
            answer = self._answer(incoming, self._failed(incoming, error), dead_letter=reason)
            return _Made(answer=answer, outcome=error.code)
        answered = await self._built(incoming)
        return self._made(incoming, answered, _mode(answered.response))

    async def _further_answer(self, incoming: Incoming, stored: StoredResult | None) -> _Made:
        """Answer what was answered before: with the same, whatever has changed since."""
        if stored is not None and stored.fingerprint != incoming.envelope.fingerprint:
            error = IdConflictError(
                f"the id {shown(incoming.envelope.id)} was used for another request"
            )
            answer = self._answer(incoming, self._failed(incoming, error), mode="again")
            return _Made(answer=answer, outcome=error.code)
        if stored is None or stored.response is None:  # expired just now, or too large to store
            return self._made(incoming, await self._built(incoming), "again")
        self._metrics.duplicate("stored")
        first = BuildResponse.model_validate_json(stored.response)
        repeated = first.model_copy(update={"metadata": echo(incoming.envelope)})
        return _Made(answer=self._answer(incoming, repeated, mode="again"), outcome=None)

    def _made(self, incoming: Incoming, answered: Answered, mode: AnswerMode) -> _Made:
        content = answered.response.content
        return _Made(
            answer=self._answer(incoming, answered.response, mode=mode),
            built=answered.built,
            outcome=content.error.code if content.status == "error" else content.status,
        )

    async def _built(self, incoming: Incoming) -> Answered:
        began = self._bus.now()
        try:
            if incoming.request is None:
                raise incoming.error or ContextBuilderError()
            self._check_reply(incoming.envelope)
            answered = await self._in_time(incoming.request, self._deadline(incoming), began)
        except ContextBuilderError as error:
            answered = Answered(self._failed(incoming, error))
        now, metrics = self._bus.now(), self._metrics
        note_build(incoming.delivery, answered, began, now, metrics)
        return answered

    async def _in_time(self, request: BuildRequest, deadline: datetime, now: datetime) -> Answered:
        """Build and record before the deadline.

        Raises:
            DeadlineExceededError: It has passed, or passes meanwhile.
            HistoryUnavailableError: The input can't be recorded.
        """
        left = (deadline - now).total_seconds()
        late = f"the deadline {deadline.isoformat()} has passed"
        if left <= 0:
            raise DeadlineExceededError(late)
        try:
            with time_limit(left):
                answered = await self._builder.answer(request)
                if self._recorder and answered.built:
                    with timed(self._metrics, "record"):
                        await self._recorder.record_input(request)
        except TimeoutError as error:
            raise DeadlineExceededError(late) from error
        return answered

    def _deadline(self, incoming: Incoming) -> datetime:
        asked, received_at = incoming.envelope.metadata, incoming.delivery.received_at
        return asked.wanted_until(received_at, self._settings.default_timeout_ms)

    def _check_reply(self, envelope: Envelope) -> None:
        """Raise `InvalidRequestError` for a reply that may not go where it is asked to."""
        asked = envelope.metadata
        if asked.reply_to is None and asked.reply_kind != "channel":
            detail = f"a reply of the kind {asked.reply_kind} needs a reply_to"
        elif asked.reply_to is not None and not self._allowed(asked.reply_to):
            detail = f"it has to begin with one of {', '.join(self._settings.reply_prefixes)}"
        else:
            return
        raise _bad_reply(detail)

    def _reply(self, envelope: Envelope) -> tuple[str, ReplyKind]:
        """Return where a response goes: to the common channel, unless it may go elsewhere."""
        asked = envelope.metadata
        if asked.reply_to is None or not self._allowed(asked.reply_to):
            return self._response_topic, "channel"
        return asked.reply_to, asked.reply_kind

    def _allowed(self, reply_to: str) -> bool:
        return reply_to.startswith(self._reply_prefixes)

    def _failed(self, incoming: Incoming, error: ContextBuilderError) -> BuildResponse:
        return failed(incoming.envelope, error, self._bus.now())

    def _answer(
        self,
        incoming: Incoming,
        response: BuildResponse,
        *,
        mode: AnswerMode = "first",
        dead_letter: str | None = None,
    ) -> Answer:
        reply_to, reply_kind = self._reply(incoming.envelope)
        return Answer(
            delivery=incoming.delivery,
            identity=incoming.identity,
            fingerprint=incoming.envelope.fingerprint,
            response=written(response),
            reply_to=reply_to,
            reply_kind=reply_kind,
            mode=mode,
            dead_letter=dead_letter,
        )


def _bad_reply(detail: str) -> InvalidRequestError:
    problem = Problem("/metadata/reply_to", detail)
    return InvalidRequestError(f"{problem.pointer}: {detail}", [problem])


def _mode(response: BuildResponse) -> AnswerMode:
    """Tell how a response is kept: an error that may pass must not hide the later answer."""
    content = response.content
    return "unstored" if content.status == "error" and content.error.retryable else "first"
