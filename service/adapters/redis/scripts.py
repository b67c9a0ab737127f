"""The Lua scripts that run several commands as one step, on Redis 6.2, later, or any Valkey."""

from collections.abc import Mapping
from typing import Any

from service.adapters.redis.driver import Script
from service.aio import LARGE_TEXT
from service.config.settings import LANE_PREFIX

#: Defines `holder`: the consumer that has an entry pending, or nil. If the group is gone, that is
#: an error, so that it is created again.
HOLDER = """
local function holder(stream, group, entry)
  local pending = redis.call('XPENDING', stream, group, entry, entry, 1)
  return pending[1] and pending[1][2]
end
"""

#: Defines `order`, which sorts ids of entries as the stream does.
ORDER = """
-- ids have 64 bits and a Lua number 53, so compare texts, of equal length
local function padded(digits) return string.rep('0', 20 - #digits) .. digits end

local function order(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return padded(ms) .. padded(seq)
end
"""

#: Defines `lane_of`, `is_lane` and `consumers`, the sizes of consumers that hold entries. A lane is
#: a consumer in whose name no worker reads: it holds entries that wait for a worker. The number of
#: lanes is limited, as each costs time in every call; so some owners share one (`lane_of` of the
#: port gives the end of the name). `LIGHT` is the lane of all owners that have few.
LANES = f"""
local LIGHT = '{LANE_PREFIX}'

local function lane_of(owner) return LIGHT .. string.sub(redis.sha1hex(owner), 1, 2) end

local function is_lane(consumer) return string.sub(consumer, 1, #LIGHT) == LIGHT end

local function consumers(stream, group)
  local sizes = {{}}
  for _, held in ipairs(redis.call('XPENDING', stream, group)[4] or {{}}) do
    sizes[held[1]] = tonumber(held[2])
  end
  return sizes
end
"""

#: Defines `unusable`: whether an error concerns a key that has another type, or is a stream that
#: takes no more entries.
UNUSABLE = """
local function unusable(err)
  return string.find(err, 'WRONGTYPE', 1, true) or string.find(err, 'last possible ID', 1, true)
end
"""

#: Defines `facts`, which makes a table of a reply to XINFO.
FACTS = """
local function facts(reply)
  local named = {}
  for index = 1, #reply, 2 do named[reply[index]] = reply[index + 1] end
  return named
end
"""

#: Defines `outcome`, which stores an answer of the mode `first` if it is due. Returns `send` if an
#: answer has to be sent, `sent` if it has been, `answered` if another one is stored, and `not_mine`
#: if this consumer doesn't hold the entry.
OUTCOME = """
-- whether this very answer is stored; build id and time make each answer unique
local function is_stored(result, value)
  -- the placeholder of an answer that was too large to store may be another answer's
  return string.sub(value, -9, -5) ~= 'null}' and redis.pcall('GET', result) == value
end

-- whether an entry has existed for a lease: before that, no other worker can have claimed it
local function claimable(entry, lease)
  local now = redis.call('TIME')
  return now[1] * 1000 + now[2] / 1000 - string.match(entry, '^%d+') >= tonumber(lease)
end

local function outcome(mode, result, value, ttl, stream, group, consumer, entry, lease)
  local first = mode == 'first'
  local pending = redis.pcall('XPENDING', stream, group, entry, entry, 1)
  local who = pending[1] and pending[1][2]
  if who and who ~= consumer then return 'not_mine' end
  if not who then
    if first and is_stored(result, value) then return 'sent' end
    -- settled by another worker, whose answer may have expired; if the server has lost the group
    -- or the entry, the answer goes out nevertheless
    if not pending['err'] and claimable(entry, lease) then return 'not_mine' end
  end
  local due
  if first then
    due = redis.call('SET', result, value, 'NX', 'PX', ttl) or is_stored(result, value)
  else
    due = (who and mode == 'again') or redis.call('EXISTS', result) == 0
  end
  return due and 'send' or (who and 'answered' or 'not_mine')
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

#: Enqueue a payload that several workers received on the channel.
#: KEYS: set of the workers that received the payload, stream.
#: ARGV: consumer, time to live of the set in ms, largest backlog, payload.
#: Returns `enqueued`, `known`, `refused`, or `alone` if the key of the set has another type: then
#: each worker enqueues its copy.
ENQUEUE = Script(f"""
{UNUSABLE}
local heard, stream = KEYS[1], KEYS[2]
local consumer, ttl, max_backlog, payload = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local received = redis.pcall('SISMEMBER', heard, consumer)
local is_set = type(received) ~= 'table'
if is_set then
  if received == 1 then
    redis.call('DEL', heard) -- a retry: the other workers will receive it again as well
  end
  local first = redis.call('EXISTS', heard) == 0
  redis.call('SADD', heard, consumer)
  if not first then return 'known' end
  redis.call('PEXPIRE', heard, ttl)
