"""The page on HTTP says what the code does."""

import re
from pathlib import Path

from service.config.endpoints import HttpSettings
from service.http.live import MOST_LISTENERS
from tests.serving import serving

PAGE = Path(__file__).parents[2].joinpath("docs", "http.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """Return what is below a heading."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of a table."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


async def test_every_route_has_a_line() -> None:
    """But for its own description, which the text names."""
    async with serving() as scene:
        described = (await scene.get("/v1/openapi.json")).json()
    routes = {
        f"`{method.upper()} {path}`"
        for path, methods in described["paths"].items()
        for method in methods
    }
    assert {row[0] for row in rows("Routes")} == routes - {"`GET /v1/openapi.json`"} | {"`GET /`"}


def test_settings_have_their_defaults() -> None:
    """The page has the most important ones; all are on the page of the configuration."""
    defaults = {f"`http.{name}`": value for name, value in HttpSettings().model_dump().items()}
    shown = {None: "null", True: "true", (): "`[]`", "127.0.0.1": "`127.0.0.1`"}
    shown["redacted"] = "`redacted`"
    reported = {row[0]: row[1] for row in rows("Settings")}
    assert reported
    assert reported == {name: shown.get(defaults[name], str(defaults[name])) for name in reported}


def test_numbers_of_the_feed_are_ours() -> None:
    """How many may listen."""
    assert f"at most {MOST_LISTENERS} listeners" in PAGE
