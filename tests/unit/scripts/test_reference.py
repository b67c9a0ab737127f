"""The pages that are made from the code are under version control, as they would be made now."""

import inspect
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import ctxb
from scripts.reference.__main__ import PAGES, write
from scripts.reference.commands import command_line
from scripts.reference.comments import field_comments, to_markdown
from scripts.reference.messages import MEANINGS, objects
from scripts.reference.types import Schema, describe_type
from service.budget.strategies import STRATEGIES
from service.build.account import CANONICAL
from service.build.plan import make_plan
from service.config.paths import dotted, leaves
from service.config.section import Section
from service.config.settings import Settings
from service.wire.request import BuildRequest

DOCS = Path(__file__).parents[3] / "docs"
HELLO = BuildRequest.model_validate(
    {"id": "m", "owner_key": "ana", "conversation_id": "c", "content": {"current_input": "Hello"}}
)


def text_of(name: str) -> str:
    """Return a page."""
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_published_pages_are_those_of_the_code(tmp_path: Path) -> None:
    """`make reference` would change nothing in docs."""
    write(tmp_path)
    for name in PAGES:
        made = (tmp_path / name).read_text(encoding="utf-8")
        assert made == text_of(name), "run make reference"
        assert made.endswith("\n")
        assert not made.endswith("\n\n")


def test_every_setting_has_its_place() -> None:
    """With a sentence, its variable, its type and its default."""
    page = text_of("configuration.md")
    for keys, _ in leaves(Settings()):
        _, _, reported = page.partition(f"### `{dotted(keys)}`\n\n")
        meaning, _, rest = reported.partition("\n\n- **Variable:** ")
        assert meaning.strip(), keys
        assert "\n#" not in meaning, keys
        assert re.match(r"`CTXB_\w+`\n- \*\*Type:\*\* .+\n- \*\*Default:\*\* `.+`\n", rest), keys


def test_every_command_has_its_place() -> None:
    """With each of its options, but for those that all have."""
    page = text_of("commands.md")

    def look(command: object, path: str) -> None:
        for name, below in getattr(command, "commands", {}).items():
            look(below, f"{path} {name}")
        _, found, rest = page.partition(f"# {path}\n")
        options = [each for each in getattr(command, "params", ()) if each.name != "help"]
        assert found or path == "ctxb"
        for option in options if found else ():
            assert f"`{option.opts[0]}`" in rest.partition("\n#")[0], (path, option.opts)

    look(command_line(), "ctxb")


def test_every_public_method_has_its_place() -> None:
    """With the names and defaults of its parameters, in the section of its class."""
    page = text_of("python.md")

    for name in ctxb.__all__:
        value = getattr(ctxb, name)
        if inspect.isroutine(value):
            assert f"\n| `{name}(" in page, name
        elif isinstance(value, type) and not issubclass(value, Exception):
            section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
            for method, _ in inspect.getmembers(value, inspect.isfunction):
                own = value.__module__.startswith(("service.", "formatters.", "prompts."))
                hidden = method.startswith(("_", "model_"))  # pydantic's own
                # what only overrides has its line in the section of the base
                described = method in vars(value) and vars(value)[method].__doc__
                if own and not hidden and described:
                    assert f"{method}(" in section, (name, method)
    usage = "add_tool_result(*, tool_call_id, name, result, conversation_id=None)"
    assert page.count(f"| `{usage}` |") == 1
    assert page.count("It also has the other methods of [ContextManager](#contextmanager).") == 1


def test_comments_become_markdown() -> None:
    """Lines are a paragraph, what is set in is code, and pages are links."""
    comment = """\
Both of them, with docs/wire.md, such as
  a: 1
    b: 2
and *more*."""
    assert to_markdown(comment) == (
        "Both of them, with [wire.md](wire.md), such as\n\n"
        "```yaml\na: 1\n  b: 2\n```\n\nand \\*more\\*."
    )


def test_comments_of_fields_are_found() -> None:
    """Those directly above, however many lines they have."""

    class Some(Section):
        """Some."""

        #: In ``code``, and
        #: on two lines; None for none.
        one: int = 1
        two: int = 2

    assert field_comments(Some) == {
        "one": "In `code`, and on two lines; `null` for none.",
        "two": "",
    }


def test_types_are_described_in_words() -> None:
    """With their bounds, and what they refer to by its name."""
    reported: dict[str, Schema] = {
        "null": {"type": "null"},
        "anything": {},
        '`"a"`': {"const": "a"},
        "`a`, `b`": {"enum": ["a", "b"]},
        "text, 1 to 8 characters": {"type": "string", "minLength": 1, "maxLength": 8},
        "text, not empty": {"type": "string", "minLength": 1},
        "number, more than 0, up to 1": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "integer, up to 9": {"type": "integer", "maximum": 9},
        "integer, 0 or more, or null": {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]
        },
        "list of <Tool>, 2 or more items": {
            "type": "array",
            "items": {"$ref": "#/$defs/Tool"},
            "minItems": 2,
        },
        "object of secret": {
            "type": "object",
            "additionalProperties": {"type": "string", "format": "password"},
        },
    }
    assert [describe_type(schema, "<{}>".format) for schema in reported.values()] == list(reported)


def test_every_key_of_a_message_has_a_meaning() -> None:
    """And no other key; the default that is stated is the one that a build takes."""
    keys = {title: set(schema["properties"]) for title, schema in objects().items()}

    assert {title: set(meanings) for title, meanings in MEANINGS.items()} == keys
    assert set(keys) >= {"Request", "ShortContent", "Usage", "DecisionRecord", "RecallContent"}
    plan = make_plan(HELLO, Settings(), STRATEGIES, {}, datetime(2025, 12, 10, tzinfo=UTC))
    options = MEANINGS["ContextOptions"]
    assert options["layout"][0] == f'`"{plan.layout}"`'
    assert options["format"][0] == f'`"{CANONICAL}"`'
    assert options["explain"][0] == f"`{json.dumps(plan.explain)}`"
    assert options["scope"][0] == '`"conversation"`'
    assert plan.conversation_id == "c"
    assert MEANINGS["ShortContent"]["tools"][0] == f"`{HELLO.run.tools}`"
