"""Handle deliveries: answer with a context, a stored answer or an error, or dead-letter them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from service.aio import LARGE_TEXT
from service.build.account import context_sizes
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
from service.observe.tracing import current_span, own_trace, record_failure
from service.ports.bus import (
    NO_DATA,
    Answer,
    AnswerMode,
    AnswerOutcome,
    Bus,
    Delivery,
    Identity,
    Receipt,
    ReplyKind,
    lane_of,
)
from service.wire.payload import MAX_BYTES, JsonObject
from service.wire.protocol import Topics
from service.wire.recall import RecallRequest, RecallResponse, RecallSuccess, decode_recall
from service.wire.request import BuildRequest, Envelope, RejectedError, decode_as
from service.wire.response import (
    BuildResponse,
    ErrorBody,
    StoredResult,
    error_response,
    response_metadata,
    serialize,
)
from service.wire.validation import is_recall
from service.worker.pace import Paces
from service.worker.recorder import Recorder, times
from service.worker.sender import Sender
from service.worker.spans import BusSpans

log = structlog.get_logger(__name__)

#: The place of the reply's address in a request.
REPLY_TO: Final = "/metadata/reply_to"

AnyRequest = BuildRequest | RecallRequest
AnyAnswered = Answered[BuildResponse | RecallResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A decoded delivery: its envelope, and the request or the error in it."""

    delivery: Delivery
    envelope: Envelope
    request: AnyRequest | ContextBuilderError
    #: Whether the reply may go where the request wants it; if not, that is the request's error.
    may_reply: bool
    #: Shared by all deliveries of one request.
    identity: Identity

    @property
    def is_storable(self) -> bool:
        """Return whether the answer can be stored, or a stored one sent.

        Otherwise it is an error: content may only go to the requested reply, without an owner and
        an id there is nothing to store it under, and a fingerprint doesn't cover all that is wrong.
        """
        error = self.request if isinstance(self.request, ContextBuilderError) else None
        is_final = error is None or ErrorBody.of(error).final
        return is_final and self.envelope.identified and self.may_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Answers deliveries."""

    bus: Bus
    builder: ContextBuilder
    sender: Sender
    #: None if inputs are not recorded.
    recorder: Recorder | None
    after_answer: Sequence[AfterAnswer]
    #: Called with each request that is refused, and the error.
    on_refusal: Callable[[Envelope, ContextBuilderError], object]
    #: None if no spans are collected.
    spans: BusSpans | None
    #: Decides which requests are refused when an owner has too many.
    paces: Paces

    async def read(self, deliveries: Sequence[Delivery]) -> list[Incoming]:
        """Decode deliveries; those that can't be answered go to the dead-letter stream."""
        incoming: list[Incoming] = []
        for delivery in deliveries:
            try:
                if len(delivery.payload) < LARGE_TEXT:
                    incoming.append(self._decode(delivery))
                else:  # in a thread, so that the event loop stays free
                    incoming.append(await asyncio.to_thread(self._decode, delivery))
            except RejectedError as rejected:
                await self._bury(delivery, rejected.detail)
            except Exception as error:  # no request may end the worker
                log.exception("request.failed", entry=delivery.token)
                await self._bury(delivery, f"could not be decoded: {type(error).__name__}")
        return incoming

    async def _bury(self, delivery: Delivery, reason: str) -> None:
        """Move an entry that can't be answered to the dead-letter stream."""
        if await self.bus.requests.dead_letter(delivery, reason):
            log.warning("request.unreadable", entry=delivery.token, reason=reason)
            self._metrics.count("dead_letters", "unreadable")

    def _decode(self, delivery: Delivery) -> Incoming:
        """Decode a delivery; raises `RejectedError` if it can't be answered."""
        if not delivery.payload:
            raise RejectedError(InvalidRequestError(NO_DATA), None)
        most = self._settings.max_payload_bytes
        request: AnyRequest | ContextBuilderError
        try:
            received_at = delivery.received_at
            decode = decode_recall if delivery.recall else decode_request
            request = decode(delivery.payload, received_at=received_at, max_bytes=most)
            envelope = request.envelope
        except RejectedError as rejected:
            if rejected.envelope is None:
                raise
            request, envelope = rejected.error, rejected.envelope
            if not envelope.identified and self._reply_problem(envelope):
                raise
        problem = self._reply_problem(envelope)
        if problem and not isinstance(request, ContextBuilderError):
            request = _bad_reply(problem)
        return Incoming(
            delivery=delivery,
            envelope=envelope,
            request=request,
            may_reply=problem is None,
            identity=Identity(envelope.owner_key, envelope.id),
        )

    async def handle(self, incoming: Incoming, stored: StoredResult | None) -> None:
        """Answer one delivery and settle it; ``stored`` is the answer to an earlier one."""
        if not incoming.is_storable:
            await self._send(incoming, await self._build(incoming), "again")
            return
        if stored and self._is_given_up(incoming) and _is_internal(stored):
            # answered when it was given up, but the dead-letter stream couldn't be used
            await self.bus.requests.dead_letter(incoming.delivery, _reason(incoming))
            return
        if stored is None:
            receipt = await self._answer(incoming)
            if receipt.outcome is not AnswerOutcome.ANSWERED:
                return
            # another delivery of this request was answered during the build
            (stored,) = await self.bus.find_results([incoming.identity])
        await self._answer_again(incoming, stored)

    async def _answer(self, incoming: Incoming) -> Receipt:
        if not self._is_given_up(incoming):
            answered = await self._build(incoming)
            error = _find_error(answered.response)
            # a stored error that isn't final would hide the later answer
            mode: AnswerMode = "unstored" if error and not error.final else "first"
            return await self._send(incoming, answered, mode)
        self._metrics.count("dead_letters", "deliveries")
        reason = _reason(incoming)
        failed = self._fail(incoming, ContextBuilderError(f"the request was {reason}"))
        return await self._send(incoming, failed, "first", dead_letter=reason)

    def _is_given_up(self, incoming: Incoming) -> bool:
        return incoming.delivery.attempt > self._settings.max_deliveries

    async def _answer_again(self, incoming: Incoming, stored: StoredResult | None) -> Receipt:
        """Answer a request that was answered before: with the stored result, if any."""
        if stored and stored.fingerprint != incoming.envelope.fingerprint:
            detail = (
                f"the id {shown(incoming.envelope.id)} was used for a request with other content"
                " or options; send this one with another id"
            )
            failed = self._fail(incoming, IdConflictError(detail))
            return await self._send(incoming, failed, "again")
        if stored is None or stored.response is None:  # it just expired, or is too large to store
            return await self._send(incoming, await self._build(incoming), "again")
        self._metrics.count("duplicates_suppressed", "stored")
        model = RecallResponse if incoming.envelope.kind == "recall" else BuildResponse
        first: BuildResponse | RecallResponse = model.model_validate(stored.response)
        metadata = response_metadata(incoming.envelope, own_trace())
        repeated = Answered(first.model_copy(update={"metadata": metadata}))
        return await self._send(incoming, repeated, "again", counted=False)

    async def refuse(self, topic: str, payload: bytes, error: ContextBuilderError) -> None:
        """Answer with an error to the sender of a payload on a topic, if it can be answered."""
        is_recall = topic == Topics.CONTEXT_RECALL_REQUEST
        try:
            decode = decode_recall if is_recall else decode_request
            envelope = decode(payload, max_bytes=self._settings.max_payload_bytes).envelope
        except RejectedError as rejected:
            if rejected.envelope is None or not rejected.envelope.identified:
                return
            envelope = rejected.envelope
        except Exception:  # no request may end the worker
            log.exception("request.failed")
            return
        response = serialize(
            error_response(BuildResponse, envelope, error, self.bus.now(), own_trace())
        )
        self._metrics.count("build_requests", error.code)
        self.on_refusal(envelope, error)
        # lists and streams are for answers; their readers find this on the common channel
        may_reply = self._reply_problem(envelope) is None
        reply_to, kind = self._reply_address(envelope, may_reply=may_reply)
        channel = reply_to if kind == "channel" else self._response_topic(envelope)
        try:
            await self.bus.publish_to(channel, response)
        except ForbiddenError:  # a retry would block the other requests on the channel
            log.warning("bus.reply_refused", reply_to=channel, kind="channel")

    async def _send(
        self,
        incoming: Incoming,
        answered: AnyAnswered,
        mode: AnswerMode,
        *,
        dead_letter: str | None = None,
        counted: bool = True,
    ) -> Receipt:
        """Send an answer; once it is sent, count it if wanted, and start the work after it."""
        may_reply = incoming.may_reply
        reply_to, reply_kind = self._reply_address(incoming.envelope, may_reply=may_reply)
        answer = Answer(
            delivery=incoming.delivery,
            identity=incoming.identity,
            fingerprint=incoming.envelope.fingerprint,
            response=serialize(answered.response),
            reply_to=reply_to,
            reply_kind=reply_kind,
            mode=mode,
            dead_letter=dead_letter,
        )
        with timed(self._metrics, "send"):
            if self.spans:
                self.spans.describe_sending(answer)
            receipt = await self.sender.send(answer)
        if receipt.outcome is AnswerOutcome.FORBIDDEN:
            # an error on the common channel replaces what the server refuses to deliver
            error = _bad_reply("the service has no permission to write there")
            answered, counted = self._fail(incoming, error), True
            answer = replace(answer, response=serialize(answered.response), mode="again")
            topic = self._response_topic(incoming.envelope)
            receipt = await self.sender.send(replace(answer, reply_to=topic, reply_kind="channel"))
        if receipt.outcome is AnswerOutcome.NOT_MINE:
            self._metrics.count("duplicates_suppressed", "lease_lost")
        if receipt.outcome is AnswerOutcome.SENT:
            if counted:
                self._count(incoming, answered)
            if answered.built:
                for work in self.after_answer:
                    work.keep(answered.built)
        return receipt

    def _count(self, incoming: Incoming, answered: AnyAnswered) -> None:
        failure = _find_error(answered.response)
        self._metrics.count("build_requests", failure.code if failure else "success")
        if answered.error:
            self.on_refusal(incoming.envelope, answered.error)

    async def _build(self, incoming: Incoming) -> AnyAnswered:
        """Build the answer to a request, or the error that prevents it; log and measure it."""
        began = self.bus.now()
        answered: AnyAnswered
        try:
            if isinstance(incoming.request, ContextBuilderError):
                raise incoming.request
            answered = await self._build_in_time(incoming, incoming.request, began)
        except ContextBuilderError as error:
            answered = self._fail(incoming, error)
        record_build(incoming.delivery, answered, began, self.bus.now(), self._metrics)
        return answered

    async def _build_in_time(
        self, incoming: Incoming, request: AnyRequest, now: datetime
    ) -> AnyAnswered:
        """Answer a request before the deadline; record the input of a context.

        Raises:
            DeadlineExceededError: The deadline has passed, or passes during the build.
            HistoryUnavailableError: The input can't be recorded.
            OverloadedError: Too many requests of its owner wait.
        """
        received_at, default_ms = incoming.delivery.received_at, self._settings.default_timeout_ms
        deadline = incoming.envelope.metadata.expires_at(received_at, default_ms)
        seconds = (deadline - now).total_seconds()
        if seconds <= 0:
            raise _late(deadline)
        behind = incoming.delivery.behind
        if behind is not None:
            lane = f"{incoming.delivery.source} {lane_of(request.owner_key)}"
            all_seconds = (deadline - received_at).total_seconds()
            if self.paces.refuses(lane, behind=behind, seconds=all_seconds):
                detail = "too many requests of this owner are waiting; try again later"
                raise OverloadedError(detail)
        try:
            async with asyncio.timeout(seconds):
                if isinstance(request, RecallRequest):
                    return await self.builder.answer_recall(request)
                answered = await self.builder.answer(request)
                if self.recorder and answered.built:
                    with timed(self._metrics, "record"):
                        own = request.options.past is None  # else the rows are the request's
                        stored = answered.built.gathered.history.current if own else ()
                        warning = await self.recorder.record_input(request, stored)
                    if warning:
                        answered = answered.with_warning(warning)
        except TimeoutError as error:
            raise _late(deadline) from error
        return answered

    def _fail(self, incoming: Incoming, error: ContextBuilderError) -> Answered[BuildResponse]:
        at = self.bus.now()
        response = error_response(BuildResponse, incoming.envelope, error, at, own_trace())
        return Answered(response, error=error)

    def _reply_problem(self, envelope: Envelope) -> str | None:
        """Return why a reply may not go where the request wants it; None if it may."""
        metadata = envelope.metadata
        if envelope.reply_unreadable:
            return "can't be read"
        if metadata.reply_to is None and metadata.reply_kind != "channel":
            return f"a reply of the kind {metadata.reply_kind} needs a reply_to"
        allowed = self._settings.reply_prefixes
        if metadata.reply_to is not None and not metadata.reply_to.startswith(allowed):
            return f"must begin with one of {', '.join(allowed)}"
        return None

    def _reply_address(self, envelope: Envelope, *, may_reply: bool) -> tuple[str, ReplyKind]:
        """Return where a response goes: to the common channel unless another is allowed."""
        metadata = envelope.metadata
        if metadata.reply_to is None or not may_reply:
            return self._response_topic(envelope), "channel"
        return metadata.reply_to, metadata.reply_kind

    @property
    def _settings(self) -> BusSettings:
        return self.builder.settings.bus

    @property
    def _metrics(self) -> Metrics:
        return self.builder.metrics

    def _response_topic(self, envelope: Envelope) -> str:
        is_recall = envelope.kind == "recall"
        topic = Topics.CONTEXT_RECALL_RESPONSE if is_recall else Topics.CONTEXT_BUILD_RESPONSE
        return f"{self._settings.prefix}{topic}"


