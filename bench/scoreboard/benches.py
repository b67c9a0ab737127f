"""The benches that are run: a new one is an entry here, and its rows in `bench.scoreboard.rows`."""

from dataclasses import dataclass
from typing import Final

#: Of all strategies those that the table speaks of.
STRATEGIES: Final = "--strategies oldest_first,importance,relevance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """How a bench is run."""

    module: str
    #: Its arguments besides ``--json``, with blanks between: in full, and when time is short.
    full: str = ""
    quick: str = ""
    #: Minutes after which it counts as hung.
    minutes: float
    #: Sets of the data folder that it can't do without; None where it reads no data.
    data: tuple[str, ...] | None = None
    #: Whether it needs a server to start.
    server: bool = False
    #: Modules that it can't do without.
    modules: tuple[str, ...] = ()
    #: Whether it runs where the peers are installed, if that is anywhere.
    peers: bool = False

    def arguments(self, *, quick: bool) -> list[str]:
        """Return what it is given, but for the data."""
        return ["--json", *(self.quick if quick else self.full).split()]


BENCHES: Final[dict[str, Bench]] = {
    "recall": Bench(
        module="bench.recall",
        full=STRATEGIES,
        quick=f"{STRATEGIES} --limit 1 --budgets 2000",
        minutes=120,
        data=("locomo", "qmsum", "multilingual", "realpersonachat_ja"),
        peers=True,
    ),
    "reachable": Bench(
        module="bench.reachable", quick="--limit 1 --turns 100", minutes=120, data=("locomo",)
    ),
    "cache": Bench(module="bench.cache", quick="--quick", minutes=60, data=("locomo",)),
    "laws": Bench(module="bench.laws", quick="--quick", minutes=120, data=()),
    "account": Bench(
        module="bench.account",
        minutes=60,
        data=("tau_airline", "tau_threads", "swe_agent", "locomo"),
    ),
    "tools": Bench(
        module="bench.tools",
        quick="--limit 15",
        minutes=30,
        data=("tools", "mcp_tools", "tau_airline"),
    ),
    "compaction": Bench(module="bench.compaction", quick="--quick", minutes=60, data=()),
    "memory": Bench(module="bench.memory", quick="--turns 80", minutes=15),
    "hostile": Bench(
        module="bench.hostile", quick="--generated 2000", minutes=120, data=("injections", "locomo")
    ),
    "build": Bench(module="bench.build", quick="--rounds 3", minutes=30, peers=True),
    "faces": Bench(module="bench.faces", quick="--rounds 5", minutes=10, peers=True),
    "bus": Bench(module="bench.bus", quick="--quick", minutes=15, server=True),
    "inspector": Bench(module="bench.inspector", quick="--quick", minutes=15, server=True),
    "store": Bench(
        module="bench.store",
        quick="--sizes 1000 20000 --rounds 20",
        minutes=90,
        modules=("asyncpg",),
    ),
    "chaos": Bench(module="bench.chaos", quick="--requests 500 --kills 3", minutes=15, server=True),
    **{
        f"chaos-{fault}": Bench(
            module="bench.chaos",
            full=f"--{fault}",
            quick=f"--{fault} --requests {few}",
            minutes=15,
            server=True,
        )
        for fault, few in (
            ("redis-kill", 5200),  # the server dies with 5,000 still waiting
            ("pause", 300),
            ("flushall", 500),
            ("rolling", 500),
        )
    },
}
