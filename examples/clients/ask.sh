#!/bin/sh
# Ask for a context with redis-cli: sh ask.sh OWNER INPUT, with the bus in REDIS_URL.
set -eu

id="msg_$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
# quotes, backslashes and control characters are escaped by jq; nothing else needs it
request=$(jq -cn --arg id "$id" --arg owner "$1" --arg input "$2" '{
  id: $id, owner_key: $owner, content: {current_input: $input},
  metadata: {reply_to: ("context.reply." + $id), reply_kind: "list", timeout_ms: 15000}
}')

redis-cli -u "$REDIS_URL" XADD context.build.request '*' data "$request" >&2
redis-cli -u "$REDIS_URL" --raw BLPOP "context.reply.$id" 15 | tail -n 1
