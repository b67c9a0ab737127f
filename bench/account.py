"""Check that the account of each build is true, by the texts of the rows that it is about.

    python -m bench.account --data DIR [--json]

Builds the conversations of DIR's ``tau_airline``, ``tau_threads``, ``swe_agent`` and ``locomo``
with every strategy, in both layouts, all formats and both presets. A row that is said to be kept
must be whole in the messages, and one that is said to be left out must not be, unless another row,
a summary or the input says the same. Rows of fewer than 40 characters prove nothing, so they are
passed over.
Prints the number of ``builds`` and ``kept_rows``, those ``kept_but_absent`` and
``left_out_but_present``, of which the first of each is written to standard error, and
``tool_results_kept_share``, the share of tool results that are kept.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, product
from pathlib import Path
from typing import Any, Final

from bench.laws.builds import FORMS, LAYOUTS
from bench.laws.cases import Case, Row, read_cases
from bench.report import over_data, show
from formatters.rows import read_content
from service.app import open_builder
from service.budget.strategies import STRATEGIES
from service.config.settings import Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess

SETS: Final = ("tau_airline", "tau_threads", "swe_agent", "locomo")
#: Tokens for history.
BUDGETS: Final = (1_000, 3_000)
#: A text of fewer characters may be anywhere by accident.
LEAST: Final = 40
#: Decisions that leave nothing of a row's own text; rows without a decision were not read.
LEFT_OUT: Final = frozenset({"dropped", "annotated", "cleared", "filtered", "not_read"})


@dataclass(slots=True)
class Account:
    """What the builds said of their rows, and where that was false."""

    builds: int = 0
    kept_rows: int = 0
    tool_results: int = 0
    tool_results_kept: int = 0
    #: Descriptions of rows.
    kept_but_absent: list[str] = field(default_factory=list)
    left_out_but_present: list[str] = field(default_factory=list)

    def add(self, name: str, rows: Sequence[Row], words: str, content: BuildSuccess) -> None:
        """Compare what a build says of its rows with what it sent; it may have ``words`` anyway."""
        self.builds += 1
        decided = {id_: each.decision for each in content.decisions for id_ in each.message_ids}
        bodies = [fold("\n".join(texts(content.messages)))]
        if content.provider_request:
            bodies.append(fold("\n".join(texts(content.provider_request))))
        folded = [fold(read_content(row.get("content"))) for row in rows]
        said = "\n".join([*folded, *map(fold, (words, *map(_calls, rows)))])
        for row, own in zip(rows, folded, strict=True):
            outcome = decided.get(row["id"], "not_read")
            if str(row.get("role")).lower() == "tool":
                self.tool_results += 1
                self.tool_results_kept += outcome == "kept"
            if len(own) < LEAST:
                continue
            example = f"{name}: {row['id']} is {outcome}"
            # a provider's own parts are sent to it in place of a text
            sent = bodies[:1] if _has_parts(row) else bodies
            if outcome == "kept":
                self.kept_rows += 1
                if any(own not in body for body in sent):
                    self.kept_but_absent.append(example)
            elif outcome in LEFT_OUT and said.count(own) == 1 and any(own in b for b in bodies):
                self.left_out_but_present.append(example)


def fold(text: str) -> str:
    """Return a text without what the guard inserts or removes: gutters, blanks, what is unseen."""
    return "".join(char for char in text if char.isprintable() and char not in "\\| \ufffd")


def texts(value: object) -> Iterator[str]:
    """Yield the texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def _calls(row: Row) -> str:
    """Return the texts of a row besides its content, such as the arguments of its calls."""
    return "\n".join(texts([row.get("metadata"), row.get("tool_calls")]))


def _has_parts(row: Row) -> bool:
    metadata = row.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("provider_parts") is not None


async def measure(cases: Sequence[Case]) -> Account:
    """Build each case in every way."""
    account = Account()
    forms = cycle(FORMS)
    for preset in ("classic", "recall"):
        for case in cases:
            async with open_builder(Settings(preset=preset)) as builder:
                await builder.history.append("o", case.past)
                for layout, strategy, budget in product(LAYOUTS, STRATEGIES, BUDGETS):
                    form = next(forms)
                    request = BuildRequest.model_validate(
                        _request(case, layout, strategy, budget, form)
                    )
                    content = (await builder.build(request)).content
                    summaries = builder.sources.summaries
                    made = await summaries.read("o", None) if summaries else ()
                    said = "\n".join([case.words, *(summary.text for summary in made)])
                    if isinstance(content, BuildSuccess):
                        name = f"{case.name} {preset} {layout} {strategy} {budget} {form}"
                        account.add(name, (*case.past, *case.run), said, content)
    return account


def _request(case: Case, layout: str, strategy: str, budget: int, form: str) -> dict[str, Any]:
    context = {
        "strategy": strategy,
        "layout": layout,
        "format": form,
        "memory_tokens": budget,
        # a run has as much
        "max_tokens": 2_000 + 2 * budget,
        "reserve_tokens": 0,
        "explain": True,
    }
    history = [{"id": "in", "content": case.words}, *case.run]
    content = {"history": history, "metadata": {"context": context}}
    return {"id": "q", "run_id": "q", "owner_key": "o", "content": content}


def read_sets(data: Path) -> list[Case]:
    """Return the cases of the sets that are compared."""
    return [case for case in read_cases(data) if case.name.split("/")[0] in SETS]


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, compare and print."""
    options = over_data(__doc__).parse_args(arguments)
    account = asyncio.run(measure(read_sets(options.data)))
    for false in (account.kept_but_absent, account.left_out_but_present):
        print(*false[:1], sep="", end="\n" * bool(false), file=sys.stderr)
    figures = {
        "builds": account.builds,
        "kept_rows": account.kept_rows,
        "kept_but_absent": len(account.kept_but_absent),
        "left_out_but_present": len(account.left_out_but_present),
        "tool_results_kept_share": round(
            account.tool_results_kept / max(account.tool_results, 1), 4
        ),
    }
    show(figures, as_json=options.json)


if __name__ == "__main__":
    main()
