"""Generated conversations, the same in each run."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

#: The human's current question.
QUESTION: Final = "What did we decide about the boats?"

_WORDS: Final = (
    "lake",
    "quiet",
    "when",
    "we",
    "came",
    "back",
    "with",
    "both",
    "boats",
    "and",
    "why",
)
_START: Final = datetime(2025, 1, 1, tzinfo=UTC)


def conversation(length: int) -> list[dict[str, Any]]:
    """Return n rows, oldest first: a human and an AI in turn, a run each two, no tools.

    Each text is another one, and has a bracket, so that the guard looks at it line by line.
    """
    draw = random.Random(length)  # noqa: S311 - to be repeatable, not secret
    return [
        {
            "id": f"m{number}",
            "run_id": f"r{number // 2}",
            "role": "AI" if number % 2 else "HUMAN",
            "content": " ".join(draw.choices(_WORDS, k=draw.randint(5, 60))) + f" ({number})",
            "timestamp": (_START + timedelta(minutes=number)).isoformat(),
            "metadata": {},
        }
        for number in range(length)
    ]
