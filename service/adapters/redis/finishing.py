"""Answers on their way out of a Redis bus: stored, sent and settled."""

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any, Final

import structlog
from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields, pack
from service.adapters.redis.client import as_bus_error, is_away
from service.adapters.redis.keys import Shard
from service.adapters.redis.round_trip import Argument
from service.adapters.redis.scripts import HOLDER, OURS, PUT_REPLY, Call, Command, flat, script
from service.adapters.redis.servers import Servers
from service.adapters.redis.shards import Shards
from service.adapters.redis.steps import Steps
from service.errors import OverloadedError
from service.ports.bus import Answer, Outcome, Receipt
from service.wire.protocol import Topics

#: What `FINISH` returns in place of receivers: where they are not known, and where the reply's
#: place takes none.
NOT_KNOWN: Final = -1
REPLY_REFUSED: Final = -2

#: Bytes of responses in one call at most, unless one has more: the server does nothing else while
#: it finishes them.
TOGETHER_BYTES: Final = 262_144

#: Finishes answers to requests of one stream, each as if it were alone.
#: KEYS: stream, the result of each answer; where the answer is alone, the dead letter; the reply,
#: unless it is a channel: that is no key, and who may publish there may have no right to a key of
#: its name.
#: ARGV: group, consumer, time to live of results in ms, kind of replies, their time to live in ms,
#: length of a reply stream, number of answers; of each answer its mode, result, entry, response and
#: where it goes; where the request is dead as well, the length of the dead letter and its fields.
#: Returns of each answer the outcome and the receivers, -1 where they are not known, -2 where the
#: reply's place takes none; or the error for which it is not settled, though it may be stored.
FINISH: Final = script(f"""
{HOLDER}
{OURS}
{PUT_REPLY}
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local kind, answers = ARGV[4], tonumber(ARGV[7])
local dead = KEYS[answers + 2]

local function outcome(result, mode, value, entry)
  local first = mode == 'first'
  if first and redis.call('SET', result, value, 'NX', 'PX', ARGV[3]) then return 'send' end
  local who = holder(stream, group, entry)
  if who and who ~= consumer then return 'not_mine' end
  if first and ours(result, value) then return who and 'send' or 'sent' end
  -- settled by another meanwhile: who was given an answer is not given it again
  local free = not first and ((who and mode == 'again') or redis.call('EXISTS', result) == 0)
  return free and 'send' or (who and 'answered' or 'not_mine')
end

local function send(response, reply)
  if kind ~= 'channel' then return put_reply(reply, kind, response, ARGV[5], ARGV[6]) end
  local heard = redis.pcall('PUBLISH', reply, response)
  -- whatever keeps it from publishing there, it is this reply's own: PUBLISH writes nothing
  return type(heard) == 'table' and -2 or heard
end

local function finish(result, mode, value, entry, response, reply)
  local due = outcome(result, mode, value, entry)
  if due ~= 'send' then return {{due, -1}} end
  local fields = 8 + 5 * answers
  if #ARGV >= fields then -- first, as it may fail: then no reply is out
    redis.call('XADD', dead, 'MAXLEN', '~', ARGV[fields], '*', unpack(ARGV, fields + 1))
  end
  local receivers = send(response, reply)
  if type(receivers) == 'table' then return receivers end
  redis.call('XACK', stream, group, entry)
  return {{'sent', receivers}}
end

local receipts = {{}}
for place = 1, answers do
  local first = 3 + 5 * place
  local done, told = pcall(finish, KEYS[place + 1], unpack(ARGV, first, first + 4))
  -- what is raised is a text up to Redis 6.2, as a reply it has to be a table
  receipts[place] = (done or type(told) == 'table') and told or {{err = told}}
end
return receipts
""")

log = structlog.get_logger()


