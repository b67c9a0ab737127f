"""The table's rows for each bench: a figure's path in its JSON, the comparison, and the aim."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

#: Keys and places in lists, from the outside in.
Path = tuple[str | int, ...]

SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "≥": operator.ge,
    ">": operator.gt,
    "≤": operator.le,
    "<": operator.lt,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should be; one with ``=`` is a promise, and breaking it is a failure."""

    sign: str
    number: float

    def met(self, figure: object) -> bool:
        """Return whether a figure is as it should be."""
        return SIGNS[self.sign](figure, self.number)

    def __str__(self) -> str:
        return f"{self.sign} {self.number:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    bench: str
    what: str
    path: Path
    aim: Aim | None = None
    #: The figures for comparison, by name.
    beside: Mapping[str, Path] = field(default_factory=dict)


def found(figures: Mapping[str, Any], path: Path) -> object:
    """Return the value at a path, or None."""
    here: Any = figures
    for step in path:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            return None
    return here


# --- recall and cache ------------------------------------------------------------------------

#: The baselines of strategies, by the name of the bench.
PICKERS: Final = {
    "newest first": "newest",
    "BM25": "bm25",
    "BM25 over passages": "bm25_passages",
    "BM25 with neighbours": "bm25_neighbours",
    "both added": "bm25_both",
    "trim_messages": "trim_messages",
}
OTHERS: Final = {**PICKERS, "importance": "importance", "oldest_first": "oldest_first"}
#: Those of the set `cjk`, which are its categories.
LANGUAGES: Final = ("zh", "ja", "ko")
#: The least that is aimed at on locomo, by tokens.
RECALL: Final = {1000: 0.80, 2000: 0.86, 4000: 0.90}


def _recall(name: str, tokens: int, least: float | None = None) -> Iterator[Row]:
    """Yield the rows of `relevance` on a set."""
    key, words = f"{name}/relevance/{tokens}", f"{name}, {tokens:,} tokens"
    beside: dict[str, Path] = {
        shown: (f"{name}/{other}/{tokens}", "recall") for shown, other in OTHERS.items()
    }
    aim = Aim("≥", least) if least else None
    yield Row("recall", f"evidence kept by `relevance`, {words}", (key, "recall"), aim, beside)
    best: dict[str, Path] = {"best": (key, "best_baseline"), "mean": (key, "minus_best")}
    what = f"more than the best of the others, low end of 95 %, {words}"
    yield Row("recall", what, (key, "interval", 0), Aim(">", 0) if name != "cjk" else None, best)


def _recall_rows() -> Iterator[Row]:
    for tokens, least in RECALL.items():
        yield from _recall("locomo", tokens, least)
    for tokens in RECALL:
        key: Path = (f"locomo/preset_recall/{tokens}", "recall")
        yield Row("recall", f"the same under the preset `recall`, {tokens:,} tokens", key)
    beside: dict[str, Path] = {"p95": ("locomo/relevance/2000", "p95_ms")}
    yield Row("recall", "build, median ms", ("locomo/relevance/2000", "p50_ms"), None, beside)
    yield from _recall("qmsum", 4000)
    yield from _recall("bursts", 2000)
    yield from _recall("code", 2000)
    for tokens in (1000, 2000):
        yield from _recall("cjk", tokens)
    for language in LANGUAGES:
        keys = {name: f"cjk/{name}/1000" for name in ("relevance", "bm25")}
        path, bm25 = ((key, "by_category", language) for key in keys.values())
        yield Row("recall", f"of these in {language}, 1,000 tokens", path, None, {"BM25": bm25})


def _reachable_rows() -> Iterator[Row]:
    beside: dict[str, Path] = {
        "in the context": ("in_context",),
        "two calls": ("after_two_calls",),
        "one build of 2,000": ("one_build",),
    }
    what = "evidence reached by a context of 1,000 tokens and one recall of the same size"
    yield Row("reachable", what, ("after_one_call",), None, beside)
    yield Row("reachable", "messages left out that are fetched whole", ("by_ids",), Aim("=", 1))
    yield Row("reachable", "tokens of a handle", ("handle_tokens_max",), Aim("≤", 12))


