"""The steps that Redis takes as one, in Lua; plain enough for Redis 6.2 and every Valkey."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from service.adapters.redis.round_trip import Argument, round_trip


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the name under which the server caches it."""

    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class Call:
    """A script with what it works on."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]

    @property
    def key(self) -> str:
        """Return a key by which the server is found that has them all."""
        return self.keys[0]

    def words(self, *, by_name: bool) -> tuple[Argument, ...]:
        """Return what is sent; a server that doesn't know the name gets all of the script."""
        name = ("EVALSHA", self.script.sha) if by_name else ("EVAL", self.script.source)
        return (*name, len(self.keys), *self.keys, *self.arguments)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the server's own, with the key that it works on."""

    key: str
    said: tuple[Argument, ...]

    def words(self, *, by_name: bool) -> tuple[Argument, ...]:  # noqa: ARG002 - as scripts have it
        """Return what is sent."""
        return self.said


async def attempt(client: Redis, calls: Sequence[Call | Command]) -> list[Any]:
    """Run calls in their order in one round trip, each as one step; returns their replies.

    All of them run, whatever becomes of the others; a `ResponseError` stands in its reply's place.
    """
    if not calls:
        return []
    replies = await send(client, calls, by_name=True)
    unknown = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        again = await send(client, [calls[place] for place in unknown], by_name=False)
        for place, reply in zip(unknown, again, strict=True):
            replies[place] = reply
    return replies


def checked(replies: list[Any]) -> list[Any]:
    """Return replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


async def send(client: Redis, calls: Sequence[Call | Command], *, by_name: bool) -> list[Any]:
    """Send calls in one round trip; errors that the server answers stand in place of replies."""
    return await round_trip(client, [call.words(by_name=by_name) for call in calls])


def flat(fields: Mapping[str, bytes]) -> list[Argument]:
    """Return names and values in turn, as XADD takes them."""
    return [part for pair in fields.items() for part in pair]


def script(source: str) -> Script:
    """Return a script with its name."""
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


#: KEYS: set of the workers that heard the payload, stream.
#: ARGV: consumer, time to live of the set in ms, largest backlog, payload.
ENQUEUE = script("""
local heard, stream = KEYS[1], KEYS[2]
local consumer, ttl, max_backlog, payload = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('SISMEMBER', heard, consumer) == 1 then
  redis.call('DEL', heard) -- a retry: the others will hear it again as well
end
local first = redis.call('EXISTS', heard) == 0
redis.call('SADD', heard, consumer)
if not first then return 'known' end
redis.call('PEXPIRE', heard, ttl)
if redis.call('XLEN', stream) >= max_backlog then return 'refused' end
redis.call('XADD', stream, '*', 'data', payload)
return 'enqueued'
""")

#: Who holds an entry, for scripts to begin with.
HOLDER = """
local function holder(stream, group, entry)
  -- the group may be gone: then nobody holds the entry, and the answer goes out all the same
  local pending = redis.pcall('XPENDING', stream, group, entry, entry, 1)
  return pending[1] and pending[1][2]
end
"""

#: Whether this very answer is stored, for scripts to begin with: no other has its build and time.
OURS = """
local function ours(result, value)
  -- what stands for an answer too large to keep may stand for another's
  return string.sub(value, -9, -5) ~= 'null}' and redis.pcall('GET', result) == value
end
"""

#: Put a reply into a list or a stream, for scripts to begin with; returns -1, or -2 where the
#: place takes none, or an error that means every write, as OOM does: nothing is settled then.
PUT_REPLY = """
local function put_reply(reply, kind, response, ttl, length)
  local held = redis.call('TYPE', reply)['ok']
  if held ~= 'none' and held ~= kind then return -2 end
  local sent
  if kind == 'list' then
    sent = redis.pcall('RPUSH', reply, response)
  else
    sent = redis.pcall('XADD', reply, 'MAXLEN', '~', length, '*', 'data', response)
  end
  if type(sent) == 'table' then
    return string.sub(sent['err'], 1, 4) == 'ERR ' and -2 or sent -- ERR is this reply's own
  end
  redis.call('PEXPIRE', reply, ttl)
  return -1
