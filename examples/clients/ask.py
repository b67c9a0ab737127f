"""Ask for a context: ``python ask.py OWNER INPUT``; ``--help`` has the options.

The bus is in REDIS_URL or CTXB_BUS__URL, or that of a worker in this folder.
"""

import argparse
import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import redis  # the only thing to install


def ask(
    bus: redis.Redis, owner_key: str, content: dict[str, Any], *, seconds: int = 15, **more: str
) -> dict[str, Any]:
    """Return the response to a request with a timeout in seconds.

    ``more`` is added to the request: a ``conversation_id``, a ``run_id``, or an ``id`` to repeat.
    """
    request = {"id": f"msg_{uuid.uuid4().hex}", "owner_key": owner_key, "content": content, **more}
    reply_to = f"context.reply.{request['id']}"
    timeout = {"timeout_ms": seconds * 1000}
    request["metadata"] = {"reply_to": reply_to, "reply_kind": "list", **timeout}
    bus.xadd("context.build.request", {"data": json.dumps(request)})
    answer = bus.blpop([reply_to], timeout=seconds + 1)  # a request that expires is answered, too
    if answer is None:
        raise TimeoutError(f"no answer in {seconds} s: is a worker running?")
    return json.loads(answer[1])


def read_list(path: str) -> list[dict[str, Any]]:
    """Return the objects in a file."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error


def read_arguments() -> tuple[str, dict[str, Any]]:
    """Return the owner, and the content of the request."""
    parser = argparse.ArgumentParser(description="Ask for a context.")
    parser.add_argument("owner")
    parser.add_argument("input")
    parser.add_argument(
        "--history", type=read_list, metavar="FILE", help="messages before the input, in JSON"
    )
    parser.add_argument("--tools", type=read_list, metavar="FILE", help="tools in OpenAI's form")
    parser.add_argument("--max-tokens", metavar="N", help="the whole window, in tokens")
    parser.add_argument("--explain", action="store_true", help="the reason for each message")
    parser.add_argument("--recall-tool", action="store_true", help="offer the tool recall")
    parser.add_argument(
        "--recall", action="store_true", help="INPUT is what a model gave that tool: fetch messages"
    )
    given = parser.parse_args()
    if given.recall:
        try:
            return given.owner, json.loads(given.input)
        except ValueError as error:
            parser.error(f"INPUT is no JSON: {error}")
    context = {
        "past": given.history,
        "explain": given.explain,
        "recall_tool": given.recall_tool or None,
    }
    if given.max_tokens is not None:
        if not re.fullmatch("[1-9][0-9]*", given.max_tokens):
            parser.error("--max-tokens must be a whole number above 0")
        context["max_tokens"] = int(given.max_tokens)
    tools = {} if given.tools is None else {"tools": given.tools}
    return given.owner, {"current_input": given.input, "context": context, **tools}


def find_bus() -> str:
    """Return the URL of the bus."""
    url = os.environ.get("REDIS_URL") or os.environ.get("CTXB_BUS__URL")
    kept = Path(".ctxb/bus.url")
    if not url and not kept.exists():
        sys.exit(
            "no worker in this folder (.ctxb/bus.url is missing): "
            "start `ctxb worker` here, or set REDIS_URL"
        )
    return url or kept.read_text("utf-8").strip()


if __name__ == "__main__":
    owner, content = read_arguments()
    try:
        with redis.Redis.from_url(find_bus()) as bus:
            response = ask(bus, owner, content)
    except redis.ConnectionError as error:
        cause = str(error).rstrip(".")
        sys.exit(f"{cause}: start `ctxb worker` here, or correct REDIS_URL")
    except TimeoutError as error:
        sys.exit(str(error))
    json.dump(response, sys.stdout)
    sys.exit(response["content"]["status"] == "error")
