"""What `make check` looks for secrets with finds them, and nothing in what is committed."""

import os
import re
import secrets
import shutil
import string
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import lacking

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
LETTERS = string.ascii_letters + string.digits


def scanned(*places: Path) -> subprocess.CompletedProcess[str]:
    """Scan files as the Makefile does."""
    places_of_tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    scanner = shutil.which("kingfisher", path=places_of_tools)
    if scanner is None:
        lacking("no kingfisher: install the extra dev")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (flags,) = re.findall(r"kingfisher (scan .*)", makefile)
    return subprocess.run(  # noqa: S603 - our own tool on our own files
        [scanner, *flags.split(), *places], check=False, capture_output=True, text=True, cwd=ROOT
    )


def made_up(length: int) -> str:
    """Return what looks like a secret and is none."""
    return "".join(secrets.choice(LETTERS) for _ in range(length))


@pytest.mark.parametrize(
    "line",
    [
        "TOKEN = 'ghp_{36}'",
        "CTXB_STORE__URL=postgresql://ctxb:{24}@db.internal:5432/ctxb",
        "key: sk-ant-api03-{93}AA",
    ],
)
def test_a_secret_is_found(line: str, tmp_path: Path) -> None:
    """Of a forge, of an address, of a provider; the scan ends as a failure."""
    file = tmp_path / "settings.py"
    text = re.sub(r"\{(\d+)\}", lambda found: made_up(int(found[1])), line)
    file.write_text(text, encoding="utf-8")

    found = scanned(tmp_path)

    assert found.returncode not in (0, 1, 2), found.stderr
    assert str(file) in found.stdout


def test_a_file_without_one_passes(tmp_path: Path) -> None:
    """Examples with passwords that anybody sees to be none are no finding."""
    tmp_path.joinpath("page.md").write_text("redis://:password@localhost:6379/0", "utf-8")

    assert scanned(tmp_path).returncode == 0
