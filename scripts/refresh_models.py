"""Write the table of models that comes with the service.

    python -m scripts.refresh_models --source FILE --version 1.109.1

The source is the file ``model_prices_and_context_window_backup.json``, which stands in the folder
``litellm`` of the wheel of the package litellm; unpack the wheel to get at it. The version is that
of the package. Nothing is read from the network.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from service.adapters.model_table import TABLE
from service.budget.limits import lookup

#: Who is asked for a model, the first one first: the vendors, then hosts of open models.
PROVIDERS: Final = (
    "openai",
    "anthropic",
    "vertex_ai-anthropic_models",
    "gemini",
    "vertex_ai-language-models",
    "xai",
    "deepseek",
    "mistral",
    "cohere_chat",
    "ai21",
    "dashscope",
    "moonshot",
    "zai",
    "minimax",
    "meta",
    "amazon_nova",
    "groq",
    "cerebras",
    "deepinfra",
)

#: OpenAI's windows for input and output together. For some models the file has the window where
#: for their siblings it has the input, which is the window less the output.
SHARED_WINDOWS: Final = (400_000, 1_050_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that count alike."""

    tokenizer: str = "o200k_base"
    factor: float = 1.0
    exact: bool = False


O200K: Final = Family(exact=True)
CL100K: Final = Family(tokenizer="cl100k_base", exact=True)

# A factor is the most tokens that a family's vocabulary took for one of o200k_base, over texts of a
# kind (conversations in English, in Japanese and in many languages, runs of agents, definitions of
# tools, code), rounded up to a twentieth. The vocabularies are those of splintr-rs 0.22.0; Gemma
# 3's stands for Gemini's, whose vendor's own package counts with it. Of Claude only one for older
# models is public. Of the newer ones their vendor says that they take about 30 % more tokens than
# the older, and others measured up to 47 % for English. The others were not measured.
OLDER_CLAUDE: Final = Family(factor=1.25)
NEWER_CLAUDE: Final = Family(factor=1.5)
GEMMA: Final = Family(factor=1.25)
LLAMA: Final = Family(factor=1.05)
DEEPSEEK: Final = Family(factor=1.1)
QWEN: Final = Family(factor=1.15)
KIMI: Final = Family(factor=1.15)
GLM: Final = Family(factor=1.05)
MISTRAL: Final = Family(factor=1.2)
OLDER_MISTRAL: Final = Family(factor=1.55)
PHI: Final = Family(factor=1.45)
NOT_MEASURED: Final = Family(factor=1.25)

#: Families by the start of their models' names. OpenAI's are those of tiktoken's own table, and
#: ``gpt-6``, which is not in it.
FAMILIES: Final[Mapping[str, Family]] = {
    "gpt-3.5": CL100K,
    "gpt-35": CL100K,
    "gpt-4": CL100K,
    "gpt-4.1": O200K,
    "gpt-4.5": O200K,
    "gpt-4o": O200K,
    "chatgpt-4o": O200K,
    "gpt-5": O200K,
    "gpt-6": Family(),
    "gpt-oss": O200K,
    "o1": O200K,
    "o3": O200K,
    "o4-mini": O200K,
    "claude": NEWER_CLAUDE,
    "claude-2": OLDER_CLAUDE,
    "claude-3": OLDER_CLAUDE,
    "claude-4": OLDER_CLAUDE,
    "claude-haiku-4": OLDER_CLAUDE,
    "claude-opus-4": OLDER_CLAUDE,
    "claude-opus-4-7": NEWER_CLAUDE,
    "claude-opus-4-8": NEWER_CLAUDE,
    "claude-sonnet-4": OLDER_CLAUDE,
    "gemini": GEMMA,
    "gemma": GEMMA,
    "grok": NOT_MEASURED,
    "deepseek": DEEPSEEK,
    "deepseek-r1-distill-llama": LLAMA,
    "deepseek-r1-distill-qwen": QWEN,
    "mistral": MISTRAL,
    "ministral": MISTRAL,
    "mixtral": OLDER_MISTRAL,
    "open-mistral": MISTRAL,
    "codestral": NOT_MEASURED,
    "devstral": MISTRAL,
    "magistral": MISTRAL,
    "pixtral": MISTRAL,
    "command": NOT_MEASURED,
    "jamba": NOT_MEASURED,
    "llama": LLAMA,
    "llama3": LLAMA,
    "llama4": LLAMA,
    "meta-llama": LLAMA,
    "muse": NOT_MEASURED,
    "qwen": QWEN,
    "qwen2": QWEN,
    "qwen3": QWEN,
    "qwq": QWEN,
    "kimi": KIMI,
    "glm": GLM,
    "minimax": NOT_MEASURED,
    "nova": NOT_MEASURED,
    "phi": PHI,
}

#: In names that are another one's: of a fine-tuned model, and of a version at a host.
MARKS: Final = frozenset(":@")

Row = dict[str, Any]


def main() -> None:
    """Read the source and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, metavar="FILE")
    parser.add_argument("--version", required=True, help="the version of litellm it is from")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    options = parser.parse_args()
    rows = table(json.loads(options.source.read_text(encoding="utf-8")))
    source = f"litellm {options.version}, {options.source.name}"
    TABLE.write_text(document(options.date, source, rows), encoding="utf-8")


def table(entries: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rows of the table: families without limits, and models in their order.

    A model has no row where the longest start of its name already says the same.
    """
    rows = {start: _row(family, None, None) for start, family in FAMILIES.items()}
    for name, entry in sorted(_models(entries).items()):
        row = _model_row(name, entry)
        shorter = {start: found for start, found in rows.items() if start != name}
        if lookup(name, shorter) != row:
            rows[name] = row
    return dict(sorted(rows.items()))


def document(date: str, source: str, rows: Mapping[str, Row]) -> str:
    """Return the table as JSON, a line a model."""
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    head = f'  "date": {json.dumps(date)},\n  "source": {json.dumps(source)},\n'
    return f'{{\n{head}  "models": {{\n{lines}\n  }}\n}}\n'


def _models(entries: Mapping[str, Row]) -> dict[str, Row]:
    """Return the entries of models that people name, by their bare names in lower case."""
    models: dict[str, Row] = {}
    for provider in PROVIDERS:
        for key, entry in entries.items():
            name = key.rpartition("/")[2].lower()
            if _is_chat(entry, provider) and _is_ours(name):
                models.setdefault(name, entry)
    return models


def _is_chat(entry: Row, provider: str) -> bool:
    if entry.get("litellm_provider") != provider or not entry.get("max_input_tokens"):
        return False
    return entry.get("mode") in {"chat", "responses"}


def _is_ours(name: str) -> bool:
    return not MARKS & set(name) and lookup(name, FAMILIES) is not None


def _model_row(name: str, entry: Row) -> Row:
    family = lookup(name, FAMILIES)
    assert family is not None  # noqa: S101 - others are not among the models
    most, answer = entry["max_input_tokens"], entry.get("max_output_tokens")
    if entry["litellm_provider"] == "openai" and most in SHARED_WINDOWS and answer:
        most -= answer
    # as much output as input is the window once more
    return _row(family, most, answer if answer and answer < entry["max_input_tokens"] else None)


def _row(family: Family, most: int | None, answer: int | None) -> Row:
    row: Row = {"max_input": most, "max_output": answer, "tokenizer": family.tokenizer}
    if family.factor != 1:
        row["factor"] = family.factor
    return {**row, "exact": family.exact}


if __name__ == "__main__":
    main()
