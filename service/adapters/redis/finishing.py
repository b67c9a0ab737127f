"""Send answers from a Redis bus: each is stored, sent and acked in one step."""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import structlog
from redis.exceptions import ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields
from service.adapters.redis.driver import (
    Argument,
    Call,
    Command,
    Script,
    as_bus_error,
    flatten,
    is_forbidden_key,
    is_unavailable,
)
from service.adapters.redis.scripts import OUTCOME, PUT_REPLY, UNUSABLE
from service.adapters.redis.servers import Servers
from service.adapters.redis.shards import Shard, Shards
from service.errors import OverloadedError
from service.ports.bus import Answer, AnswerOutcome, Receipt, ReplyKind
from service.wire.protocol import Topics
from service.wire.response import pack_result

#: The counts that `FINISH` returns for unknown receivers, and for a reply that its key or channel
#: refused.
UNKNOWN: Final = -1
REPLY_REFUSED: Final = -2

#: Bytes of responses in one call, unless a single one has more: the server runs nothing else
#: meanwhile.
BATCH_BYTES: Final = 262_144

#: Finish answers to requests of one stream, each independently of the others.
#: KEYS: stream, the result of each answer; then, for a single answer, the dead-letter stream if the
#: request is dead, and the reply unless it is a channel (a channel is no key, and a user who may
#: publish there may have no right to a key of that name).
#: ARGV: group, consumer, time to live of results in ms, kind of replies, their time to live in ms,
#: length of a reply stream, lease in ms, number of answers; for each answer its mode, result,
#: entry, response and destination; if the request is dead, the length of the dead-letter stream
#: and the fields. If that stream can't be used, the answer is sent, but the request isn't acked.
#: Returns for each answer the outcome and the receivers (-1 if not known, -2 if the reply was
#: refused), or the error for which the request is not acked, though the answer may be stored.
FINISH: Final = Script(f"""
{OUTCOME}
{PUT_REPLY}
{UNUSABLE}
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local kind, answers = ARGV[4], tonumber(ARGV[8])
local dead = KEYS[answers + 2]

local function send(response, reply)
  if kind ~= 'channel' then return put_reply(reply, kind, response, ARGV[5], ARGV[6]) end
  local heard = redis.pcall('PUBLISH', reply, response)
  -- an error concerns this reply alone: PUBLISH writes nothing
  return type(heard) == 'table' and -2 or heard
end

local function finish(result, mode, value, entry, response, reply)
  local due = outcome(mode, result, value, ARGV[3], stream, group, consumer, entry, ARGV[7])
  if due ~= 'send' then return {{due, -1}} end
  local fields, uncopied = 9 + 5 * answers, nil
  if #ARGV >= fields then -- first, as it may fail: then no reply has been sent
    local copy = redis.pcall('XADD', dead, 'MAXLEN', '~', ARGV[fields], '*',
      unpack(ARGV, fields + 1))
    uncopied = type(copy) == 'table' and copy['err']
    if uncopied and not unusable(uncopied) then return copy end
  end
  local receivers = send(response, reply)
  if type(receivers) == 'table' then return receivers end
  -- with another value at its key, there is no entry to ack
  if not uncopied then redis.pcall('XACK', stream, group, entry) end
  return {{'sent', receivers}}
end

local receipts = {{}}
for index = 1, answers do
  local first = 4 + 5 * index
  local done, receipt = pcall(finish, KEYS[index + 1], unpack(ARGV, first, first + 4))
  -- an error is a text up to Redis 6.2, but has to be a table to be returned
  receipts[index] = (done or type(receipt) == 'table') and receipt or {{err = receipt}}
end
return receipts
""")

#: Why a reply may have been refused.
_REFUSAL: Final[Mapping[ReplyKind, str]] = {
    "channel": "the user may not publish there",
    "list": "the key has a value of another type",
    "stream": "the key has a value of another type, or the stream takes no more entries",
}

log = structlog.get_logger(__name__)


