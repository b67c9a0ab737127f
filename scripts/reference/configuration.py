"""The page of all settings: types from the models, meanings from config.example.yml."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from pydantic import BaseModel

from scripts.reference.comments import in_markdown, of_model
from scripts.reference.types import Schema, in_words
from service.config.content import Injection, McpServerSettings, PromptSection
from service.config.documents import EXAMPLE, comments
from service.config.paths import Keys, dotted
from service.config.settings import ModelLimit, Settings

_HEAD: Final = """\
# Settings

Every setting with its meaning, its variable, its type and its default.
This page is written by `make reference`, from the models and from `config.example.yml`.
Copy that file to begin with; `ctxb config show` prints what is in effect.
[operations.md](operations.md#configuration) says which source of values goes before which.

In a variable, lists and objects are JSON, and `null` is null.
Secrets are masked wherever settings are shown.
"""

#: The models of what stands in lists and mappings of settings, by the headings of their tables.
_ITEMS: Final[Mapping[str, type[BaseModel]]] = {
    "A model of `budget.model_limits`": ModelLimit,
    "A server of `tools.mcp`": McpServerSettings,
    "A section of `prompts.sections`": PromptSection,
    "A reminder of `prompts.injections`": Injection,
}

#: Where those tables stand on the page.
_PLACES: Final[Mapping[str, str]] = {
    "ModelLimit": "[limits](#a-model-of-budgetmodel_limits)",
    "McpServerSettings": "[servers](#a-server-of-toolsmcp)",
    "PromptSection": "[sections](#a-section-of-promptssections)",
    "Injection": "[reminders](#a-reminder-of-promptsinjections)",
}

#: Settings whose type the schema leaves open, since variables hold JSON in them.
_OPEN: Final[Mapping[str, str]] = {
    "budget.strategy": "text or object or list, as [requests]"
    "(wire.md#options-the-keys-of-context) have it",
}


def page() -> str:
    """Return the page."""
    meanings = comments()
    defaults = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    parts = [
        _section(keys, kind) if "properties" in kind else _setting(keys, kind, meanings, defaults)
        for keys, kind in _walk(Settings.model_json_schema())
    ]
    items = [_items(title, model) for title, model in _ITEMS.items()]
    return "\n".join([_HEAD, *parts, "## In lists and mappings\n", *items])


def _walk(schema: Schema) -> Iterator[tuple[Keys, Schema]]:
    """Yield sections and settings with their schemas, in the order of the model."""

    def below(properties: Mapping[str, Schema], keys: Keys) -> Iterator[tuple[Keys, Schema]]:
        for name, kind in properties.items():
            section = schema["$defs"].get(kind.get("$ref", "").rpartition("/")[2])
            yield (*keys, name), section or kind
            if section:
                yield from below(section["properties"], (*keys, name))

    return below(schema["properties"], ())


def _section(keys: Keys, schema: Schema) -> str:
    about = schema["description"].partition("\n")[0]
    return f"{'#' * (len(keys) + 1)} {dotted(keys)}\n\n{about}\n"


def _setting(keys: Keys, kind: Schema, meanings: Mapping[Keys, str], defaults: Any) -> str:  # noqa: ANN401 - YAML
    for key in keys:
        defaults = defaults[key]
    name = dotted(keys)
    return f"""\
### `{name}`

{in_markdown(meanings[keys])}

- **Variable:** `CTXB_{"__".join(keys).upper()}`
- **Type:** {_OPEN.get(name) or in_words(kind, _PLACES.__getitem__)}
- **Default:** `{json.dumps(defaults, ensure_ascii=False)}`
"""


def _items(title: str, model: type[BaseModel]) -> str:
    """Return the table of what one item of a list or mapping has."""
    schema = model.model_json_schema()
    said = of_model(model)
    rows = [
        f"| `{name}` | {in_words(kind, str)} | {_default(kind)} | {said[name]} |"
        for name, kind in schema["properties"].items()
    ]
    head = [f"### {title}\n", "| Key | Type | Default | What |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, ""])


def _default(kind: Schema) -> str:
    return f"`{json.dumps(kind['default'])}`" if "default" in kind else "required"