def decode_request(
    payload: bytes, *, received_at: datetime | None = None, max_bytes: int = MAX_BYTES
) -> AnyRequest:
    """Read a request of either kind as `service.wire.request.decode`; raises `RejectedError`."""

    def choose(raw: JsonObject) -> type[AnyRequest]:
        return RecallRequest if is_recall(raw.get("content")) else BuildRequest

    return decode_as(choose, payload, received_at=received_at, max_bytes=max_bytes)


def record_build(
    delivery: Delivery, answered: AnyAnswered, began: datetime, ended: datetime, metrics: Metrics
) -> None:
    """Write the log line of a build, and record its metrics."""
    response = answered.response
    if answered.built:
        metrics.record_context(context_sizes(answered.built))
    content, seconds = response.content, (ended - began).total_seconds()
    # clocks may be set back in between
    metrics.record_duration("queue", max(0.0, (began - delivery.received_at).total_seconds()))
    metrics.record_duration("build", max(0.0, seconds))
    fields = {
        "request_id": response.metadata.request_id,
        "run_id": response.run_id,
        "owner_key": response.owner_key,
        "attempt": delivery.attempt,
        "milliseconds": round(seconds * 1000, 1),
    }
    if content.status == "error":
        # pointers only, since details may quote the request; those on the reply address don't
        problems = content.error.errors
        pointers = [problem["pointer"] for problem in problems]
        if REPLY_TO in pointers:
            fields["reason"] = problems[pointers.index(REPLY_TO)]["detail"]
        record_failure(current_span(), content.error.code)
        log.warning("context.refused", **fields, code=content.error.code, places=pointers)
        return
    if isinstance(content, RecallSuccess):
        shown_rows = {"shown": len(content.messages), "left_out": content.left_out}
        log.info("context.recalled", **fields, total=content.usage.total, **shown_rows)
        return
    log.info(
        "context.built",
        **fields,
        build_id=content.build_id,
        model=content.usage.model,
        total=content.usage.total,
        available=content.usage.available,
        blocks=content.usage.blocks,
        **content.outcomes,
        warnings=[warning.code for warning in content.warnings],
    )


def _late(deadline: datetime) -> DeadlineExceededError:
    return DeadlineExceededError(f"the deadline {deadline.isoformat()} has passed")


def _bad_reply(detail: str) -> InvalidRequestError:
    problem = Problem(REPLY_TO, detail)
    return InvalidRequestError(f"{problem.pointer}: {detail}", [problem])


def _reason(incoming: Incoming) -> str:
    """Return why a request is dead."""
    return f"delivered {times(incoming.delivery.attempt - 1)} without an answer"


def _is_internal(stored: StoredResult) -> bool:
    error = (stored.response or {}).get("content", {}).get("error", {})
    return bool(error.get("code") == ContextBuilderError.code)


def _find_error(response: BuildResponse | RecallResponse) -> ErrorBody | None:
    return response.content.error if response.content.status == "error" else None
