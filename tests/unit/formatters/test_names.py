import re

import pytest

from formatters.names import NAME, clean_name, fit_names, fits

FORM = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@pytest.mark.parametrize("name", ["web_search", "a-b", "_", "x" * 64])
def test_a_name_that_fits_stays(name: str) -> None:
    """Nobody has to learn another name without need."""
    assert fit_names([name], FORM) == {name: name}


@pytest.mark.parametrize(
    "name", ["a.b", "ünï", "", "x" * 65, "9lives", "-dash", " ", "\n", "\ud83d"]
)
def test_a_name_that_does_not_fit_is_made_to(name: str) -> None:
    """Its valid characters are kept, and a hash distinguishes it from others."""
    made = fit_names([name], FORM)[name]

    assert fits(made, FORM)
    assert re.search(r"_[0-9a-f]{8}$", made)


def test_a_made_name_does_not_depend_on_its_neighbours() -> None:
    """A call is named alike in every build, so that a provider's cache hits."""
    alone = fit_names(["a.b"], FORM)

    assert fit_names(["x.y", "a.b", "a_b", "other"], FORM)["a.b"] == alone["a.b"]


def test_names_that_look_alike_stay_apart() -> None:
    """What a name loses, its hash keeps."""
    made = fit_names(["a.b", "a:b", "a b", "a_b"], FORM)

    assert len(set(made.values())) == 4
    assert made["a_b"] == "a_b"


def test_a_made_name_gives_way_to_one_that_is_taken() -> None:
    """Whether somebody bears it by right, or the provider gave it."""
    made = fit_names(["a.b"], FORM)["a.b"]
    second = fit_names(["a.b", made], FORM)
    third = fit_names(["a.b"], FORM, {made, second["a.b"]})

    assert second[made] == made
    assert len({made, second["a.b"], third["a.b"]}) == 3


def test_a_name_that_is_taken_is_made_again() -> None:
    """The provider's own id stays with the provider's own call."""
    assert fit_names(["call_1"], FORM, {"call_1"})["call_1"].startswith("call_1_")


@pytest.mark.parametrize("name", [None, 7, "", ["a"]])
def test_what_is_no_name_fits_nothing(name: object) -> None:
    """A part may hold anything in the place of a name."""
    assert not fits(name, FORM)


@pytest.mark.parametrize("name", ["web_search", "A-1", "9lives", "-dash", "x" * 64])
def test_a_function_keeps_a_name_that_can_be_sent(name: str) -> None:
    """As a tool and in a call."""
    assert clean_name(name) == name


@pytest.mark.parametrize("name", ["db.drop", "ls -l\n", "f\n", "x" * 65, "天気", "9.lives"])
def test_a_function_has_one_name_in_all_forms(name: str) -> None:
    """It is the one that a form would make, which needs no other."""
    made = clean_name(name)

    assert fits(made, NAME)
    assert clean_name(made) == made
    assert {made} == {*fit_names([name], NAME).values()} == {*fit_names([name], FORM).values()}
    assert re.search(r"_[0-9a-f]{8}$", made)


def test_a_function_without_a_name_is_unknown() -> None:
    """A call may have none."""
    assert clean_name("") == "unknown"
