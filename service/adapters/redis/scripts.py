"""Commands, and the Lua scripts that run several as one step on Redis 6.2, later, or any Valkey."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 by which the server caches it."""

    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class Call:
    """A script with its keys and arguments."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]

    @property
    def key(self) -> str:
        """Return the key by which a cluster finds the node."""
        return self.keys[0]

    def words(self, *, by_sha: bool) -> tuple[Argument, ...]:
        """Return the command to send; a server that hasn't cached the script needs its source."""
        name = ("EVALSHA", self.script.sha) if by_sha else ("EVAL", self.script.source)
        return (*name, len(self.keys), *self.keys, *self.arguments)


@dataclass(frozen=True, slots=True)
class Command:
    """A command, with the key by which a cluster finds the node."""

    key: str
    parts: tuple[Argument, ...]

    def words(self, *, by_sha: bool) -> tuple[Argument, ...]:  # noqa: ARG002 - as `Call` has it
        """Return the command to send."""
        return self.parts


def script(source: str) -> Script:
    """Return a script with its SHA-1."""
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def flatten(fields: Mapping[str, bytes]) -> list[Argument]:
    """Return the names and values of fields in turn, as XADD takes them."""
    return [part for pair in fields.items() for part in pair]


# --- parts of scripts ------------------------------------------------------------------------

#: Defines `holder`: the consumer that has an entry pending, or nil.
HOLDER = """
local function holder(stream, group, entry)
  -- if the group is gone, nobody holds the entry, and the answer goes out nevertheless
  local pending = redis.pcall('XPENDING', stream, group, entry, entry, 1)
  return pending[1] and pending[1][2]
end
"""

#: Defines `holds`: whether a consumer has an entry pending. It fails if the group is gone, so that
#: the group is created again.
HOLDS = """
local function holds(stream, group, consumer, entry)
  local pending = redis.call('XPENDING', stream, group, entry, entry, 1)[1]
  return pending and pending[2] == consumer
end
"""

#: Defines `ours`: whether this very answer is stored. Build id and time make each answer unique.
OURS = """
local function ours(result, value)
  -- the placeholder of an answer that was too large to store may be another answer's
  return string.sub(value, -9, -5) ~= 'null}' and redis.pcall('GET', result) == value
end
"""

#: Defines `put_reply`: appends a reply to a list or a stream. Returns -1, or -2 if the key can't
#: take it, or an error that concerns all writes, such as OOM: then nothing is acked.
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
    return string.sub(sent['err'], 1, 4) == 'ERR ' and -2 or sent -- ERR concerns this key alone
  end
  redis.call('PEXPIRE', reply, ttl)
  return -1
end
"""

# --- requests --------------------------------------------------------------------------------

#: Enqueue a payload that several workers received on the channel.
#: KEYS: set of the workers that received the payload, stream.
#: ARGV: consumer, time to live of the set in ms, largest backlog, payload.
ENQUEUE = script("""
local heard, stream = KEYS[1], KEYS[2]
local consumer, ttl, max_backlog, payload = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('SISMEMBER', heard, consumer) == 1 then
  redis.call('DEL', heard) -- a retry: the other workers will receive it again as well
end
local first = redis.call('EXISTS', heard) == 0
redis.call('SADD', heard, consumer)
if not first then return 'known' end
redis.call('PEXPIRE', heard, ttl)
if redis.call('XLEN', stream) >= max_backlog then return 'refused' end
redis.call('XADD', stream, '*', 'data', payload)
return 'enqueued'
""")

#: Read new entries of several streams without waiting.
#: KEYS: streams. ARGV: group, consumer, maximum of entries over all streams.
#: Returns what XREADGROUP does.
TAKE = script("""
local group, consumer, remaining = ARGV[1], ARGV[2], tonumber(ARGV[3])
local taken = {}
for _, stream in ipairs(KEYS) do
  if remaining == 0 then break end
  local reply = redis.call(
    'XREADGROUP', 'GROUP', group, consumer, 'COUNT', remaining, 'STREAMS', stream, '>'
  )
  if reply and reply[1] then
    taken[#taken + 1] = reply[1]
    remaining = remaining - #reply[1][2]
  end
end
return taken
""")

#: Claim entries whose lease has expired.
#: KEYS: stream. ARGV: group, consumer, lease in ms, maximum of entries.
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

#: Change the lease of entries that this consumer still holds.
#: KEYS: stream. ARGV: group, consumer, an option of XCLAIM and its value, entries.
CHANGE_LEASE = script(f"""
{HOLDS}
local stream, group, consumer, option, value = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
for index = 5, #ARGV do
  local entry = ARGV[index]
  if holds(stream, group, consumer, entry) then
    redis.call('XCLAIM', stream, group, consumer, 0, entry, option, value, 'JUSTID')
  end
end
""")

#: Copy an entry to the dead-letter stream and ack it, if this consumer still holds it.
#: KEYS: stream, dead-letter stream.
#: ARGV: group, consumer, entry, maximum length of the dead-letter stream, fields.
DEAD_LETTER = script(f"""
{HOLDS}
local stream, dead, group, consumer, entry = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if holds(stream, group, consumer, entry) then
  redis.call('XADD', dead, 'MAXLEN', '~', ARGV[4], '*', unpack(ARGV, 5))
  redis.call('XACK', stream, group, entry)
end
""")

#: Move an entry from the dead-letter stream back to its stream.
#: KEYS: dead-letter stream, stream. ARGV: entry. Returns 1 if the entry was moved, else 0.
RETRY = script("""
local dead, stream, entry = KEYS[1], KEYS[2], ARGV[1]
local found = redis.call('XRANGE', dead, entry, entry)[1]
if not found then return 0 end
for index = 1, #found[2], 2 do
  if found[2][index] == 'data' then
    redis.call('XADD', stream, '*', 'data', found[2][index + 1])
    redis.call('XDEL', dead, entry)
    return 1
  end
end
return 0
""")

#: Delete the entries that every group has read and acked.
#: KEYS: stream. Returns how many entries were deleted.
TRIM = script("""
local stream = KEYS[1]

local function split(id) return string.match(id, '^(%d+)-(%d+)$') end

-- ids have 64 bits and a Lua number 53, so compare digits; no id starts with a zero
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
  if #seq > 15 then return id end -- keeps one entry that could be deleted
  return string.format('%s-%d', ms, tonumber(seq) + 1)
end

if redis.call('EXISTS', stream) == 0 then return 0 end
local keep_from = nil
local function need(id)
  if not keep_from or before(id, keep_from) then keep_from = id end
end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local facts = {}
  for index = 1, #group, 2 do facts[group[index]] = group[index + 1] end
  need(after(facts['last-delivered-id']))
  local oldest = redis.call('XPENDING', stream, facts['name'])[2]
  if oldest then need(oldest) end
end
if not keep_from then return 0 end
return redis.call('XTRIM', stream, 'MINID', keep_from)
""")

#: Remove a consumer from the group, unless it still holds entries.
#: KEYS: stream. ARGV: group, consumer.
LEAVE = script("""
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
""")
