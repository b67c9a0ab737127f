"""The image and the compose file: docker is not at hand here, so they are read."""

import json
import os
import re
import socket
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from typer.testing import CliRunner

from service.adapters.embedded.binaries import find_server
from service.cli.root import app
from service.config.load import load_settings
from service.config.settings import Settings
from tests.postgres_server import PostgresServer
from tests.support import lacking, quiet_logs

ROOT = Path(__file__).parents[2]

Instruction = tuple[str, str]

#: The settings that the bus needs, as `docs/delivery.md` says.
REDIS_NEEDS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    "client-output-buffer-limit": "pubsub 256mb 64mb 60",
}


def stages() -> list[list[Instruction]]:
    """Return the Dockerfile's instructions, a list a stage."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    found: list[list[Instruction]] = []
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest.strip()))
    return found


def last(name: str) -> str:
    """Return the last instruction of this name in the stage that runs."""
    return [rest for found, rest in stages()[-1] if found == name][-1]


def image_environment() -> dict[str, str]:
    """Return the variables of the image."""
    return dict(re.findall(r"(\w+)=(\S+)", last("ENV")))


def compose() -> Any:
    """Return the compose file."""
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


def variables_of(service: str) -> dict[str, str]:
    """Return a service's variables, as compose fills them in where nothing is set."""
    given: dict[str, str] = compose()["services"][service]["environment"]
    unset = re.compile(r"\$\{\w+:-(\w*)\}")
    return {name: unset.sub(r"\1", value) for name, value in given.items()}


def seconds(text: str) -> float:
    """Read a duration of the compose file."""
    return float(text.removesuffix("s"))


def is_command(words: list[str]) -> bool:
    """Return whether the command line knows a command with these options."""
    *options, asked = [*words[1:], "--help"]
    reported = CliRunner().invoke(app, [words[0], asked])
    known = all(word in reported.output for word in options if word.startswith("--"))
    return reported.exit_code == 0 and known


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Set the variables that the worker has in the stack, and no others of ours."""
    for name in [name for name in os.environ if name.startswith("CTXB_")]:
        monkeypatch.delenv(name)
    merged = {**image_environment(), **variables_of("worker")}
    variables = {name: value for name, value in merged.items() if name.startswith("CTXB_")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return variables


# --- the image -------------------------------------------------------------------------------


def test_what_is_copied_exists() -> None:
    """Every source is in the repository, and .dockerignore lets it through."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    build = [rest.split() for name, rest in stages()[0] if name == "COPY"]
    sources = [source for *found, _ in build for source in found]

    assert "*" in ignored
    assert all((ROOT / source).exists() and f"!{source}" in ignored for source in sources)
    assert set(sources) >= {"pyproject.toml", "constraints.txt", "ctxb", "service", "prompts"}


def test_the_image_installs_the_pinned_versions() -> None:
    """The same constraints hold as at home, for the Python that the project asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = project["requires-python"].removeprefix(">=")
    images = [stage[0][1].split()[0] for stage in stages()]

    assert images == [f"python:{needed}-slim"] * len(images)
    assert any("--constraint constraints.txt" in rest for name, rest in stages()[0])


def test_the_image_is_not_root_and_cannot_install() -> None:
    """A numeric user runs the program alone, and the pip that the base has is gone."""
    user, _, group = last("USER").partition(":")
    runs = [rest for name, rest in stages()[-1] if name == "RUN"]
    copies = [rest for name, rest in stages()[-1] if name == "COPY"]

    assert int(user) > 0
    assert int(group) > 0
    removing, *others = " ".join(runs).split(" && ")
    assert removing.startswith("rm -rf /usr/local/bin/pip* ")
    assert {"ensurepip", "site-packages"} <= set(re.split(r"[ /]", removing))
    assert not re.search(r"\b(?:pip|apt|apt-get|gcc|curl)\b", " ".join(others))
    assert copies == ["--from=build /opt/ctxb /opt/ctxb"]
    assert any("venv --without-pip /opt/ctxb" in rest for name, rest in stages()[0])


def test_the_image_runs_commands_that_there_are() -> None:
    """Entry point, command and health check are ours."""
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])

    assert json.loads(last("ENTRYPOINT")) == ["ctxb"]
    assert is_command(json.loads(last("CMD")))
    assert check[0] == "ctxb"
    assert is_command(check[1:])


def test_the_image_keeps_its_data() -> None:
    """The database is in the volume, and output is not held back."""
    variables = image_environment()

    assert variables["PYTHONUNBUFFERED"] == "1"
    assert variables["CTXB_STORE__URL"].startswith(f"sqlite:///{last('VOLUME')}/")
    assert f"install --directory --owner {last('USER').partition(':')[0]}" in last("RUN")


# --- the stack -------------------------------------------------------------------------------


def test_the_environment_is_a_configuration(environment: Mapping[str, str]) -> None:
    """Each variable of image and compose file is a setting, and takes its value."""
    settings = load_settings()

    assert set(settings.origins.values()) == {*environment, "preset recall"}
    assert settings.bus.url is not None
    assert settings.bus.url.get_secret_value().startswith("redis://redis:6379/")
    assert settings.worker.heartbeat_file is not None


def test_the_stack_starts_in_order_and_stops_in_time(environment: Mapping[str, str]) -> None:
    """The worker waits for bus, database and schema, comes up again, and has time to finish."""
    services = compose()["services"]
    worker = services["worker"]

    assert {name: found["condition"] for name, found in worker["depends_on"].items()} == {
        "redis": "service_healthy",
        "postgres": "service_healthy",
        "upgrade": "service_completed_successfully",
    }
    assert services["upgrade"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert services["upgrade"]["restart"] == "no"
    assert worker["restart"] == "unless-stopped"
    grace = seconds(worker["stop_grace_period"])
    # and a bus that hangs is given up
    assert grace >= load_settings().worker.shutdown_timeout_seconds + 15


def test_the_worker_can_write_what_it_has_to(environment: Mapping[str, str]) -> None:
    """The heartbeat lies where a read-only container lets it write, and nothing else does."""
    worker = compose()["services"]["worker"]
    settings = load_settings()

    assert worker["read_only"]
    assert settings.store.url.get_secret_value().startswith("postgresql://")
    assert str(Path(str(settings.worker.heartbeat_file)).parent) in worker["tmpfs"]


def test_the_time_to_finish_is_the_default() -> None:
    """The time to finish in the compose file is the one that the settings have."""
    worker = compose()["services"]["worker"]["environment"]
    reported = float(worker["CTXB_WORKER__SHUTDOWN_TIMEOUT_SECONDS"])

    assert reported == Settings().worker.shutdown_timeout_seconds


def test_the_stack_runs_commands_that_there_are() -> None:
    """The worker's command and its health check are ours; the check outlasts a quiet bus."""
    worker = compose()["services"]["worker"]
    kind, program, *check = worker["healthcheck"]["test"]

    assert is_command(worker["command"])
    assert (kind, program) == ("CMD", "ctxb")
    assert is_command(check)