class Finisher:
    """Stores, sends and acks answers: each in one step if one server has all its keys."""

    def __init__(self, servers: Servers, shards: Shards, options: BusOptions) -> None:
        #: Replies to lists and streams that the server's ACL rules forbade.
        self.forbidden = 0
        self._servers = servers
        self._shards = shards
        self._options = options
        self._result_ms = int(options.result_ttl_seconds * 1000)
        self._reply_ms = int(options.reply_ttl_seconds * 1000)

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Finish answers in one round trip; raises redis-py's errors if no server answers.

        If a cluster node is unavailable, its deliveries are no longer ours: they stay pending on
        it, and the worker that claims them later answers them.
        """
        answered = await self._answered_elsewhere(answers)
        replies: dict[int, Any] = dict.fromkeys(answered, (b"answered", UNKNOWN))
        replies |= await self._finish_batches(answers, _batches(answers, answered))
        await self._count_receivers(answers, replies)
        return [self._receipt(answer, replies[index]) for index, answer in enumerate(answers)]

    async def _answered_elsewhere(self, answers: Sequence[Answer]) -> set[int]:
        """Return the first answers to requests that were answered on another shard's stream."""
        keys = [
            (index, key)
            for index, answer in enumerate(answers)
            if answer.mode == "first"
            for key in self._shards.other_result_keys(answer.identity, answer.delivery.source)
        ]
        replies = await self._servers.execute([Command("EXISTS", key) for _, key in keys])
        return {index for (index, _), reply in zip(keys, replies, strict=True) if reply == 1}

    async def _finish_batches(
        self, answers: Sequence[Answer], batches: Sequence[Sequence[int]]
    ) -> dict[int, Any]:
        """Finish each batch in one call; returns the reply to each answer.

        If a call is refused, its answers are finished in a call each.
        """
        calls = [self._call([answers[index] for index in batch]) for batch in batches]
        replies: dict[int, Any] = {}
        refused: list[list[int]] = []
        for batch, reply in zip(batches, await self._servers.execute(calls), strict=True):
            if len(batch) > 1 and _may_concern_one(reply):
                refused += ([index] for index in batch)
            else:
                receipts = reply if isinstance(reply, list) else [reply] * len(batch)
                replies.update(zip(batch, receipts, strict=True))
        return replies | (await self._finish_batches(answers, refused) if refused else {})

    def _call(self, answers: Sequence[Answer]) -> Call:
        """Return the call of `FINISH` for a batch."""
        options, first = self._options, answers[0]
        shard = Shard(options.prefix, first.delivery.source)
        keys = [shard.stream, *(shard.result(answer.identity) for answer in answers)]
        arguments: list[Argument] = [options.group, options.consumer, self._result_ms]
        arguments += [first.reply_kind, self._reply_ms, options.reply_max_length]
        arguments += [int(options.lease_seconds * 1000), len(answers)]
        for answer in answers:
            value = b""
            if answer.mode == "first":
                value = pack_result(answer.fingerprint, answer.response, options.result_max_bytes)
            arguments += (answer.mode, value, answer.delivery.token)
            arguments += (answer.response, answer.reply_to)
        if first.dead_letter is not None:
            keys.append(options.prefix + Topics.CONTEXT_BUILD_DEAD)
            now = self._servers.clock.now()
            fields = dead_letter_fields(first.delivery, first.dead_letter, now)
            arguments += [options.dead_max_length, *flatten(fields)]
        if first.reply_kind != "channel":
            keys.append(first.reply_to)
        return Call(FINISH, keys, arguments)

    async def _count_receivers(self, answers: Sequence[Answer], replies: dict[int, Any]) -> None:
        """Count subscribers where a script reached none: a cluster node knows only its own."""
        unheard = [
            index
            for index, reply in replies.items()
            if not isinstance(reply, Exception) and reply[1] == 0
        ]
        if unheard:
            channels = [answers[index].reply_to for index in unheard]
            counts = await self._servers.count_subscribers(channels)
            for index, count in zip(unheard, counts, strict=True):
                replies[index] = [replies[index][0], count]

    def _receipt(self, answer: Answer, reply: Any) -> Receipt:  # noqa: ANN401 - Lua's reply
        # the server refuses a script, before it begins, for the key of its reply
        if answer.reply_kind != "channel" and is_forbidden_key(reply):
            self.forbidden += 1
            log.warning("bus.reply_forbidden", reply_to=answer.reply_to, kind=answer.reply_kind)
            return Receipt(outcome=AnswerOutcome.FORBIDDEN)
        if isinstance(reply, ResponseError):
            return Receipt(outcome=AnswerOutcome.FAILED, error=as_bus_error("finish", reply))
        if is_unavailable(reply):
            return Receipt(outcome=AnswerOutcome.NOT_MINE)
        outcome, receivers = reply
        if receivers == REPLY_REFUSED:
            place = {"reply_to": answer.reply_to, "kind": answer.reply_kind}
            log.warning("bus.reply_refused", **place, reason=_REFUSAL[answer.reply_kind])
        known = receivers if receivers >= 0 else None
        return Receipt(outcome=AnswerOutcome(outcome.decode()), receivers=known)


def _batches(answers: Sequence[Answer], answered: Container[int]) -> list[list[int]]:
    """Group the answers that one call can finish: on channels, to requests of one stream.

    Answers to lists and streams, and those of dead requests, are finished alone: the server
    refuses a whole call if it forbids one of its keys.
    """
    batches: list[list[int]] = []
    open_batches: dict[str, tuple[list[int], int]] = {}
    for index, answer in enumerate(answers):
        if index in answered:
            continue
        alone = answer.reply_kind != "channel" or answer.dead_letter is not None
        source, size = answer.delivery.source, len(answer.response)
        batch, room = open_batches.get(source, ([], 0))
        if alone or size > room:
            batch, room = [], BATCH_BYTES
            batches.append(batch)
        batch.append(index)
        if not alone:
            open_batches[source] = batch, room - size
    return batches


def _may_concern_one(reply: object) -> bool:
    """Return whether a batch may have been refused because of one of its answers."""
    if not isinstance(reply, ResponseError):
        return False
    return not isinstance(as_bus_error("finish", reply), OverloadedError)
