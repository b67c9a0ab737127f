#!/bin/sh
# Ask for a context with redis-cli:
#   sh ask.sh OWNER INPUT [--history FILE] [--tools FILE] [--max-tokens N] [--explain]
#     [--recall-tool] [--recall]
# The bus is in REDIS_URL or CTXB_BUS__URL, or that of a worker in this folder.
set -eu

usage="usage: sh ask.sh OWNER INPUT [--history FILE] [--tools FILE] [--max-tokens N] [--explain] [--recall-tool] [--recall]"
if [ $# -lt 2 ]; then
  echo "$usage" >&2
  exit 2
fi
owner=$1 input=$2
shift 2
while [ $# -gt 0 ]; do
  case $1 in
    --explain) explain=true; shift; continue ;;
    --recall-tool) recall_tool=true; shift; continue ;;
    --recall) recall=true; shift; continue ;;  # INPUT is what a model gave that tool
    --history) history=$2 ;;
    --tools) tools=$2 ;;
    --max-tokens) max_tokens=$2 ;;
    *) printf 'unknown option: %s\n%s\n' "$1" "$usage" >&2; exit 2 ;;
  esac
  shift 2
done
case ${max_tokens-1} in
  "" | 0* | *[!0-9]*) echo "--max-tokens must be a whole number above 0" >&2; exit 2 ;;
esac

url="${REDIS_URL:-${CTXB_BUS__URL:-$(cat .ctxb/bus.url 2>/dev/null || true)}}"
if [ -z "$url" ]; then
  echo 'no worker in this folder (.ctxb/bus.url is missing): start `ctxb worker` here, or set REDIS_URL' >&2
  exit 1
fi

id="msg_$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
# quotes, backslashes and control characters are escaped by jq; nothing else needs it
request=$(jq -cn --arg id "$id" --arg owner "$owner" --arg input "$input" \
  --slurpfile past "${history:-/dev/null}" --slurpfile tools "${tools:-/dev/null}" \
  --argjson max_tokens "${max_tokens:-null}" --argjson explain "${explain:-false}" \
  --argjson recall_tool "${recall_tool:-null}" --argjson recall "${recall:-false}" '{
    id: $id, owner_key: $owner,
    content: (if $recall then $input | fromjson else {current_input: $input,
        context: {past: $past[0], max_tokens: $max_tokens, explain: $explain, recall_tool: $recall_tool}}
      + if $tools == [] then {} else {tools: $tools[0]} end end),
    metadata: {reply_to: ("context.reply." + $id), reply_kind: "list", timeout_ms: 15000}
  }') || {
  echo "INPUT of --recall, or a file of --history or --tools, has no readable JSON: see above" >&2
  exit 2
}

# from stdin, since a command's arguments have a limit
if ! printf %s "$request" | redis-cli -u "$url" -x XADD context.build.request '*' data >&2; then
  echo 'no bus there: start `ctxb worker` here, or correct REDIS_URL' >&2
  exit 1
fi
answer=$(redis-cli -u "$url" --raw BLPOP "context.reply.$id" 16 | tail -n 1)
if [ -z "$answer" ]; then
  echo "no answer in 15 s: is a worker running?" >&2
  exit 1
fi
printf '%s\n' "$answer"
printf %s "$answer" | jq -e '.content.status == "success"' >/dev/null  # else exits with an error
