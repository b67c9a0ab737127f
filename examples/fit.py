"""Fit a conversation of 60 messages into 200 tokens."""

import json
from pathlib import Path

from ctxb import fit

messages = json.loads(Path("service/cli/demo/history.json").read_text("utf-8"))
messages.append({"role": "user", "content": "What is the code of the key box?"})

fitted = fit(messages, max_tokens=200)

for index in (22, 30):
    print(f"{fitted.decisions[index].outcome}: {messages[index]['content']}")
print(fitted.explain())
