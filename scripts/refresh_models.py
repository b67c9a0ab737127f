"""Generate the packaged table of models.

    python -m scripts.refresh_models --source FILE --version 1.109.1

The source is the file ``litellm/model_prices_and_context_window_backup.json`` in the wheel of the
package litellm, and the version is that of the package. Nothing is downloaded.
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

#: Providers whose entries are used, in order of precedence: vendors, then hosts of open models.
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

#: OpenAI's context windows, for input and output together. As the input limit of some models the
#: file has the whole window; of related models it has the window less the output.
SHARED_WINDOWS: Final = (400_000, 1_050_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models with the same tokenizer."""

    tokenizer: str = "o200k_base"
    factor: float = 1.0
    exact: bool = False


O200K: Final = Family(exact=True)
CL100K: Final = Family(tokenizer="cl100k_base", exact=True)

# A factor is the number of a family's tokens per token of o200k_base: the maximum over kinds of
# text (conversations in English, in Japanese and in many languages, runs of agents, definitions of
# tools, code), rounded up to a twentieth. The vocabularies are those of splintr-rs 0.22.0. Gemini
# is measured with Gemma 3's, which its vendor's own package uses for counting. For Claude, only a
# vocabulary of older models is public; the vendor states that newer models need about 30 % more
# tokens, and others measured up to 47 % more for English. The other families were not measured.
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

#: Families by the prefix of their models' names. OpenAI's are those of tiktoken's own table, and
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

#: Characters in names of variants: fine-tuned models, and a host's versions.
VARIANT_MARKS: Final = frozenset(":@")

Row = dict[str, Any]


def main() -> None:
    """Read the source and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, metavar="FILE")
    parser.add_argument("--version", required=True, help="the version of litellm")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    options = parser.parse_args()
    rows = table(json.loads(options.source.read_text(encoding="utf-8")))
    source = f"litellm {options.version}, {options.source.name}"
    TABLE.write_text(document(options.date, source, rows), encoding="utf-8")


def table(entries: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rows of the table: families, which have no limits, and models, sorted by name.

    A model has no row if the row of the longest prefix of its name is the same.
    """
    rows = {prefix: _row(family, None, None) for prefix, family in FAMILIES.items()}
    for name, entry in sorted(_models(entries).items()):
        row = _model_row(name, entry)
        others = {prefix: other for prefix, other in rows.items() if prefix != name}
        if lookup(name, others) != row:
            rows[name] = row
    return dict(sorted(rows.items()))


def document(date: str, source: str, rows: Mapping[str, Row]) -> str:
    """Return the table as JSON, one line per model."""
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    head = f'  "date": {json.dumps(date)},\n  "source": {json.dumps(source)},\n'
    return f'{{\n{head}  "models": {{\n{lines}\n  }}\n}}\n'


def _models(entries: Mapping[str, Row]) -> dict[str, Row]:
    """Return the entries of chat models, by name in lower case without the provider."""
    models: dict[str, Row] = {}
    for provider in PROVIDERS:
        for key, entry in entries.items():
            name = key.rpartition("/")[2].lower()
            if _is_chat(entry, provider) and _has_family(name):
                models.setdefault(name, entry)
    return models


def _is_chat(entry: Row, provider: str) -> bool:
    if entry.get("litellm_provider") != provider or not entry.get("max_input_tokens"):
        return False
    return entry.get("mode") in {"chat", "responses"}


def _has_family(name: str) -> bool:
    return not VARIANT_MARKS & set(name) and lookup(name, FAMILIES) is not None


def _model_row(name: str, entry: Row) -> Row:
    family = lookup(name, FAMILIES)
    assert family is not None  # noqa: S101 - `_models` has no others
    max_input, max_output = entry["max_input_tokens"], entry.get("max_output_tokens")
    if entry["litellm_provider"] == "openai" and max_input in SHARED_WINDOWS and max_output:
        max_input -= max_output
    # an output limit of the whole window is no limit of its own
    if max_output and max_output >= entry["max_input_tokens"]:
        max_output = None
    return _row(family, max_input, max_output or None)


def _row(family: Family, max_input: int | None, max_output: int | None) -> Row:
    row: Row = {"max_input": max_input, "max_output": max_output, "tokenizer": family.tokenizer}
    if family.factor != 1:
        row["factor"] = family.factor
    return {**row, "exact": family.exact}


if __name__ == "__main__":
    main()