#: The baseline of the preset.
WINDOWS: Final = ("sliding_window", "oldest_first")
CACHE: Final = {
    "history_prefix": ("recent history as in the build before", Aim("≥", 0.90)),
    "whole_prefix": ("messages as in the build before", None),
    "utilisation": ("tokens for history that are used", Aim("≥", 0.70)),
    "recent_share": ("recent history in what is used", Aim("≥", 0.5)),
    "newest_present": ("builds with the newest turns", Aim("≥", 1)),
}


def _cache_rows() -> Iterator[Row]:
    for layout in ("chat", "tagged"):
        for key, (what, aim) in CACHE.items():
            beside: dict[str, Path] = {name: (name, layout, key) for name in WINDOWS}
            yield Row("cache", f"{what}, `{layout}`", (layout, key), aim, beside)


# --- promises --------------------------------------------------------------------------------


def _promises(bench: str, names: Sequence[str]) -> Iterator[Row]:
    """Yield what has to be 0."""
    yield from (Row(bench, name.replace("_", " "), (name,), Aim("=", 0)) for name in names)


def _laws_rows() -> Iterator[Row]:
    yield Row("laws", "builds", ("builds",), None, {"refused by right": ("refused",)})
    broken = ("refused_wrongly", "over_budget", "invalid_sequences", "undecided")
    yield from _promises("laws", (*broken, "count_differences"))


def _account_rows() -> Iterator[Row]:
    kept: dict[str, Path] = {"tool results kept": ("tool_results_kept_share",)}
    yield Row("account", "rows that are said to be kept", ("kept_rows",), None, kept)
    yield from _promises("account", ("kept_but_absent", "left_out_but_present"))


def _tools_rows() -> Iterator[Row]:
    beside: dict[str, Path] = {"by the input": ("reachable_by_input",)}
    key: Path = ("reachable_with_words",)
    yield Row("tools", "deferred tools that one search finds", key, Aim("≥", 0.95), beside)
    yield Row("tools", "tokens of those of all tools", ("token_share",), Aim("≤", 0.05))
    yield from _promises("tools", ("prefix_changes",))


def _compaction_rows() -> Iterator[Row]:
    yield Row("compaction", "builds", ("builds",), None, {"summaries": ("summaries",)})
    yield from _promises("compaction", ("invalid_sequences", "over_budget", "lost"))
    yield Row("compaction", "CPU of a response over `oldest_first`", ("cpu_ratio",))


def _memory_rows() -> Iterator[Row]:
    yield Row("memory", "summaries in the last context", ("summaries_sent_at_end",), Aim("≥", 1))
    yield from _promises("memory", ("turns_unreachable", "over_budget"))


def _hostile_rows() -> Iterator[Row]:
    yield Row("hostile", "forgeries made", ("generated",), None, {"texts of attacks": ("texts",)})
    yield from _promises("hostile", ("broke_the_law", "forged", "marks", "crashes"))
    others = ("multilingual", "realpersonachat_ja", "qmsum", "tau_threads", "swe_agent")
    for figure, what, aim in (
        ("guttered_share", "further lines of rows with the gutter, `locomo`", None),
        ("guttered_inputs", "inputs with a line that has the gutter, `locomo`", Aim("≤", 0.02)),
        ("tokens_added", "tokens added by the guard, `locomo`", Aim("≤", 0.002)),
    ):
        beside: dict[str, Path] = {name: (figure, name) for name in others}
        yield Row("hostile", what, (figure, "locomo"), aim, beside)
    worst: dict[str, Path] = {"worst text": ("us_per_kb_worst",)}
    yield Row("hostile", "CPU of the guard, µs a kB", ("us_per_kb",), None, worst)


def _chaos_rows() -> Iterator[Row]:
    for bench in ("chaos", "chaos-redis-kill", "chaos-pause", "chaos-flushall", "chaos-rolling"):
        yield Row(bench, "requests answered", ("answered",))
        yield from _promises(bench, ("lost", "duplicates", "pending"))
    p95: dict[str, Path] = {"p95": ("redelivery_p95_s",), "workers killed": ("kills",)}
    yield Row("chaos", "answered again after, median s", ("redelivery_p50_s",), None, p95)


