"""What is one step on one server, in several for a cluster, where its keys lie on many nodes.

What comes first can be done twice, so a worker that dies in between doubles something, always
under the same id, and loses nothing.
"""

from collections.abc import Sequence
from typing import Any, Final

import structlog

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields
from service.adapters.redis.client import is_away
from service.adapters.redis.round_trip import Argument
from service.adapters.redis.scripts import HOLDER, OURS, PUT_REPLY, Call, Command, flat, script
from service.adapters.redis.servers import Servers
from service.ports.bus import Answer
from service.wire.protocol import Topics

log = structlog.get_logger()

#: KEYS: result, stream. ARGV: mode, result, its time to live in ms, group, consumer, entry.
#: Stores, and returns the outcome: `send` where the answer may go, `sent` where it is out.
#: What this worker has stored, and not settled, may go again.
STORE: Final = script(f"""
{HOLDER}
{OURS}
local result, stream = KEYS[1], KEYS[2]
local mode, group, consumer, entry = ARGV[1], ARGV[4], ARGV[5], ARGV[6]

local who = holder(stream, group, entry)
if mode == 'first' then
  if redis.call('SET', result, ARGV[2], 'NX', 'PX', ARGV[3]) then return 'send' end
  if who == consumer and redis.call('GET', result) == ARGV[2] then return 'send' end
  if not who and ours(result, ARGV[2]) then return 'sent' end
elseif not (who and who ~= consumer) then
  if (who and mode == 'again') or redis.call('EXISTS', result) == 0 then return 'send' end
end
return who == consumer and 'answered' or 'not_mine'
""")

#: KEYS: result. ARGV: what it may hold to be deleted.
FORGET: Final = script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")

#: KEYS: reply. ARGV: kind of reply, response, time to live in ms, length of a stream.
#: Returns the receivers as `FINISH` does.
SEND: Final = script(f"""
{PUT_REPLY}
return put_reply(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
""")

#: KEYS: stream. ARGV: group, consumer, entry. Returns 1 where this consumer holds the entry.
HOLDS: Final = script("""
local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
return held and held[2] == ARGV[2] and 1 or 0
""")


class Steps:
    """Finishes and buries over the nodes of a cluster."""

    def __init__(self, servers: Servers, options: BusOptions) -> None:
        self._servers = servers
        self._options = options

    async def finish(self, answer: Answer, result: str, value: bytes) -> Any:  # noqa: ANN401 - as FINISH replies
        """Store an answer, send it, bury its request where it is dead, and settle it last.

        Under the key ``result`` it leaves ``value``. Returns what the script `FINISH` would, or the
        error that kept a step from being done.
        """
        delivery, stream = answer.delivery, self._options.prefix + answer.delivery.source
        stored = await self._store(answer, (result, stream), value)
        if stored != b"send":
            return stored if isinstance(stored, Exception) else [stored, -1]
        receivers = await self._send(answer, stream)
        if isinstance(receivers, Exception):
            if answer.mode == "first" and not is_away(receivers):
                await self._one(Call(FORGET, (result,), (value,)))
            return receivers
        if answer.dead_letter is not None:
            now = self._servers.clock.now()
            buried = await self._bury(flat(dead_letter_fields(delivery, answer.dead_letter, now)))
            if isinstance(buried, Exception):
                return buried
        settled = await self._one(self._ack(stream, delivery.token))
        return settled if isinstance(settled, Exception) else [b"sent", receivers]

    async def dead_letter(self, stream: str, token: str, fields: Sequence[Argument]) -> None:
        """Copy an entry to the dead letter and settle it, while it is ours; raises as redis-py.

        Where the node of the dead letter is away, it stays pending and comes again.
        """
        options = self._options
        mine = await self._one(Call(HOLDS, (stream,), (options.group, options.consumer, token)))
        if mine == 1:
            mine = await self._bury(fields)
        if is_away(mine):
            log.warning("bus.not_buried", stream=stream, entry=token, reason=str(mine))
        elif isinstance(mine, Exception):
            raise mine
        elif mine != 0:
            await self._one(self._ack(stream, token))

    async def _store(self, answer: Answer, keys: Sequence[str], value: bytes) -> Any:  # noqa: ANN401 - the outcome
        options = self._options
        kept_ms = int(options.result_ttl_seconds * 1000)
        holder = (options.group, options.consumer, answer.delivery.token)
        return await self._one(Call(STORE, keys, (answer.mode, value, kept_ms, *holder)))

    async def _send(self, answer: Answer, stream: str) -> Any:  # noqa: ANN401 - the receivers
        options = self._options
        if answer.reply_kind == "channel":
            # at the node of the request, as the script does it
            said = ("PUBLISH", answer.reply_to, answer.response)
            sent = await self._one(Command(stream, said))
            return -2 if isinstance(sent, Exception) and not is_away(sent) else sent
        limits = (int(options.reply_ttl_seconds * 1000), options.reply_max_length)
        arguments = (answer.reply_kind, answer.response, *limits)
        return await self._one(Call(SEND, (answer.reply_to,), arguments))

    async def _bury(self, fields: Sequence[Argument]) -> Any:  # noqa: ANN401 - the id
        key = self._options.prefix + Topics.CONTEXT_BUILD_DEAD
        said = ("XADD", key, "MAXLEN", "~", self._options.dead_max_length, "*", *fields)
        return await self._one(Command(key, said))

    def _ack(self, stream: str, token: str) -> Command:
        return Command(stream, ("XACK", stream, self._options.group, token))

    async def _one(self, call: Call | Command) -> Any:  # noqa: ANN401 - the reply, or its error
        (reply,) = await self._servers.attempt([call])
        return reply
