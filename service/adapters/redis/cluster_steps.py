"""Run a script in several steps if its keys lie on several nodes of a cluster.

The order of the steps decides what a worker that dies in between leaves behind: something may be
doubled, always under the same id, but nothing is lost.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog
from redis.exceptions import RedisError, ResponseError

from service.adapters.redis.driver import (
    Argument,
    Call,
    Command,
    Script,
    is_unavailable,
    is_unusable_key,
)
from service.adapters.redis.finishing import FINISH, REPLY_REFUSED, UNKNOWN
from service.adapters.redis.scripts import DEAD_LETTER, HOLDER, OUTCOME, PUT_REPLY, RETRY

log = structlog.get_logger(__name__)

#: Store an answer if it is due; returns its outcome.
#: KEYS: result, stream. ARGV: mode, result, its time to live in ms, group, consumer, entry, lease.
STORE: Final = Script(f"""
{OUTCOME}
local mode, value, ttl = ARGV[1], ARGV[2], ARGV[3]
return outcome(mode, KEYS[1], value, ttl, KEYS[2], ARGV[4], ARGV[5], ARGV[6], ARGV[7])
""")

#: Delete a stored answer.
#: KEYS: result. ARGV: the value that it must have to be deleted.
UNSTORE: Final = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")

#: Send a reply to a list or a stream.
#: KEYS: reply. ARGV: kind of reply, response, time to live in ms, length of a stream.
#: Returns the receivers as `FINISH` does.
SEND: Final = Script(f"""
{PUT_REPLY}
return put_reply(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
""")

#: KEYS: stream. ARGV: group, consumer, entry. Returns 1 if this consumer holds the entry.
HOLDS_ENTRY: Final = Script(f"""
{HOLDER}
return holder(KEYS[1], ARGV[1], ARGV[3]) == ARGV[2] and 1 or 0
""")

#: Runs one call; returns its reply, or raises redis-py's errors.
Run = Callable[[Command], Awaitable[Any]]


async def finish_in_steps(run: Run, call: Call) -> Any:  # noqa: ANN401 - as FINISH replies
    """Store an answer, send it, dead-letter the request if it is dead, and ack the request last.

    The call of `FINISH` is for one answer.
    """
    group, consumer, result_ms, kind, reply_ms, reply_length, lease, _, *answer = call.arguments
    mode, value, entry, response, reply_to, *dead = answer
    stream, result, *other = call.keys
    held = (group, consumer, entry, lease)
    stored = await run(Call(STORE, (result, stream), (mode, value, result_ms, *held)))
    if stored != b"send":
        return [[stored, UNKNOWN]]
    # a channel on the request's node, as the script does
    reply: Command = Command("PUBLISH", reply_to, response, at=stream)
    if kind != "channel":
        reply = Call(SEND, (str(reply_to),), (kind, response, reply_ms, reply_length))
    try:
        receivers = await run(reply)
    except ResponseError:
        if kind != "channel":
            if mode == "first":
                with suppress(RedisError, OSError):  # the sender must get the refusal
                    await run(Call(UNSTORE, (result,), (value,)))
            raise
        receivers = REPLY_REFUSED
    settle: list[Command] = [Command("XACK", stream, group, entry)]
    if dead:
        length, *fields = dead
        settle.insert(0, _add_dead_letter(other[0], length, fields))
    await _run_while_usable(run, settle)
    return [[b"sent", receivers]]


async def _run_while_usable(run: Run, commands: Sequence[Command]) -> None:
    """Run commands up to the first whose key can't be used."""
    for command in commands:
        try:
            await run(command)
        except ResponseError as error:
            if not is_unusable_key(error):
                raise
            return


async def dead_letter_in_steps(run: Run, call: Call) -> Any:  # noqa: ANN401 - as DEAD_LETTER replies
    """Copy an entry to the dead-letter stream and ack it, if this consumer still holds it.

    While the node of the dead-letter stream is unavailable, the entry stays pending and is
    delivered again.
    """
    stream, dead = call.keys
    group, consumer, entry, length, *fields = call.arguments
    if not await run(Call(HOLDS_ENTRY, (stream,), (group, consumer, entry))):
        return None
    try:
        await run(_add_dead_letter(dead, length, fields))
    except (RedisError, OSError) as error:
        if is_unavailable(error):
            log.warning("bus.dead_letter_failed", stream=stream, entry=entry, reason=str(error))
        raise
    return await run(Command("XACK", stream, group, entry))


async def retry_in_steps(run: Run, call: Call) -> Any:  # noqa: ANN401 - as RETRY replies
    """Move an entry from the dead-letter stream back to its stream: copy it first."""
    dead, stream = call.keys
    (entry,) = call.arguments
    for _, fields in await run(Command("XRANGE", dead, entry, entry)):
        if b"data" in fields:
            await run(Command("XADD", stream, "*", "data", fields[b"data"]))
            return await run(Command("XDEL", dead, entry))
    return 0


def _add_dead_letter(key: str, length: Argument, fields: Sequence[Argument]) -> Command:
    return Command("XADD", key, "MAXLEN", "~", length, "*", *fields)


#: By the script whose keys may lie on several nodes.
STEPS: Final[Mapping[Script, Callable[[Run, Call], Awaitable[Any]]]] = {
    FINISH: finish_in_steps,
    DEAD_LETTER: dead_letter_in_steps,
    RETRY: retry_in_steps,
}
