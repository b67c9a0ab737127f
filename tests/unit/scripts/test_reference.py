"""The pages that are made from the code are under version control, as they would be made now."""

import re
from pathlib import Path

from scripts.reference.__main__ import PAGES, write
from scripts.reference.commands import command_line
from scripts.reference.comments import field_comments, to_markdown
from scripts.reference.types import Schema, describe_type
from service.config.paths import dotted, leaves
from service.config.section import Section
from service.config.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"


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
        _, _, told = page.partition(f"### `{dotted(keys)}`\n\n")
        meaning, _, rest = told.partition("\n\n- **Variable:** ")
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


def test_types_are_told_in_words() -> None:
    """With their bounds, and what they refer to by its name."""
    told: dict[str, Schema] = {
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
    assert [describe_type(schema, "<{}>".format) for schema in told.values()] == list(told)