class Finisher:
    """Stores, sends and settles answers: each in one step where one server has all its keys."""

    def __init__(self, servers: Servers, shards: Shards, options: BusOptions) -> None:
        #: Replies in lists and streams that the server's rules kept this worker from writing.
        self.forbidden = 0
        self._servers = servers
        self._shards = shards
        self._options = options
        self._result_ms = int(options.result_ttl_seconds * 1000)
        self._reply_ms = int(options.reply_ttl_seconds * 1000)
        self._steps = Steps(servers, options)

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Finish answers in one round trip; raises what redis-py does where no server answers.

        An answer whose node of a cluster is away is no longer ours: its delivery is pending there,
        and whoever claims it when the node is back answers it.
        """
        elsewhere = await self._answered_elsewhere(answers)
        replies: dict[int, Any] = dict.fromkeys(elsewhere, (b"answered", NOT_KNOWN))
        parts = self._parts(answers, elsewhere)
        whole = [part for part in parts if self._is_whole(answers[part[0]])]
        replies |= await self._together(answers, whole)
        for place in range(len(answers)):
            if place not in replies:
                replies[place] = await self._in_steps(answers[place])
        await self._count_receivers(answers, replies)
        return [self._receipt(answer, replies[place]) for place, answer in enumerate(answers)]

    async def _answered_elsewhere(self, answers: Sequence[Answer]) -> set[int]:
        """Return the first answers to requests that were answered under another shard's name."""
        keys = [
            (place, key)
            for place, answer in enumerate(answers)
            if answer.mode == "first"
            for key in self._shards.rivals(answer.identity, answer.delivery.source)
        ]
        found = await self._servers.attempt([Command(key, ("EXISTS", key)) for _, key in keys])
        return {place for (place, _), reply in zip(keys, found, strict=True) if reply == 1}

    async def _together(
        self, answers: Sequence[Answer], parts: Sequence[Sequence[int]]
    ) -> dict[int, Any]:
        """Finish the answers of each part in one call; returns what was replied to each answer.

        Where a call is refused, each of its answers gets one of its own.
        """
        calls = [self._call([answers[place] for place in part]) for part in parts]
        replies: dict[int, Any] = {}
        apart: list[list[int]] = []
        for part, told in zip(parts, await self._servers.attempt(calls), strict=True):
            if len(part) > 1 and _may_be_for_one(told):
                apart += ([place] for place in part)
            else:
                each = told if isinstance(told, list) else [told] * len(part)
                replies.update(zip(part, each, strict=True))
        return replies | (await self._together(answers, apart) if apart else {})

    def _parts(self, answers: Sequence[Answer], done: Container[int]) -> list[list[int]]:
        """Put answers together that one call can finish: to requests of one stream, on channels.

        Others go alone: a server that forbids a call one of its keys refuses all of it.
        """
        parts: list[list[int]] = []
        filling: dict[str, tuple[list[int], int]] = {}
        for place, answer in enumerate(answers):
            if place in done:
                continue
            source, size, shares = answer.delivery.source, len(answer.response), _in_slot(answer)
            part, room = filling.get(source, ([], 0))
            if not shares or size > room:
                part, room = [], TOGETHER_BYTES
                parts.append(part)
            part.append(place)
            if shares:
                filling[source] = part, room - size
        return parts

    def _is_whole(self, answer: Answer) -> bool:
        """Say whether a step can do all that an answer needs."""
        return self._servers.undivided or _in_slot(answer)

    def _call(self, answers: Sequence[Answer]) -> Call:
        """Return what finishes answers that `_parts` put together."""
        options, first = self._options, answers[0]
        keys = [options.prefix + first.delivery.source, *map(self._result_key, answers)]
        if self._servers.undivided:
            keys.append(options.prefix + Topics.CONTEXT_BUILD_DEAD)
            keys += [] if first.reply_kind == "channel" else [first.reply_to]
        arguments: list[Argument] = [options.group, options.consumer, self._result_ms]
        arguments += [first.reply_kind, self._reply_ms, options.reply_max_length, len(answers)]
        for answer in answers:
            arguments += (answer.mode, self._value(answer), answer.delivery.token)
            arguments += (answer.response, answer.reply_to)
        if first.dead_letter is not None:
            now = self._servers.clock.now()
            fields = dead_letter_fields(first.delivery, first.dead_letter, now)
            arguments += [options.dead_max_length, *flat(fields)]
        return Call(FINISH, keys, arguments)

    async def _in_steps(self, answer: Answer) -> Any:  # noqa: ANN401 - as FINISH replies
        return await self._steps.finish(answer, self._result_key(answer), self._value(answer))

    def _result_key(self, answer: Answer) -> str:
        return Shard(self._options.prefix, answer.delivery.source).result(answer.identity)

    def _value(self, answer: Answer) -> bytes:
        """Return what is stored of an answer."""
        if answer.mode != "first":
            return b""
        return pack(answer.fingerprint, answer.response, self._options.result_max_bytes)

    async def _count_receivers(self, answers: Sequence[Answer], replies: dict[int, Any]) -> None:
        """Ask again where a script reached nobody: in a cluster it knows its own node's only."""
        silent = [
            place
            for place, reply in replies.items()
            if not isinstance(reply, Exception) and reply[1] == 0
        ]
        if silent and not self._servers.undivided:
            heard = await self._servers.unheard([answers[place].reply_to for place in silent])
            for place, count in zip(silent, heard, strict=True):
                replies[place] = [replies[place][0], count]

    def _receipt(self, answer: Answer, reply: Any) -> Receipt:  # noqa: ANN401 - Lua's reply
        if isinstance(reply, ResponseError) and not _forbids(answer, reply):
            return Receipt(outcome=Outcome.FAILED, error=as_bus_error("finish", reply))
        if isinstance(reply, ResponseError):
            self.forbidden += 1
            log.warning("bus.reply_forbidden", reply_to=answer.reply_to, kind=answer.reply_kind)
            return Receipt(outcome=Outcome.FORBIDDEN)
        if is_away(reply):
            return Receipt(outcome=Outcome.NOT_MINE)
        outcome, receivers = reply
        if receivers == REPLY_REFUSED:
            log.warning("bus.reply_refused", reply_to=answer.reply_to, kind=answer.reply_kind)
        return _read(outcome, receivers)


@lru_cache(maxsize=256)  # nearly all are the same
def _read(outcome: bytes, receivers: int) -> Receipt:
    """Read what `FINISH` returned of an answer."""
    told = receivers if receivers >= 0 else None
    return Receipt(outcome=Outcome(outcome.decode()), receivers=told)


def _in_slot(answer: Answer) -> bool:
    """Say whether all that an answer works on lies in the slot of its stream."""
    return answer.reply_kind == "channel" and answer.dead_letter is None


def _may_be_for_one(told: object) -> bool:
    """Say whether a whole call was refused for what one of its answers may have brought in."""
    if not isinstance(told, ResponseError):
        return False
    return not isinstance(as_bus_error("finish", told), OverloadedError)


def _forbids(answer: Answer, error: ResponseError) -> bool:
    """Say whether the server refused a script, before it began, for the key of its reply."""
    return answer.reply_kind != "channel" and isinstance(error, NoPermissionError)
