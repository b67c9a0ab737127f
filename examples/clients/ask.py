"""Ask for a context: ``python ask.py OWNER INPUT``, with the bus in REDIS_URL."""

import json
import os
import sys
import uuid
from typing import Any

import redis  # the only thing to install


def ask(bus: redis.Redis, owner_key: str, text: str, *, seconds: int = 15) -> dict[str, Any]:
    """Return the response to a request of so many seconds."""
    request_id = f"msg_{uuid.uuid4().hex}"
    reply_to = f"context.reply.{request_id}"
    request = {
        "id": request_id,
        "owner_key": owner_key,
        "content": {"current_input": text},
        "metadata": {"reply_to": reply_to, "reply_kind": "list", "timeout_ms": seconds * 1000},
    }
    bus.xadd("context.build.request", {"data": json.dumps(request)})
    answer = bus.blpop([reply_to], timeout=seconds)
    if answer is None:
        raise TimeoutError(f"no answer to {request_id} in {seconds} s")
    return json.loads(answer[1])


if __name__ == "__main__":
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as bus:
        json.dump(ask(bus, sys.argv[1], sys.argv[2]), sys.stdout)
