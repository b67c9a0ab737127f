"""Check that the HTTP interface answers any request as its OpenAPI document describes.

    python -m bench.http_fuzz [--examples 50] [--seed 1] [--json]

Serves a worker on a bus in memory, and lets schemathesis generate requests from the OpenAPI
document: once freely, once for an owner and builds that exist. ``cases`` is the number of requests,
``findings`` the number of kinds of answers that are server errors or not as described; these are
written to stderr, and the exit code is 1. Needs bench/requirements.txt.
"""

import argparse
import asyncio
import re
import shutil
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.report import report
from service.app import connect_client, open_bus, open_observed_worker
from service.config.endpoints import HealthSettings, HttpSettings
from service.config.settings import BusSettings, Settings
from service.observe.logs import configure_logging

OWNER: Final = "ana"
#: The checks of each answer.
CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
#: Never ends.
FEED: Final = "/v1/live"


async def fuzzed(tool: str, examples: int, seed: int) -> dict[str, int]:
    """Serve, send, and count."""
    port = _free_port()
    settings = Settings(
        bus=BusSettings(url="memory://"),
        health=HealthSettings(port=None),
        http=HttpSettings(port=port, content="full", concurrency=100),
    )
    async with (
        open_bus(settings) as connected,
        open_observed_worker(settings, connected.bus) as worker,
        connect_client(settings, connected.bus) as client,
        asyncio.TaskGroup() as tasks,
    ):
        stop = asyncio.Event()
        tasks.create_task(worker.run(stop))
        a, b = [
            await client.build({"owner_key": OWNER, "content": {"current_input": said}})
            for said in ("Where is the key?", "And the boat?")
        ]
        there = {
            "header.X-Owner-Key": OWNER,
            "path.id": a.build_id,
            "path.a": a.build_id,
            "path.b": b.build_id,
        }
        command = (
            *("run", f"http://127.0.0.1:{port}/v1/openapi.json", "--exclude-path", FEED),
            *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"),
            *("--max-examples", str(examples), "--seed", str(seed), "--no-color"),
        )
        reported = [await _run(tool, command, given) for given in ({}, there)]
        stop.set()
    return {
        "cases": sum(
            int(found) for text in reported for found in re.findall(r"(\d+) generated", text)
        ),
        "findings": sum(map(_findings, reported)),
    }


async def _run(tool: str, command: tuple[str, ...], given: Mapping[str, str]) -> str:
    """Run schemathesis with some parameters given; returns what it says."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "schemathesis.toml"
        lines = [f'"{name}" = "{value}"' for name, value in given.items()]
        config.write_text("\n".join(["[parameters]", *lines]), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(tool, "--config-file", str(config), *command), cwd=folder, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await process.communicate()
    text = said.decode(errors="replace")
    if process.returncode:
        sys.stderr.write(text)
    return text


def _findings(text: str) -> int:
    """Return how many kinds of failures the tool reported; raises if it didn't end."""
    if "SUMMARY" not in text:
        raise SystemExit("schemathesis did not come to an end")
    failures = text.rpartition("Failures:")[2] if "Failures:" in text else ""
    return sum(map(int, re.findall(r"❌ .*: (\d+)$", failures, re.MULTILINE)))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def main() -> None:
    """Fuzz and report."""
    parser = argparse.ArgumentParser(description="Send what schemathesis makes to the interface.")
    parser.add_argument("--examples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    tool = shutil.which("st", path=str(Path(sys.executable).parent)) or shutil.which("st")
    if tool is None:
        raise SystemExit("schemathesis is missing: install bench/requirements.txt")
    configure_logging("critical", "json", content=False, colors=False)
    found = asyncio.run(fuzzed(tool, asked.examples, asked.seed))
    broken = ["every answer is as described"] if found["findings"] else []
    sys.exit(report(found, broken, as_json=asked.json))


if __name__ == "__main__":
    main()
