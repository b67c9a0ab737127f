"""Handle deliveries: answer with a context, a stored answer or an error, or dead-letter them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from service.aio import LARGE_TEXT, time_limit
from service.build.account import Built
from service.build.after_answer import AfterAnswer
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
from service.observe.metrics import Metrics, timed
from service.observe.tracing import own_trace
from service.ports.bus import (
    Answer,
    AnswerMode,
    AnswerOutcome,
    Bus,
    Identity,
    Receipt,
    ReplyKind,
    StoredResult,
)
from service.ports.stream import Delivery
from service.wire.protocol import Topics
from service.wire.request import BuildRequest, Envelope, RejectedError, decode
from service.wire.response import (
    BuildResponse,
    error_response,
    response_metadata,
    serialize_response,
)
from service.worker.recorder import Recorder
from service.worker.sender import Sender
from service.worker.telemetry import BusSpans, record_build

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A decoded delivery: its envelope, and the request or the error in it."""

    delivery: Delivery
    envelope: Envelope
    request: BuildRequest | None = None
    error: ContextBuilderError | None = None

    @property
    def identity(self) -> Identity:
        """Return what two deliveries of one request share."""
        return Identity(self.envelope.owner_key, self.envelope.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """An answer to send, with what to record once it has been sent."""

    answer: Answer
    built: Built | None = None
    #: The metric label: ``success`` or the error's code; None for a request that was counted.
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Answers deliveries."""

    bus: Bus
    builder: ContextBuilder
    sender: Sender
    #: None if inputs are not recorded.
    recorder: Recorder | None
    after_answer: Sequence[AfterAnswer]
    spans: BusSpans

    async def read(self, deliveries: Sequence[Delivery]) -> list[Incoming]:
        """Decode deliveries; those that can't be answered go to the dead-letter stream."""
        incoming: list[Incoming] = []
        for delivery in deliveries:
            try:
                incoming.append(await decode_delivery(delivery, self._settings))
            except RejectedError as rejected:
                log.warning("request.unreadable", entry=delivery.token, reason=rejected.detail)
                await self.bus.requests.dead_letter(delivery, rejected.detail)
                self._metrics.count_dead_letter("unreadable")
        return incoming

    async def handle(self, incoming: Incoming, stored: StoredResult | None) -> None:
        """Answer one delivery and settle it; ``stored`` is the answer to an earlier one."""
        if stored is None:
            receipt = await self._send(incoming, await self._first_reply(incoming))
            if receipt.outcome is not AnswerOutcome.ANSWERED:
                return
            # another delivery of this request was answered during the build
            (stored,) = await self.bus.find_results([incoming.identity])
        await self._send(incoming, await self._repeated_reply(incoming, stored))

    async def refuse(self, payload: bytes) -> None:
        """Answer `overloaded` to the sender of a payload, if it can be answered."""
        try:
            envelope = decode(payload, max_bytes=self._settings.max_payload_bytes).envelope
        except RejectedError as rejected:
            if rejected.envelope is None:
                return
            envelope = rejected.envelope
        error = OverloadedError("too many requests are waiting; try again later")
        response = serialize_response(error_response(envelope, error, self.bus.now(), own_trace()))
        self._metrics.count_answer(error.code)
        # lists and streams are for answers; their readers find this on the common channel
        reply_to, kind = self._reply_address(envelope)
        channel = reply_to if kind == "channel" else self._response_topic
        try:
            await self.bus.publish_to(channel, response)
        except ForbiddenError:  # a retry would block the other requests on the channel
            log.warning("bus.reply_refused", reply_to=channel, kind="channel")

    async def _send(self, incoming: Incoming, reply: _Reply) -> Receipt:
        """Send a reply; once it is sent, count it and start the work after it."""
        with timed(self._metrics, "send"):
            self.spans.describe_sending(reply.answer)
            receipt = await self.sender.send(reply.answer)
        if receipt.outcome is AnswerOutcome.FORBIDDEN:
            receipt = await self.sender.send(self._redirected(incoming, reply.answer))
            if receipt.outcome is AnswerOutcome.SENT:
                self._metrics.count_answer(InvalidRequestError.code)
            return receipt
        if receipt.outcome is AnswerOutcome.NOT_MINE:
            self._metrics.count_duplicate("lease_lost")
        if receipt.outcome is AnswerOutcome.SENT:
            if reply.outcome:
                self._metrics.count_answer(reply.outcome)
            if reply.built:
                for work in self.after_answer:
                    work.keep(reply.built)
        return receipt

    def _redirected(self, incoming: Incoming, answer: Answer) -> Answer:
        """Return the error that replaces an answer which the server refuses to deliver."""
        error = _bad_reply("the service has no permission to write there")
        response = serialize_response(self._error_response(incoming, error))
        topic = self._response_topic
        return replace(answer, response=response, reply_to=topic, reply_kind="channel")

    async def _first_reply(self, incoming: Incoming) -> _Reply:
        attempts = incoming.delivery.attempt - 1
        if attempts >= self._settings.max_deliveries:
            reason = f"delivered {attempts} times without an answer"
            error = ContextBuilderError(f"the request was {reason}")
            self._metrics.count_dead_letter("deliveries")
            response = self._error_response(incoming, error)
            answer = self._answer(incoming, response, dead_letter=reason)
            return _Reply(answer=answer, outcome=error.code)
        answered = await self._build(incoming)
        return self._reply(incoming, answered, _mode(answered.response))

    async def _repeated_reply(self, incoming: Incoming, stored: StoredResult | None) -> _Reply:
        """Answer a request that was answered before: with the stored result if there is one."""
        if stored is not None and stored.fingerprint != incoming.envelope.fingerprint:
            error = IdConflictError(
                f"the id {shown(incoming.envelope.id)} was used for another request"
            )
            response = self._error_response(incoming, error)
            answer = self._answer(incoming, response, mode="again")
            return _Reply(answer=answer, outcome=error.code)
        if stored is None or stored.response is None:  # it just expired, or is too large to store
            return self._reply(incoming, await self._build(incoming), "again")
        self._metrics.count_duplicate("stored")
        first = BuildResponse.model_validate_json(stored.response)
        metadata = response_metadata(incoming.envelope, own_trace())
        repeated = first.model_copy(update={"metadata": metadata})
        return _Reply(answer=self._answer(incoming, repeated, mode="again"), outcome=None)

    def _reply(self, incoming: Incoming, answered: Answered, mode: AnswerMode) -> _Reply:
        content = answered.response.content
        return _Reply(
            answer=self._answer(incoming, answered.response, mode=mode),
            built=answered.built,
            outcome=content.error.code if content.status == "error" else content.status,
        )

    async def _build(self, incoming: Incoming) -> Answered:
        """Build the context of a request, or the error that prevents it; log and measure it."""
        began = self.bus.now()
        try:
            if incoming.request is None:
                raise incoming.error or ContextBuilderError()
            self._check_reply_address(incoming.envelope)
            answered = await self._build_in_time(incoming.request, self._deadline(incoming), began)
        except ContextBuilderError as error:
            answered = Answered(self._error_response(incoming, error))
        record_build(incoming.delivery, answered, began, self.bus.now(), self._metrics)
        return answered

    async def _build_in_time(
        self, request: BuildRequest, deadline: datetime, now: datetime
    ) -> Answered:
        """Build a context and record its input before the deadline.

        Raises:
            DeadlineExceededError: The deadline has passed, or passes during the build.
            HistoryUnavailableError: The input can't be recorded.
        """
        seconds = (deadline - now).total_seconds()
        late = f"the deadline {deadline.isoformat()} has passed"
        if seconds <= 0:
            raise DeadlineExceededError(late)
        try:
            with time_limit(seconds):
                answered = await self.builder.answer(request)
                if self.recorder and answered.built:
                    with timed(self._metrics, "record"):
                        await self.recorder.record_input(request)
        except TimeoutError as error:
            raise DeadlineExceededError(late) from error
        return answered

    def _deadline(self, incoming: Incoming) -> datetime:
        default_ms = self._settings.default_timeout_ms
        return incoming.envelope.metadata.expires_at(incoming.delivery.received_at, default_ms)

    def _check_reply_address(self, envelope: Envelope) -> None:
        """Raise `InvalidRequestError` unless a reply may go where the request wants it."""
        metadata = envelope.metadata
        if metadata.reply_to is None and metadata.reply_kind != "channel":
            detail = f"a reply of the kind {metadata.reply_kind} needs a reply_to"
        elif metadata.reply_to is not None and not self._is_allowed(metadata.reply_to):
            detail = f"must begin with one of {', '.join(self._settings.reply_prefixes)}"
        else:
            return
        raise _bad_reply(detail)

    def _reply_address(self, envelope: Envelope) -> tuple[str, ReplyKind]:
        """Return where a response goes: to the common channel unless another is allowed."""
        metadata = envelope.metadata
        if metadata.reply_to is None or not self._is_allowed(metadata.reply_to):
            return self._response_topic, "channel"
        return metadata.reply_to, metadata.reply_kind

    def _is_allowed(self, reply_to: str) -> bool:
        return reply_to.startswith(tuple(self._settings.reply_prefixes))

    def _error_response(self, incoming: Incoming, error: ContextBuilderError) -> BuildResponse:
        return error_response(incoming.envelope, error, self.bus.now(), own_trace())

    def _answer(
        self,
        incoming: Incoming,
        response: BuildResponse,
        *,
        mode: AnswerMode = "first",
        dead_letter: str | None = None,
    ) -> Answer:
        reply_to, reply_kind = self._reply_address(incoming.envelope)
        return Answer(
            delivery=incoming.delivery,
            identity=incoming.identity,
            fingerprint=incoming.envelope.fingerprint,
            response=serialize_response(response),
            reply_to=reply_to,
            reply_kind=reply_kind,
            mode=mode,
            dead_letter=dead_letter,
        )

    @property
    def _settings(self) -> BusSettings:
        return self.builder.settings.bus

    @property
    def _metrics(self) -> Metrics:
        return self.builder.metrics

    @property
    def _response_topic(self) -> str:
        return f"{self._settings.prefix}{Topics.CONTEXT_BUILD_RESPONSE}"


async def decode_delivery(delivery: Delivery, settings: BusSettings) -> Incoming:
    """Decode a delivery; a large one in a thread, so that the event loop stays free.

    Raises:
        RejectedError: It can't be answered.
    """
    if len(delivery.payload) < LARGE_TEXT:
        return _decode(delivery, settings)
    return await asyncio.to_thread(_decode, delivery, settings)


def _decode(delivery: Delivery, settings: BusSettings) -> Incoming:
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


def _bad_reply(detail: str) -> InvalidRequestError:
    problem = Problem("/metadata/reply_to", detail)
    return InvalidRequestError(f"{problem.pointer}: {detail}", [problem])


def _mode(response: BuildResponse) -> AnswerMode:
    """Return how a response is stored: a retryable error must not hide the later answer."""
    content = response.content
    return "unstored" if content.status == "error" and content.error.retryable else "first"
