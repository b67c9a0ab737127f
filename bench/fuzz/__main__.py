"""Check that no bytes make the decoding of requests fail other than by a rejection.

    python -m bench.fuzz [--seconds 60] [--corpus DIR] [--json]

Calls `service.wire.request.decode` with inputs that atheris, a coverage-guided fuzzer, generates
from requests in all forms. ``runs`` is the number of inputs, ``ways`` the number of code locations
reached, ``findings`` the number of inputs that raised anything but `RejectedError`; these are kept
in DIR, and the exit code is 1. Needs bench/requirements.txt.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.report import report
from service.wire.request import (
    BuildRequest,
    ContextOptions,
    RequestMetadata,
    Run,
    RunMessage,
    RunMetadata,
    ShortContent,
)

#: Bytes of the longest input that is tried, and seconds that one may take.
MAX_BYTES: Final = 4096
MAX_SECONDS: Final = 5

#: Requests from which atheris goes on.
SEEDS: Final = (
    b'{"id": "a", "owner_key": "o", "content": {"current_input": "hi"}}',
    b'{"schema_version": "1.0", "id": "a", "run_id": "r", "owner_key": "o", "role": "SYSTEM",'
    b'"content": {"id": "r", "owner_key": "o", "tools": [{"type": "function", "function": {"name":'
    b'"f", "parameters": {"type": "object", "properties": {}}}}], "history": [{"id": "m",'
    b'"run_id": "r", "role": "HUMAN", "content": "hi", "metadata": {}}, {"role": "AI", "content":'
    b'"", "metadata": {"tool_calls": [{"id": "c", "name": "f", "arguments": {"q": 1}}]}}],'
    b'"metadata": {"user_profile": {"prompt_overrides": {"friends_profile": "x"}},'
    b'"client_timezone_offset": -480, "context": {"model": "gpt-5", "max_tokens": 8000, "strategy":'
    b'[{"name": "none"}], "layout": "chat", "format": "gemini", "memory_limit": null, "blocks":'
    b'{"MOOD": "calm"}, "past": [{"id": "p"}], "context_management": {"edits": [{"type": "t"}]}}}},'
    b'"metadata": {"reply_to": "context.reply.a", "reply_kind": "list", "timeout_ms": 5,'
    b'"deadline": "2999-01-01T00:00:00Z"}}',
    b'{"id": "\\ud83d", "owner_key": "\\u0000", "content": [NaN, 1e999, -0, {"": []}]}',
)

#: Pieces that no chance would put together.
WORDS: Final = (
    "null",
    "true",
    "NaN",
    "-Infinity",
    "1e999",
    "\\ud83d",
    "\\u0000",
    "[[[[",
    "{}",
    "]",
)


def fuzz(folder: Path, seconds: int) -> dict[str, int]:
    """Run atheris for a while over the inputs in a folder; returns the figures."""
    corpus, found = folder / "corpus", folder / "findings"
    for each in (corpus, found):
        each.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS):
        (corpus / f"seed_{number}").write_bytes(seed)
    words = folder / "words"
    words.write_text("".join(f'"{_quoted(word)}"\n' for word in dictionary()))
    ended = subprocess.run(  # noqa: S603 - our own target
        [
            *(sys.executable, "-m", "bench.fuzz.target", str(corpus)),
            *(f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", f"-timeout={MAX_SECONDS}"),
            *(f"-artifact_prefix={found}/", f"-dict={words}", "-print_final_stats=1"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if "stat::number_of_executed_units" not in ended.stderr:
        raise SystemExit(ended.stderr)
    if ended.returncode:
        print(ended.stderr, file=sys.stderr)
    ways = re.findall(r"cov: (\d+)", ended.stderr)
    return {
        "runs": int(re.findall(r"number_of_executed_units: (\d+)", ended.stderr)[0]),
        "ways": int(ways[-1]),
        "findings": len(list(found.iterdir())),
    }


def dictionary() -> Sequence[str]:
    """Return every key that a request may have, in quotes, and the other words."""
    parts = (BuildRequest, RequestMetadata, Run, RunMetadata, RunMessage, ShortContent)
    keys = {key for part in (*parts, ContextOptions) for key in part.model_fields}
    return [*(f'"{key}": ' for key in sorted(keys)), *WORDS]


def _quoted(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"')


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="kept, and gone on from the next time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures = fuzz(options.corpus or Path(tempfile.mkdtemp(prefix="fuzz-")), options.seconds)
    findings = [f"{figures['findings']} findings"] if figures["findings"] else []
    return report(figures, findings, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
