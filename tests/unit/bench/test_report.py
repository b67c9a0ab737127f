"""What benches say in the end."""

import json

import pytest

from bench.report import report


def test_a_broken_promise_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """It ends with 1, and figures alone are on stdout."""
    assert report({"lost": 1}, iter(["1 is lost"]), as_json=True) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {"lost": 1}
    assert said.err == "broken: 1 is lost\n"


def test_people_get_a_line_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a part are named for it."""
    assert report({"stream": {"sent": 3}, "seconds": 1.5}, (), as_json=False) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["stream.sent", "3"],
        ["seconds", "1.5"],
    ]
