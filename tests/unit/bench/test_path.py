import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bench.path import ROOT, Recorder, Visits, figures, table

#: Two functions of a file, one of which waits.
CODE = """
def twice(number):
    if number > 100:
        return 0
    return number * 2

async def later(wait):
    await wait()
    return twice(1)
"""


class Pause:
    """Something to wait for once."""

    def __await__(self) -> Any:
        yield


def data_received(data: bytes) -> None:
    """Replace asyncio's function that hands over bytes."""


def write(data: bytes) -> None:
    """Replace asyncio's function that sends bytes."""


@pytest.fixture
def functions(tmp_path: Path) -> dict[str, Any]:
    """Give the functions of a file in a folder."""
    defined: dict[str, Any] = {}
    exec(compile(CODE, str(tmp_path / "code.py"), "exec"), defined)  # noqa: S102 - as a file has it
    return defined


def recorded(folder: Path, act: Callable[[], object]) -> Recorder:
    """Return what was recorded of an act that a message brings about."""
    recorder = Recorder([folder])
    recorder.expect(b"first", b"last")
    before = sys.gettrace()
    sys.settrace(recorder.trace)
    try:
        data_received(b"another")
        act()
        data_received(b"the first one")
        act()
        write(b"another")
        act()
        write(b"the last one")
        act()
    finally:
        sys.settrace(before)
    return recorder


def test_what_is_between_two_messages_is_recorded(
    tmp_path: Path, functions: dict[str, Any]
) -> None:
    """Calls and distinct lines count, of files in the folder, and nothing before or after."""
    recorder = recorded(tmp_path, lambda: functions["twice"](1))

    assert recorder.complete
    assert recorder.visits == {str(tmp_path / "code.py"): Visits(calls=2, lines={3, 5})}


def test_a_coroutine_that_goes_on_is_called_again(
    tmp_path: Path, functions: dict[str, Any]
) -> None:
    """The line in which it waited has been executed then, too."""

    def act() -> None:
        coroutine: Coroutine[Any, Any, int] = functions["later"](Pause)
        coroutine.send(None)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    visits = recorded(tmp_path, act).visits[str(tmp_path / "code.py")]

    assert visits == Visits(calls=2 * 3, lines={3, 5, 8, 9})


def test_what_is_expected_next_starts_again(tmp_path: Path, functions: dict[str, Any]) -> None:
    """The recorder of the first message is that of the second."""
    recorder = recorded(tmp_path, lambda: functions["twice"](1))
    recorder.expect(b"first", b"last")

    assert (recorder.complete, recorder.visits) == (False, {})


def test_figures_count_the_tree(tmp_path: Path) -> None:
    """Files and lines of the product, modules that are in no room, and layers."""
    for name, text in {
        "service/__init__.py": "",
        "service/app.py": "one\ntwo\n",
        "service/wire/__init__.py": "one\n",
        "formatters/rows.py": "one\n",
        "bench/path.py": "one\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pyproject.toml").write_text(
        "[[tool.importlinter.contracts]]\nlayers = ['one']\n"
        "[[tool.importlinter.contracts]]\ncontainers = ['service']\nlayers = ['a', 'b : c']\n"
    )
    visited = {"one.py": Visits(3, {1, 2}), "two.py": Visits(1, {7})}

    assert figures(visited, tmp_path) == {
        "files": 2,
        "calls": 4,
        "lines": 3,
        "flat_modules": 1,
        "product_files": 4,
        "product_lines": 4,
        "import_floors": 2,
    }


def test_the_project_has_layers() -> None:
    """The contract that is counted is there."""
    assert figures({}, ROOT)["import_floors"] > 1


def test_the_table_has_files_in_their_order() -> None:
    """A line each, below a heading."""
    visited = {str(ROOT / name): Visits(2, {1}) for name in ("service/b.py", "service/a.py")}

    assert [line.split() for line in table(visited, ROOT)][1:] == [
        ["1", "service/b.py", "2", "1"],
        ["2", "service/a.py", "2", "1"],
    ]
