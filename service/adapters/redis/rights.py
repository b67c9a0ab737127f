"""Whether the user of a worker may do on its server what a worker does there."""

import re
from typing import Final

from redis.exceptions import ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.client import is_away
from service.adapters.redis.keys import Shard, report_key, shards_key
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers
from service.ports.bus import Identity
from service.wire.protocol import Topics

#: Asks the server itself, which then carries nothing out; there since Redis 7.0.
CHECK: Final = "return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0"

#: How a server says that it has no such function: Redis 6.2.
_UNKNOWN: Final = re.compile(r"acl_check_cmd")


async def denied(servers: Servers, options: BusOptions) -> list[str] | None:
    """Return the commands that are denied, with what they are for; None where none can tell.

    Raises the errors of redis-py where no server answers.
    """
    wanted = _wanted(options)
    key = options.prefix + Topics.CONTEXT_BUILD_REQUEST
    replies = await servers.attempt(
        [Command(key, ("EVAL", CHECK, 1, key, *words)) for words in wanted]
    )
    for reply in replies:
        if is_away(reply):
            raise reply
        if isinstance(reply, ResponseError):
            return None if _UNKNOWN.search(str(reply)) else [f"EVAL: {reply}"]
    pairs = zip(wanted, replies, strict=True)
    return [" ".join(_shown(words)) for words, allowed in pairs if not allowed]


def _wanted(options: BusOptions) -> list[tuple[str, ...]]:
    """Return commands that a worker gives, on keys and channels as it has them."""
    prefix, group = options.prefix, options.group
    shard = Shard(prefix)
    requests, dead = shard.stream, prefix + Topics.CONTEXT_BUILD_DEAD
    answer, heard = shard.result(Identity("ctxb", "doctor")), shard.heard(b"")
    results = (prefix + Topics.LLM_RESULTS, prefix + Topics.TOOLS_RESULTS)
    return [
        ("GET", shards_key(prefix)),
        ("GET", answer),
        ("MGET", answer),
        ("SET", answer, "x"),
        ("SET", report_key("bld", prefix), "x"),
        ("SADD", heard, "x"),
        ("PEXPIRE", heard, "1"),
        ("XADD", dead, "*", "data", "x"),
        ("PUBLISH", prefix + Topics.CONTEXT_BUILD_RESPONSE, "x"),
        ("PUBLISH", prefix + Topics.CONTEXT_PRUNED, "x"),
        ("SUBSCRIBE", requests),
        *(words for stream in (requests, *results) for words in _reading(stream, group)),
    ]


def _reading(stream: str, group: str) -> list[tuple[str, ...]]:
    return [
        ("XADD", stream, "*", "data", "x"),
        ("XLEN", stream),
        ("XGROUP", "CREATE", stream, group, "0", "MKSTREAM"),
        ("XINFO", "GROUPS", stream),
        ("XREADGROUP", "GROUP", group, "x", "STREAMS", stream, ">"),
        ("XPENDING", stream, group),
        ("XCLAIM", stream, group, "x", "0", "0-1"),
        ("XACK", stream, group, "0-1"),
        ("XTRIM", stream, "MINID", "0-1"),
    ]


def _shown(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command with its key, or channel, and nothing else."""
    containers = {"XGROUP": (0, 1, 2), "XINFO": (0, 1, 2), "XREADGROUP": (0, 5)}
    return tuple(words[place] for place in containers.get(words[0], (0, 1)))