def test_the_bus_keeps_what_it_is_given() -> None:
    """It runs with the settings that delivery needs, on a volume, and not for other machines."""
    bus = compose()["services"]["redis"]

    assert redis_flags() == REDIS_NEEDS
    assert bus["volumes"] == ["redis-data:/data"]
    assert all(port.startswith("127.0.0.1:") for port in bus["ports"])


def test_the_database_keeps_what_it_is_given(environment: Mapping[str, str]) -> None:
    """It has a volume, no port, and the user, password and name that the worker comes with."""
    file = compose()
    database = file["services"]["postgres"]
    given = variables_of("postgres")
    who, _, where = environment["CTXB_STORE__URL"].removeprefix("postgresql://").partition("@")

    assert who == f"{given['POSTGRES_USER']}:{given['POSTGRES_PASSWORD']}"
    assert where == f"postgres:5432/{given['POSTGRES_DB']}"
    assert "${POSTGRES_PASSWORD:-" in database["environment"]["POSTGRES_PASSWORD"]
    assert "ports" not in database
    (volume,) = database["volumes"]
    assert volume.partition(":")[0] in file["volumes"]


@pytest.mark.integration
def test_the_stack_makes_its_schema(
    postgres: PostgresServer, new_database: str, environment: Mapping[str, str]
) -> None:
    """The command of the service that the worker waits for, on a real database."""
    command = compose()["services"]["upgrade"]["command"]
    assert variables_of("upgrade") == {"CTXB_STORE__URL": environment["CTXB_STORE__URL"]}

    ctxb = CliRunner(env={"CTXB_STORE__URL": new_database})
    try:
        assert ctxb.invoke(app, ["db", "check"]).exit_code == 1
        assert ctxb.invoke(app, command).exit_code == 0
        assert ctxb.invoke(app, ["db", "check"]).exit_code == 0
    finally:
        quiet_logs()


@pytest.mark.integration
def test_the_database_is_queried_whether_it_is_ready(postgres: PostgresServer) -> None:
    """The health check is Postgres' own, and a server that runs passes it."""
    kind, program, *flags = compose()["services"]["postgres"]["healthcheck"]["test"]
    asked = [postgres.folder / program, *flags, "--port", str(postgres.port)]

    assert kind == "CMD"
    if not Path(asked[0]).exists():
        lacking(f"no {program} beside this Postgres")
    assert subprocess.run(asked, check=False, capture_output=True).returncode == 0  # noqa: S603 - as above


def test_the_image_has_the_driver() -> None:
    """What is installed is the service with what Postgres and traces need; all names are extras."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = (rest.removeprefix("EXTRAS=") for name, rest in stages()[0] if name == "ARG")

    assert {"otel", "postgres"} <= set(extras.split(",")) <= set(known["optional-dependencies"])
    assert any('".[${EXTRAS}]"' in rest for name, rest in stages()[0] if name == "RUN")


def redis_flags() -> dict[str, str]:
    """Return what the bus is started with."""
    _, *words = compose()["services"]["redis"]["command"]
    found = " ".join(words).removeprefix("--").split(" --")
    return dict(flag.split(" ", 1) for flag in found)


@pytest.mark.integration
def test_a_real_server_takes_the_flags(tmp_path: Path) -> None:
    """A server that is started like the stack's has these settings."""
    _, *flags = compose()["services"]["redis"]["command"]

    with server(flags, tmp_path) as client:
        found = {name: client.config_get(name)[name] for name in REDIS_NEEDS}

    limits = found.pop("client-output-buffer-limit")
    assert f"pubsub {256 * 1024**2} {64 * 1024**2} 60" in limits
    assert found.items() <= REDIS_NEEDS.items()


@contextmanager
def server(flags: list[str], folder: Path) -> Iterator[Any]:
    """Run a server with these flags on a free port; gives a client."""
    binary = find_server()
    if binary is None:
        lacking("no such server on this machine")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    process = subprocess.Popen(  # noqa: S603 - our own server
        [binary.path, *flags, *place], stdout=subprocess.DEVNULL
    )
    refused = Retry(ConstantBackoff(0.05), 400, (redis.ConnectionError,))
    client = redis.Redis(port=port, decode_responses=True, retry=refused)
    try:
        client.ping()
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()