# --- cost ------------------------------------------------------------------------------------


def _build_rows() -> Iterator[Row]:
    names = {"langchain-core": "langchain", "remembering": "langchain_memo", "litellm": "litellm"}
    beside: dict[str, Path] = {n: (f"{key}_ms", "200") for n, key in names.items()}
    what = "stored rows to fitted blocks, 200 messages, CPU ms"
    yield Row("build", what, ("show_and_fit_ms", "200"), None, beside)
    for name, key in names.items():
        aim = Aim("≥", 1) if key == "langchain_memo" else None
        yield Row("build", f"times as fast as {name}", (f"speedup_{key}_200_with_showing",), aim)
    for length in ("200", "2000", "20000"):
        count: dict[str, Path] = {"counting its text once": ("plain_count_ms", length)}
        what = f"build over {int(length):,} stored messages, CPU ms"
        yield Row("build", what, ("build_cpu_ms", length), None, count)
    yield Row("build", "20,000 messages over 200", ("growth_200_to_20000",))


def _faces_rows() -> Iterator[Row]:
    aims = {"manager_500_ms": 1.5, "manager_2000_ms": 3, "prune_10000_ms": 150}
    for key, most in aims.items():
        what = (
            f"{key.removesuffix('_ms').replace('_', ', ')} messages, times `trim_messages` of 500"
        )
        path: Path = ("times_langchain_memo_500", key)
        yield Row("faces", what, path, Aim("≤", most), {"CPU ms": (key,)})


def _bus_rows() -> Iterator[Row]:
    lean = "lean_callers"
    for way in ("streams", "pubsub"):
        key = f"ratio_{way}_64"
        beside: dict[str, Path] = {"lean callers": (lean, key)}
        aim = Aim("≥", 0.4) if way == "streams" else None
        yield Row("bus", f"answers over those of a raw echo, {way}", (key,), aim, beside)
    cpu: dict[str, Path] = {"pubsub": ("cpu_us_pubsub_64",), "raw echo": ("raw", "cpu_us")}
    yield Row("bus", "CPU of an answer, µs", ("cpu_us_streams_64",), Aim("≤", 150), cpu)
    yield Row("bus", "wait over that for an echo, one in flight", ("p50_ratio_streams_1",))
    own: dict[str, Path] = {"less the build": ("builds", "cpu_us_less_build")}
    yield Row("bus", "CPU of an answer with a build, µs", ("builds", "cpu_us"), None, own)
    yield Row("bus", "CPU of an idle worker, %", ("idle_cpu_percent",))


def _inspector_rows() -> Iterator[Row]:
    what = "answers with a page that looks on, over those without"
    cpu: dict[str, Path] = {
        "CPU of an answer": ("cpu_ratio",),
        "one owner of 200": ("one_owner_of_200", "throughput_ratio"),
    }
    yield Row("inspector", what, ("throughput_ratio",), Aim(">", 0.95), cpu)


def _store_rows() -> Iterator[Row]:
    ways: tuple[tuple[Path, str, Aim | None], ...] = (
        ((), "build", None),
        (("relevance",), "build with `relevance`", Aim("<", 4)),
    )
    for kind, name in (("sqlite", "SQLite"), ("postgres", "Postgres")):
        for way, what, aim in ways:
            beside: dict[str, Path] = {
                f"ms over {size:,}": (*way, "build_ms", kind, str(size))
                for size in (1_000, 1_000_000)
            }
            words = f"{what}, longest history over the shortest, {name}"
            yield Row("store", words, (*way, f"growth_{kind}"), aim, beside)


ROWS: Final[tuple[Row, ...]] = (
    *_recall_rows(),
    *_reachable_rows(),
    *_cache_rows(),
    *_laws_rows(),
    *_account_rows(),
    *_tools_rows(),
    *_compaction_rows(),
    *_memory_rows(),
    *_hostile_rows(),
    *_build_rows(),
    *_faces_rows(),
    *_bus_rows(),
    *_inspector_rows(),
    *_store_rows(),
    *_chaos_rows(),
)
