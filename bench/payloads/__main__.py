"""Send malformed and hostile payloads to workers, and check what becomes of them.

    python -m bench.payloads [--count 200000] [--seed 1] [--workers 2] [--json]

Sends malformed, truncated, huge, deeply nested and hostile requests to real workers, in batches,
and hostile rows to the results streams. ``readable`` are those whose owner and id an independent
parser can read; ``unanswered`` those of them without an answer; ``answered`` and ``dead`` are all
replies and dead letters, and ``missing`` the payloads with neither. ``given_up`` are those whose
deliveries all failed. The exit code is 1 if a guarantee is broken; the output says which.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from bench.crew import Crew, open_crew
from bench.payloads.listening import Listener, open_listener
from bench.payloads.making import payload, result_row
from bench.payloads.reading import Sender, sender
from bench.report import report
from bench.servers import running_server

#: Payloads in a batch; the next is sent when all of one are settled.
BATCH: Final = 1000
#: Rows on the results streams next to a batch.
ROWS: Final = 50
#: Seconds after which a batch that is not settled counts as stuck.
PATIENCE_SECONDS: Final = 120.0
#: Seconds for the last replies of a batch to be heard.
HEARD_SECONDS: Final = 5.0
#: Bytes by which a worker may grow while the largest payloads are read.
MOST_GROWTH: Final = 512 * 1_048_576


@dataclass(slots=True)
class Tally:
    """What became of payloads."""

    sent: int = 0
    readable: int = 0
    answered: int = 0
    dead: int = 0
    unanswered: int = 0
    missing: int = 0
    given_up: int = 0
    rows: int = 0
    #: The first payloads that got no answer though they should have.
    examples: list[bytes] = field(default_factory=list)


async def send_all(listener: Listener, count: int, seed: int) -> Tally:
    """Send payloads in batches and report their outcomes."""
    tally = Tally()
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        payloads = [payload(seed, number) for number in numbers]
        rows = [result_row(seed, number) for number in numbers[:ROWS]]
        await listener.send(payloads, rows)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await listener.settled()
        await listener.heard(len(payloads), HEARD_SECONDS)
        _judge(tally, listener, payloads)
        tally.rows += len(rows)
        await listener.forget()
    return tally


def _judge(tally: Tally, listener: Listener, payloads: Sequence[bytes]) -> None:
    answered = set(listener.answered)
    tally.sent += len(payloads)
    tally.answered += len(listener.answered)
    tally.dead += len(listener.dead)
    tally.given_up += sum(letter.attempts > 1 for letter in listener.dead)
    for each in payloads:
        who: Sender | None = sender(each)
        tally.readable += who is not None
        if who is not None and who not in answered:
            tally.unanswered += 1
            tally.examples.append(each[:300])
    tally.missing += max(len(payloads) - len(listener.answered) - len(listener.dead), 0)


async def measure(count: int, seed: int, workers: int) -> tuple[dict[str, Any], list[bytes]]:
    """Return the figures, and payloads that went without an answer."""
    with tempfile.TemporaryDirectory(prefix="payloads-") as name:
        folder = Path(name)
        async with (
            running_server(folder / "server") as server,
            open_crew(folder, _settings(server.url, folder), size=workers) as crew,
            open_listener(server.url) as listener,
        ):
            before, began = _memory(crew), monotonic()
            tally = await send_all(listener, count, seed)
            figures = {
                name: getattr(tally, name)
                for name in ("sent", "readable", "answered", "dead", "unanswered", "missing")
            }
            return {
                **figures,
                "given_up": tally.given_up,
                "rows": tally.rows,
                "seconds": round(monotonic() - began, 1),
                "worker_exits": workers - len(crew.at_work),
                "tracebacks": sum(
                    1 for each in crew.workers for _ in each.events("request.failed")
                ),
                "rss_before_mb": [size // 1_048_576 for size in before],
                "rss_after_mb": [size // 1_048_576 for size in _memory(crew)],
                "rss_peak_mb": [each.usage().peak // 1_048_576 for each in crew.at_work],
            }, tally.examples


def broken(figures: dict[str, Any]) -> Iterator[str]:
    """Yield what was promised and did not hold."""
    for name in ("unanswered", "missing", "given_up", "worker_exits", "tracebacks"):
        if figures[name]:
            yield f"{figures[name]} {name}"
    growth = max(figures["rss_peak_mb"], default=0) - min(figures["rss_before_mb"])
    if growth * 1_048_576 > MOST_GROWTH:
        yield f"a worker grew by {growth} MB"


def _settings(url: str, folder: Path) -> dict[str, str]:
    return {
        "CTXB_BUS__URL": url,
        "CTXB_BUS__RESULT_TTL_SECONDS": "5",
        "CTXB_REPORTS__TTL_SECONDS": "5",
        "CTXB_STORE__URL": f"sqlite:///{folder / 'history.db'}",
    }


def _memory(crew: Crew) -> list[int]:
    return [worker.usage().rss for worker in crew.at_work]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures, examples = asyncio.run(measure(options.count, options.seed, options.workers))
    for example in examples[:20]:
        print(f"unanswered: {example!r}", file=sys.stderr)
    return report(figures, broken(figures), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