end
"""

#: KEYS: stream. ARGV: group, consumer, lease in ms, entries at most.
#: Returns the entries as id, fields, deliveries; and the ids of those that were deleted.
CLAIM = script("""
local stream, group, consumer, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local claimed, lost = {}, {}
local pending = redis.call('XPENDING', stream, group, 'IDLE', lease, '-', '+', ARGV[4])
for _, held in ipairs(pending) do
  local entry = redis.call('XCLAIM', stream, group, consumer, lease, held[1])[1]
  if entry then
    claimed[#claimed + 1] = {entry[1], entry[2], held[4] + 1}
  else
    redis.call('XACK', stream, group, held[1])
    lost[#lost + 1] = held[1]
  end
end
return {claimed, lost}
""")

#: Whether a consumer holds an entry, for scripts to begin with; where the group is gone they fail,
#: so that it is made again.
HOLDS = """
local function holds(stream, group, consumer, entry)
  local pending = redis.call('XPENDING', stream, group, entry, entry, 1)[1]
  return pending and pending[2] == consumer
end
"""

#: KEYS: stream. ARGV: group, consumer, an option of XCLAIM and its value, entries.
HOLD_ON = script(f"""
{HOLDS}
local stream, group, consumer, option, value = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
for place = 5, #ARGV do
  local entry = ARGV[place]
  if holds(stream, group, consumer, entry) then
    redis.call('XCLAIM', stream, group, consumer, 0, entry, option, value, 'JUSTID')
  end
end
""")

#: KEYS: stream, dead letter. ARGV: group, consumer, entry, length of the dead letter, its fields.
DEAD_LETTER = script(f"""
{HOLDS}
local stream, dead, group, consumer, entry = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if holds(stream, group, consumer, entry) then
  redis.call('XADD', dead, 'MAXLEN', '~', ARGV[4], '*', unpack(ARGV, 5))
  redis.call('XACK', stream, group, entry)
end
""")

#: KEYS: dead letter, stream. ARGV: entry. Returns 1 where the entry went to the stream, else 0.
RETRY = script("""
local dead, stream, entry = KEYS[1], KEYS[2], ARGV[1]
local found = redis.call('XRANGE', dead, entry, entry)[1]
if not found then return 0 end
for place = 1, #found[2], 2 do
  if found[2][place] == 'data' then
    redis.call('XADD', stream, '*', 'data', found[2][place + 1])
    redis.call('XDEL', dead, entry)
    return 1
  end
end
return 0
""")

#: KEYS: stream. Returns how many entries were deleted.
TRIM = script("""
local stream = KEYS[1]

local function split(id) return string.match(id, '^(%d+)-(%d+)$') end

-- ids are 64 bits wide, a Lua number holds 53: compared as digits, none starts with a zero
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local function before(a, b)
  local ms_a, seq_a = split(a)
  local ms_b, seq_b = split(b)
  if ms_a ~= ms_b then return less(ms_a, ms_b) end
  return less(seq_a, seq_b)
end

local function after(id)
  local ms, seq = split(id)
  if #seq > 15 then return id end -- keeps one entry that could go
  return string.format('%s-%d', ms, tonumber(seq) + 1)
end

if redis.call('EXISTS', stream) == 0 then return 0 end
local keep_from = nil
local function need(id)
  if not keep_from or before(id, keep_from) then keep_from = id end
end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local facts = {}
  for place = 1, #group, 2 do facts[group[place]] = group[place + 1] end
  need(after(facts['last-delivered-id']))
  local oldest = redis.call('XPENDING', stream, facts['name'])[2]
  if oldest then need(oldest) end
end
if not keep_from then return 0 end
return redis.call('XTRIM', stream, 'MINID', keep_from)
""")

#: KEYS: stream. ARGV: group, consumer.
LEAVE = script("""
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
""")
