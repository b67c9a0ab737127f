"""Run a script in several steps if its keys lie on several nodes of a cluster.

The order of the steps decides what a worker that dies in between leaves behind: something may be
doubled, always under the same id, but nothing is lost.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from service.adapters.redis.connection import is_unavailable
from service.adapters.redis.finishing import FINISH, REPLY_REFUSED, UNKNOWN
from service.adapters.redis.scripts import (
    DEAD_LETTER,
    HOLDER,
    OURS,
    PUT_REPLY,
    RETRY,
    Argument,
    Call,
    Command,
    Script,
    script,
)

log = structlog.get_logger(__name__)

#: Store an answer, unless another one is stored.
#: KEYS: result, stream. ARGV: mode, result, its time to live in ms, group, consumer, entry.
#: Returns `send` if the answer has to be sent, `sent` if it has been, else the outcome. An answer
#: that this worker stored but did not ack has to be sent again.
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

#: Delete a stored answer.
#: KEYS: result. ARGV: the value that it must have to be deleted.
UNSTORE: Final = script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")

#: Send a reply to a list or a stream.
#: KEYS: reply. ARGV: kind of reply, response, time to live in ms, length of a stream.
#: Returns the receivers as `FINISH` does.
SEND: Final = script(f"""
{PUT_REPLY}
return put_reply(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
""")

#: KEYS: stream. ARGV: group, consumer, entry. Returns 1 if this consumer holds the entry.
HOLDS_ENTRY: Final = script("""
local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
return held and held[2] == ARGV[2] and 1 or 0
""")

#: Runs one call; returns its reply, or its error.
Run = Callable[[Call | Command], Awaitable[Any]]


async def finish_in_steps(run: Run, call: Call) -> Any:  # noqa: ANN401 - as FINISH replies
    """Store an answer, send it, dead-letter the request if it is dead, and ack the request last.

    The call of `FINISH` is for one answer. Returns its reply, or the error of the failed step.
    """
    receipt = await _finish(run, call)
    return receipt if isinstance(receipt, Exception) else [receipt]


async def _finish(run: Run, call: Call) -> Any:  # noqa: ANN401 - a receipt, or an error
    group, consumer, result_ms, kind, reply_ms, reply_length, _answers, *answer = call.arguments
    mode, value, entry, response, reply_to, *dead = answer
    stream, result, *other = call.keys
    holder = (group, consumer, entry)
    stored = await run(Call(STORE, (result, stream), (mode, value, result_ms, *holder)))
    if stored != b"send":
        return stored if isinstance(stored, Exception) else [stored, UNKNOWN]
    if kind == "channel":
        # on the request's node, as the script does
        receivers = await run(Command(stream, ("PUBLISH", reply_to, response)))
        if isinstance(receivers, Exception) and not is_unavailable(receivers):
            receivers = REPLY_REFUSED
    else:
        limits = (reply_ms, reply_length)
        receivers = await run(Call(SEND, (str(reply_to),), (kind, response, *limits)))
    if isinstance(receivers, Exception):
        if mode == "first" and not is_unavailable(receivers):
            await run(Call(UNSTORE, (result,), (value,)))
        return receivers
    if dead:
        length, *fields = dead
        added = await run(_add_dead_letter(other[0], length, fields))
        if isinstance(added, Exception):
            return added
    acked = await run(Command(stream, ("XACK", stream, group, entry)))
    return acked if isinstance(acked, Exception) else [b"sent", receivers]


async def dead_letter_in_steps(run: Run, call: Call) -> Any:  # noqa: ANN401 - as DEAD_LETTER replies
    """Copy an entry to the dead-letter stream and ack it, if this consumer still holds it.

    While the node of the dead-letter stream is unavailable, the entry stays pending and is
    delivered again.
    """
    stream, dead = call.keys
    group, consumer, entry, length, *fields = call.arguments
    held = await run(Call(HOLDS_ENTRY, (stream,), (group, consumer, entry)))
    if held != 1:
        return held if isinstance(held, Exception) else None
    added = await run(_add_dead_letter(dead, length, fields))
    if is_unavailable(added):
        log.warning("bus.not_buried", stream=stream, entry=entry, reason=str(added))
    if isinstance(added, Exception):
        return added
    return await run(Command(stream, ("XACK", stream, group, entry)))


async def retry_in_steps(run: Run, call: Call) -> Any:  # noqa: ANN401 - as RETRY replies
    """Move an entry from the dead-letter stream back to its stream: copy it first."""
    dead, stream = call.keys
    (entry,) = call.arguments
    entries = await run(Command(dead, ("XRANGE", dead, entry, entry)))
    if isinstance(entries, Exception) or not entries:
        return entries or 0
    ((_, fields),) = entries
    if b"data" not in fields:
        return 0
    added = await run(Command(stream, ("XADD", stream, "*", "data", fields[b"data"])))
    return (
        added if isinstance(added, Exception) else await run(Command(dead, ("XDEL", dead, entry)))
    )


def _add_dead_letter(key: str, length: Argument, fields: Sequence[Argument]) -> Command:
    return Command(key, ("XADD", key, "MAXLEN", "~", length, "*", *fields))


#: By the script whose keys may lie on several nodes.
STEPS: Final[Mapping[Script, Callable[[Run, Call], Awaitable[Any]]]] = {
    FINISH: finish_in_steps,
    DEAD_LETTER: dead_letter_in_steps,
    RETRY: retry_in_steps,
}