elseif not unusable(received['err']) then
  return received
end
if redis.call('XLEN', stream) >= max_backlog then return 'refused' end
redis.call('XADD', stream, '*', 'data', payload, unpack(ARGV, 5))
return is_set and 'enqueued' or 'alone'
""")

#: Claim entries whose lease has expired.
#: KEYS: stream. ARGV: group, consumer, lease in ms, maximum of entries, 1 to count the delivery
#: or 0.
#: Returns the entries as id, fields, deliveries; the ids of those that were deleted; and how many
#: wait in lanes.
CLAIM = Script(f"""
{LANES}
{ORDER}
local stream, group, consumer, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local claimed, lost, expired, waiting = {{}}, {{}}, {{}}, 0
for name, size in pairs(consumers(stream, group)) do
  if is_lane(name) then
    waiting = waiting + size
  else
    local range = {{'IDLE', lease, '-', '+', ARGV[4], name}}
    for _, held in ipairs(redis.call('XPENDING', stream, group, unpack(range))) do
      expired[#expired + 1] = held
    end
  end
end
table.sort(expired, function(one, other) return order(one[1]) < order(other[1]) end)
for index = 1, math.min(#expired, tonumber(ARGV[4])) do
  local held = expired[index]
  local count = held[4] + tonumber(ARGV[5])
  local entry = redis.call(
    'XCLAIM', stream, group, consumer, lease, held[1], 'RETRYCOUNT', count)[1]
  if entry then
    claimed[#claimed + 1] = {{entry[1], entry[2], held[4] + 1}}
  else
    redis.call('XACK', stream, group, held[1])
    lost[#lost + 1] = held[1]
  end
end
return {{claimed, lost, waiting}}
""")

#: Move new entries to lanes, then take entries: those of owners with few before those of the
#: others, who take turns; on every eighth call the other way round, as either could
#: fill all slots. An owner with more than `SHARE` new entries gets a lane, until that is empty; a
#: large entry counts as several. An entry in a lane has no delivery yet, also for workers that know
#: no lanes.
#: KEYS: stream. ARGV: group, consumer, entries to take, those of them that may be from lanes of
#: owners with many, number of the call, entries that this consumer has taken from these so far.
#: Returns the entries as id, fields, deliveries, and -1 or, from such a lane, how many more of
#: it each worker has to expect; the ids of those that were deleted; and how many still wait.
TAKE_FAIRLY = Script(f"""
{LANES}
local SHARE, LIGHT_ENTRIES, READ_ENTRIES, READ_BYTES = 8, 64, 500, 1048576
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local sizes = consumers(stream, group)

-- empty if a payload names none, or can't be read
local function owner_of(payload)
  if #payload >= {LARGE_TEXT} then
    return string.match(payload, '"owner_key"%s*:%s*"([^"]*)"') or ''
  end
  local is_json, request = pcall(cjson.decode, payload)
  local owner = is_json and type(request) == 'table' and request['owner_key']
  return type(owner) == 'string' and owner or ''
end

local function read()
  local ids, costs, count, bytes = {{}}, {{}}, 0, 0
  repeat
    -- one at a time, as any may be large
    local command = {{'GROUP', group, LIGHT, 'COUNT', 1, 'STREAMS', stream, '>'}}
    local reply = redis.call('XREADGROUP', unpack(command))
    if not reply then return ids, costs, false end
    local entry, payload = reply[1][2][1], ''
    for index = 1, #entry[2], 2 do
      bytes = bytes + #entry[2][index] + #entry[2][index + 1]
      if entry[2][index] == 'data' then payload = entry[2][index + 1] end
    end
    local owner = owner_of(payload)
    ids[owner] = ids[owner] or {{}}
    table.insert(ids[owner], entry[1])
    costs[owner] = (costs[owner] or 0) + 1 + math.floor(#payload / {LARGE_TEXT})
    count = count + 1
  until count >= READ_ENTRIES or bytes >= READ_BYTES
  return ids, costs, true
end

local function sort(ids, costs)
  local lanes = {{}}
  for owner, entries in pairs(ids) do
    local lane = lane_of(owner)
    if not sizes[lane] and costs[owner] <= SHARE then lane = LIGHT end
    lanes[lane] = lanes[lane] or {{}}
    for _, entry in ipairs(entries) do table.insert(lanes[lane], entry) end
  end
  for lane, entries in pairs(lanes) do
    sizes[lane] = (sizes[lane] or 0) + #entries
    for _, word in ipairs({{'RETRYCOUNT', 0, 'JUSTID'}}) do table.insert(entries, word) end
    redis.call('XCLAIM', stream, group, lane, 0, unpack(entries))
  end
end

local taken, lost, workers = {{}}, {{}}, 1
for name in pairs(sizes) do
  if not is_lane(name) and name ~= consumer then workers = workers + 1 end
end

local function take(lane, count)
  for _, held in ipairs(redis.call('XPENDING', stream, group, '-', '+', count, lane)) do
    local entry = redis.call('XCLAIM', stream, group, consumer, 0, held[1], 'RETRYCOUNT', 1)[1]
    sizes[lane] = sizes[lane] - 1
    if entry then
      local behind = lane == LIGHT and -1 or math.floor(sizes[lane] / workers)
      taken[#taken + 1] = {{entry[1], entry[2], 1, behind}}
    else
      redis.call('XACK', stream, group, held[1])
      lost[#lost + 1] = held[1]
    end
  end
  if sizes[lane] == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, lane)
    sizes[lane] = nil
  end
end

local slots, heavy = tonumber(ARGV[3]), tonumber(ARGV[4])
local turn, served = tonumber(ARGV[5]), tonumber(ARGV[6])
if (sizes[LIGHT] or 0) < LIGHT_ENTRIES then
  local ids, costs, unread = read()
  sort(ids, costs)
  if unread then heavy = math.min(heavy, 1) end -- what is unread is sorted first
end

local function take_light()
  if sizes[LIGHT] and slots > #taken then take(LIGHT, slots - #taken) end
end

local function take_heavy()
  local lanes = {{}}
  for name in pairs(sizes) do
    if is_lane(name) and name ~= LIGHT then lanes[#lanes + 1] = name end
  end
  table.sort(lanes)
  local last = math.min(slots, #taken + heavy)
  for index = 1, #lanes do
    local share = math.ceil((last - #taken) / (#lanes - index + 1))
    if share > 0 then take(lanes[(served + index - 1) % #lanes + 1], share) end
  end
end

if turn % 8 == 0 then take_heavy() end
take_light()
if turn % 8 ~= 0 then take_heavy() end

local waiting = 0
for name, size in pairs(sizes) do
  if is_lane(name) then waiting = waiting + size end
end
if waiting == 0 then redis.call('XGROUP', 'DELCONSUMER', stream, group, LIGHT) end
return {{taken, lost, waiting}}
""")

#: Find the oldest entry that a worker holds. KEYS: stream. ARGV: group. Returns its id, or nil.
OLDEST = Script(f"""
{LANES}
{ORDER}
local stream, group, oldest = KEYS[1], ARGV[1], nil
for name in pairs(consumers(stream, group)) do
  local held = not is_lane(name) and redis.call('XPENDING', stream, group, '-', '+', 1, name)[1]
  if held and (not oldest or order(held[1]) < order(oldest)) then oldest = held[1] end
end
return oldest
""")

#: Find the pending entries, of all consumers, that precede the last of some entries.
#: KEYS: stream. ARGV: group, these entries in their order, which are left out.
#: Returns entries as `CLAIM` does.
EARLIER = Script("""
local stream, group = KEYS[1], ARGV[1]
local given, earlier = {}, {}
for index = 2, #ARGV do given[ARGV[index]] = true end
for _, held in ipairs(redis.call('XPENDING', stream, group, '-', ARGV[#ARGV], 10000)) do
  -- claimed for its own consumer, to be read without a right to XRANGE
  local entry = not given[held[1]] and redis.call('XCLAIM', stream, group, held[2], 0, held[1],
    'IDLE', held[3], 'RETRYCOUNT', held[4])[1]
  if entry then earlier[#earlier + 1] = {entry[1], entry[2], held[4]} end
end
return earlier
""")

#: Change the lease of entries that this consumer still holds.
#: KEYS: stream. ARGV: group, consumer, an option of XCLAIM and its value, entries.
CHANGE_LEASE = Script(f"""
{HOLDER}
local stream, group, consumer, option, value = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
for index = 5, #ARGV do
  local entry = ARGV[index]
  if holder(stream, group, entry) == consumer then
    redis.call('XCLAIM', stream, group, consumer, 0, entry, option, value, 'JUSTID')
  end
end
""")

#: Copy an entry to the dead-letter stream and ack it, if this consumer still holds it.
#: KEYS: stream, dead-letter stream.
#: ARGV: group, consumer, entry, maximum length of the dead-letter stream, fields.
DEAD_LETTER = Script(f"""
{HOLDER}
local stream, dead, group, consumer, entry = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if holder(stream, group, entry) == consumer then
  redis.call('XADD', dead, 'MAXLEN', '~', ARGV[4], '*', unpack(ARGV, 5))
  redis.call('XACK', stream, group, entry)
end
""")

#: Move an entry from the dead-letter stream back to its stream.
#: KEYS: dead-letter stream, stream. ARGV: entry. Returns 1 if the entry was moved, else 0.
RETRY = Script("""
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

#: The greatest possible id: after an entry with it, a stream takes no more.
LAST_ID = "18446744073709551615-18446744073709551615"

#: Delete the entries that every group has read and acked.
#: KEYS: stream. Returns how many entries were deleted, or -1 if a group has read `LAST_ID`.
TRIM = Script(f"""
{FACTS}
{ORDER}
local stream = KEYS[1]

local function after(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if #seq > 15 then return id end -- keeps one entry that could be deleted
  return string.format('%s-%d', ms, tonumber(seq) + 1)
end

if redis.call('EXISTS', stream) == 0 then return 0 end
local keep_from, exhausted = nil, false
local function need(id)
  if not keep_from or order(id) < order(keep_from) then keep_from = id end
end
for _, reply in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local group = facts(reply)
  exhausted = exhausted or group['last-delivered-id'] == '{LAST_ID}'
  need(after(group['last-delivered-id']))
  local oldest = redis.call('XPENDING', stream, group['name'])[2]
  if oldest then need(oldest) end
end
if not keep_from then return 0 end
local deleted = redis.call('XTRIM', stream, 'MINID', keep_from)
return exhausted and -1 or deleted
""")

#: Recreate a stream if it has given out `LAST_ID`, so that it takes entries again. Entries keep
#: their ids, except those with a time in the future, which get new ones; groups keep what they have
#: read and what is pending, with its consumers and deliveries.
#: KEYS: stream, a key for the new one. Returns 1 if the stream was recreated, else 0.
RENUMBER = Script(f"""
local stream, fresh = KEYS[1], KEYS[2]
{FACTS}
{ORDER}
if redis.call('TYPE', stream)['ok'] ~= 'stream' then return 0 end
if facts(redis.call('XINFO', 'STREAM', stream))['last-generated-id'] ~= '{LAST_ID}' then
  return 0
end
local now = redis.call('TIME')
local function in_future(id)
  return tonumber(string.match(id, '^%d+')) > now[1] * 1000 + now[2] / 1000
end

redis.call('DEL', fresh)
local renamed, later, kept, after = {{}}, {{}}, '0-0', '-'
repeat
  local page = redis.call('XRANGE', stream, after, '+', 'COUNT', 20)
  for _, entry in ipairs(page) do
    local id, fields = entry[1], entry[2]
    if in_future(id) then
      renamed[id] = redis.call('XADD', fresh, '*', unpack(fields))
      later[#later + 1] = id
    else
      kept = redis.call('XADD', fresh, id, unpack(fields))
    end
    after = '(' .. id
  end
until #page < 20 or renamed['{LAST_ID}'] -- nothing can follow it
for _, reply in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local name, read = facts(reply)['name'], facts(reply)['last-delivered-id']
  if in_future(read) then
    local last = #later -- the entry that was read last may have been deleted
    while last > 0 and order(later[last]) > order(read) do last = last - 1 end
    read = renamed[later[last]] or kept
  end
  redis.call('XGROUP', 'CREATE', fresh, name, read, 'MKSTREAM')
  local total = redis.call('XPENDING', stream, name)[1]
  local pending = total > 0 and redis.call('XPENDING', stream, name, '-', '+', total) or {{}}
  for _, held in ipairs(pending) do
    redis.call('XCLAIM', fresh, name, held[2], 0, renamed[held[1]] or held[1],
      'IDLE', held[3], 'RETRYCOUNT', held[4], 'FORCE', 'JUSTID')
  end
end
if redis.call('EXISTS', fresh) == 1 then
  redis.call('RENAME', fresh, stream)
else
  redis.call('DEL', stream)
end
return 1
""")

#: Remove a consumer from the group, unless it still holds entries.
#: KEYS: stream. ARGV: group, consumer.
LEAVE = Script("""
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
""")


def is_lane(consumer: bytes) -> bool:
    """Return whether a consumer is a lane, where entries wait, and not a worker."""
    return consumer.startswith(LANE_PREFIX.encode())


def count_waiting(pending: Mapping[str, Any]) -> int:
    """Return how many entries of a reply to XPENDING wait in lanes."""
    return sum(each["pending"] for each in pending["consumers"] if is_lane(each["name"]))
