"""Names of tools are valid for every provider, and no two tools share one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from service.adapters.mcp.definitions import offered_names

VALID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def test_a_name_that_every_provider_takes_stays() -> None:
    """It stands behind the server's and two ``_``."""
    assert offered_names("git", ["git_status"]) == {"git_status": "git__git_status"}


def test_other_characters_become_underscores() -> None:
    """Where that makes two names alike, the changed one gets a hash, in whatever order."""
    assert offered_names("a", ["x.y/z"]) == {"x.y/z": "a__x_y_z"}
    names = offered_names("a", ["x.y", "x_y", "x/y"])
    assert names["x_y"] == "a__x_y"
    assert len(set(names.values())) == 3
    assert offered_names("a", ["x/y", "x_y", "x.y"]) == names


def test_a_long_name_is_cut_and_gets_a_hash() -> None:
    """It depends on the name alone."""
    (name,) = offered_names("s", ["n" * 100]).values()
    assert len(name) == 64
    assert offered_names("s", ["n" * 100, "m"])["n" * 100] == name


@given(st.lists(st.text(min_size=1, max_size=128), unique=True, max_size=8))
def test_any_names_are_valid_and_distinct(names: list[str]) -> None:
    """Whatever characters a server uses."""
    offered = offered_names("server", names)
    assert list(offered) == names
    assert len(set(offered.values())) == len(names)
    assert all(VALID.fullmatch(name) for name in offered.values())
