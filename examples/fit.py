"""Fit a conversation of 60 messages into 200 tokens. Runs in any folder where ctxb is installed."""

import json
from pathlib import Path

import ctxb

package = Path(ctxb.__file__).parent
# an installed wheel has the folder `service` inside of `ctxb`, the repository beside it
root = package if (package / "service").is_dir() else package.parent
messages = json.loads((root / "service/cli/demo/history.json").read_text("utf-8"))
messages.append({"role": "user", "content": "What is the code of the key box?"})

fitted = ctxb.fit(messages, max_tokens=200)

for index in (22, 30):
    print(f"{fitted.decisions[index].outcome}: {messages[index]['content']}")
print(fitted.explain())
