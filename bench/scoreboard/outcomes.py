"""What became of a bench, and the file that keeps it until it is run again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["measured", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a bench."""

    state: State
    #: Why it was skipped, or how it failed.
    reason: str = ""
    #: The figures it printed; a bench that found a promise broken has some too.
    figures: Mapping[str, Any] = field(default_factory=dict)
    #: The minute in UTC when it began, and the tree that it ran on.
    began: str = ""
    tree: str = ""
    seconds: float = 0.0
    #: Processes that wanted a core when it began, by the kernel's average of a minute.
    load: float = 0.0


def keep(folder: Path, name: str, outcome: Outcome) -> None:
    """Write down what became of a bench."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def kept(folder: Path, name: str) -> Outcome | None:
    """Return what was written down, if anything was."""
    path = folder / f"{name}.json"
    return Outcome(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
