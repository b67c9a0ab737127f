"""An installed wheel is one package, and is whole next to others of our packages' names."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("setuptools", reason="newer Pythons have it in builds alone")

from scripts.build_backend import MOVED, rename
from tests.e2e.commands import HUNG

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

#: Tests of units that are run on what is installed, with what they share.
OURS = ("unit/formatters", "unit/prompts", "unit/service/conversation", "unit/service/recall")
SHARED = ("conftest.py", "support.py", "validity")
#: The packages that these tests need.
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-randomly")

THEIRS = """
import formatters, prompts, service

def test_what_is_theirs_stays_theirs():
    assert {formatters.OWNER, prompts.OWNER, service.OWNER} == {"theirs"}
"""


def run(folder: Path, *command: str | Path, **variables: str) -> str:
    """Run a command in a folder, with no variable of ours or Python's; return what it prints."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("CTXB_", "PYTHON"))}
    ran = subprocess.run(  # noqa: S603 - our own commands
        [*map(str, command)],
        cwd=folder,
        env={**kept, **variables},
        check=False,
        timeout=10 * HUNG,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def make_environment(folder: Path) -> Path:
    """Return the programs of a new environment."""
    venv.create(folder, with_pip=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel that is built from the repository."""
    dist = tmp_path_factory.mktemp("dist")
    run(ROOT, sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", dist, ROOT)
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment that the wheel is installed into."""
    programs = make_environment(tmp_path_factory.mktemp("environment"))
    pins = ROOT / "constraints.txt"
    run(ROOT, programs / "pip", "install", "-c", pins, f"{wheel}[embedded]", *TOOLS)
    return programs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return somebody else's project, whose packages have the names that ours have here."""
    for name in MOVED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('OWNER = "theirs"\n')
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "test_theirs.py").write_text(THEIRS)
    return tmp_path


def test_a_wheel_has_one_package(wheel: Path) -> None:
    """And its command and its record name no other."""
    with ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        commands = archive.read(next(n for n in archive.namelist() if "entry_points" in n))

    (described,) = tops - {"ctxb"}
    assert re.fullmatch(r"ctxb-[\d.]+\.dist-info", described)
    assert commands.decode().split() == ["[console_scripts]", "ctxb", "=", "ctxb.service.cli:main"]


def test_a_wheel_has_all_that_the_packages_have(wheel: Path) -> None:
    """Modules, and files that they read."""
    packaged = [path for name in MOVED for path in (ROOT / name).rglob("*.*") if path.is_file()]
    names = {f"ctxb/{p.relative_to(ROOT)}" for p in packaged if p.suffix != ".pyc"}
    with ZipFile(wheel) as archive:
        assert names - set(archive.namelist()) == set()


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Nothing that a build needs is missing in it."""
    programs = make_environment(tmp_path / "environment")
    run(ROOT, programs / "pip", "install", *PROJECT["build-system"]["requires"])
    build = f"import build_backend; build_backend.build_sdist({str(tmp_path)!r})"
    run(ROOT, programs / "python", "-c", build, PYTHONPATH=str(ROOT / "scripts"))
    (sdist,) = tmp_path.glob("*.tar.gz")
    run(tmp_path, programs / "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, sdist)

    with ZipFile(wheel) as ours, ZipFile(tmp_path / wheel.name) as theirs:
        assert ours.namelist() == theirs.namelist()
        assert all(ours.read(name) == theirs.read(name) for name in ours.namelist())


def test_the_demo_runs_next_to_packages_of_our_names(programs: Path, project: Path) -> None:
    """A real bus, a worker in a process of its own, six requests."""
    printed = run(project, programs / "ctxb", "demo")
    assert "The worker has finished and exited cleanly" in printed


def test_a_database_is_upgraded(programs: Path, project: Path) -> None:
    """The revisions, which are loaded by their path, find the tables."""
    store = {"CTXB_STORE__URL": "sqlite:///ctxb.db"}
    run(project, programs / "ctxb", "db", "upgrade", **store)
    run(project, programs / "ctxb", "db", "check", **store)


@pytest.mark.parametrize(
    ("page", "name", "output"),
    [
        ("README.md", "fit", "messages: kept 4"),
        ("docs/in-process.md", "open_builder", "Human: Where is the key?"),
    ],
)
def test_the_examples_without_a_bus_run(
    programs: Path, project: Path, page: str, name: str, output: str
) -> None:
    """Those of the documents, as programs in the other project."""
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (example,) = (text for text in examples if re.search(rf"import .*\b{name}\b", text))
    (project / "example.py").write_text(example, encoding="utf-8")

    assert output in run(project, programs / "python", "example.py")


def test_the_tests_of_both_projects_pass(programs: Path, project: Path) -> None:
    """Theirs as they are, and ours with the imports renamed as in the wheel."""
    for name in (*SHARED, *OURS):
        source, target = ROOT / "tests" / name, project / "tests" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    for path in (project / "tests").rglob("*.py"):
        path.write_bytes(rename(path.read_bytes(), strings=True))
    (project / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nasyncio_mode = auto\naddopts = --import-mode=importlib\n"
    )

    printed = run(project, programs / "python", "-m", "pytest", "-q", "theirs", "tests")
    assert int(re.findall(r"(\d+) passed", printed)[-1]) > 1_000


def test_uv_runs_the_command(wheel: Path, project: Path) -> None:
    """Without an installation."""
    uvx = shutil.which("uvx")
    if uvx is None:
        pytest.skip("uv is not installed")
    assert "ctxb" in run(project, uvx, "--from", wheel, "ctxb", "--version")


def test_an_editable_installation_has_the_names_of_the_repository(tmp_path: Path) -> None:
    """And the public names next to them."""
    programs = make_environment(tmp_path / "environment")
    run(tmp_path, programs / "pip", "install", "--no-deps", "--editable", ROOT)
    files = "import ctxb, service, prompts, formatters as f; print(ctxb.__file__, f.__file__)"
    printed = run(tmp_path, programs / "python", "-c", files).split()
    assert printed == [str(ROOT / "ctxb/__init__.py"), str(ROOT / "formatters/__init__.py")]
