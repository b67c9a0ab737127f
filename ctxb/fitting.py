"""`fit`: a list of messages within a budget, in one call."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from io import StringIO
from typing import Any, Final

from formatters.model import Passage, Ranker
from formatters.rows import counted
from service.adapters.model_table import load_models
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.budget.counting import count_function, write_json
from service.budget.decisions import PRESENT, Decision
from service.budget.groups import Strategy, check_count
from service.budget.limits import ModelLimits, lookup
from service.budget.strategies.relevance import Relevance
from service.budget.strategy_names import read_strategy
from service.conversation.checks import read_tools
from service.conversation.fit import MessageDecision, fit_rows
from service.conversation.sending import estimated_texts
from service.conversation.strategies import ContextStrategy
from service.errors import MessageError, did_you_mean, explain_call, shown
from service.recall.ranking import RANKING_STRATEGIES, RELEVANCE, rank

#: The limits of a model that is in no table: its tokens are estimated.
UNKNOWN_MODEL: Final = ModelLimits(max_input=None, exact=False)

_TOKENIZERS: Final = TiktokenTokenizers()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitUsage:
    """The tokens of the messages that fit, and of all messages."""

    tokenizer: str
    #: False if the tokenizer only estimates the model's counts, or a message has more than words,
    #: calls and results: images, sounds and files aren't counted, and all else counts as text.
    exact: bool
    max_tokens: int
    #: The tool definitions as JSON.
    tools: int
    messages: int
    #: All messages that were given.
    given: int

    @property
    def total(self) -> int:
        """Return the tokens of messages and tools, never more than ``max_tokens``."""
        return self.messages + self.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The messages of a list that fit, with the reasons."""

    #: In their order and shape.
    messages: list[Any]
    usage: FitUsage
    #: One for each message that was given: ``decisions[3]`` is on ``messages[3]`` of these.
    decisions: tuple[MessageDecision, ...]
    #: Warnings, for instance about an unknown model.
    warnings: tuple[str, ...] = ()

    def explain(self) -> str:
        """Return the decisions as a table, as ``ctxb build --explain`` prints them.

        It names messages by their positions in the list, from 0.
        """
        from rich.console import Console

        from service.build.account import to_record
        from service.cli.build_output import decisions_table

        records = [
            to_record(Decision((str(d.index),), "messages", d.outcome, d.reason, d.tokens, d.score))
            for d in self.decisions
        ]
        output, usage = StringIO(), self.usage
        console = Console(file=output, width=80, highlight=False, markup=False, emoji=False)
        if records:
            console.print(decisions_table(records))
        outcomes = Counter(decision.outcome for decision in self.decisions)
        listed = ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.items())
        how = "counted by" if usage.exact else "estimated with"
        console.print(
            f"messages: {listed or 'none'}\n"
            f"tokens: {usage.total:,} of {usage.max_tokens:,}, {how} {usage.tokenizer}",
            *(f"warning: {warning}" for warning in self.warnings),
            sep="\n",
        )
        return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


@explain_call("fit(messages, max_tokens, question=…, model=…, strategy=…, tools=…)", positional=2)
def fit(
    messages: Iterable[Mapping[str, Any]],
    max_tokens: int = 3000,
    *,
    question: str | None = None,
    model: str | None = None,
    strategy: Strategy | str | Mapping[str, object] | Sequence[object] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Fit:
    """Return the messages that fit, together with the tools, into ``max_tokens`` tokens.

    ``messages`` have the shape of OpenAI's chat messages, or Anthropic's or Gemini's, and come back
    in that shape: those that fit whole, in their order. System messages and the user's newest one
    are always kept, and each call with its results. ``question`` is what the default strategy,
    `relevance`, ranks older messages by, if not the user's newest message. ``strategy`` is a name,
    ``{"name": …, parameters}``, a list of these, or an object. ``model`` chooses the tokenizer;
    without one, ``o200k_base`` counts. If it isn't known, the result has a warning.

    Raises:
        MessageError: A message can't be read; the error names its position, and what to do.
        BudgetExceededError: What is always kept exceeds ``max_tokens``; the error has the sizes.
        ValueError: ``max_tokens`` or the strategy can't be used.
        TypeError: Another argument isn't of its type.
        ConfigError: The strategy returned no `Fit`.
    """
    check_count("max_tokens", max_tokens, least=1)
    _check_text("model", model)
    _check_text("question", question)
    definitions = read_tools(tools)
    limits = _limits(model)
    counter = _TOKENIZERS.counter(limits.counter)
    count = count_function(counter)
    spent = count(write_json(definitions)) if definitions else 0
    rows = _read_list(messages)
    chosen = _read_strategy(strategy, question)
    fitted = fit_rows(rows, chosen, max_tokens, count, spent=spent)
    sent = (each.index for each in fitted.decisions if each.outcome in PRESENT)
    estimated = {index: texts for index in sent if (texts := estimated_texts(rows[index]))}
    uncounted = [index for index, texts in estimated.items() if "" in texts]
    usage = FitUsage(
        tokenizer=counter.name,
        exact=counter.exact and limits.exact and not estimated,
        max_tokens=max_tokens,
        tools=spent,
        messages=fitted.tokens,
        given=sum(decision.tokens for decision in fitted.decisions),
    )
    return Fit(
        messages=fitted.rows,
        usage=usage,
        decisions=fitted.decisions,
        warnings=tuple(_warn(model, chosen if fitted.insufficient else None, uncounted)),
    )


def _read_list(messages: object) -> list[Mapping[str, Any]]:
    """Return the messages of an iterable; raises `MessageError` for a single one, or a text."""
    if isinstance(messages, str) or not isinstance(messages, Iterable):
        raise MessageError(f"messages is {shown(messages)}: pass a list of messages")
    if isinstance(messages, Mapping):
        inside = next((key for key in ("messages", "contents") if key in messages), None)
        fix = f"pass its {inside!r}" if inside else "pass a list with it"
        raise MessageError(f"messages is a single mapping: {fix}")
    return list(messages)


def _check_text(name: str, value: object) -> None:
    """Raise `TypeError` unless a value is a text or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} has to be a text, not {shown(value)}")


@cache
def _limits(model: str | None) -> ModelLimits:
    """Return how tokens of a model are counted."""
    if model is None:
        return ModelLimits(max_input=None)
    return lookup(model, load_models().models) or UNKNOWN_MODEL


def _warn(
    model: str | None, insufficient: Strategy | None, uncounted: Sequence[int]
) -> Iterator[str]:
    """Yield the warnings about an unknown model, a strategy that kept too much, and files."""
    if model and _limits(model) is UNKNOWN_MODEL:
        tokenizer, suggestion = UNKNOWN_MODEL.tokenizer, _similar_model(model)
        yield f"{shown(model)} is no known model, so {tokenizer} estimates its tokens{suggestion}"
    if insufficient:
        name = getattr(insufficient, "name", type(insufficient).__name__)
        yield f"{name} kept more than fits; the oldest messages were dropped too"
    if uncounted:
        first, number = uncounted[0], counted(len(uncounted), "message")
        yield (
            f"images, sounds and files aren't counted: {number}, such as messages[{first}];"
            " pass a smaller max_tokens"
        )


@cache
def _similar_model(model: str) -> str:
    return did_you_mean(model, load_models().models)


def _read_strategy(strategy: object, question: str | None) -> Strategy:
    """Return a strategy whose ranker ranks by the question, if any."""
    ranker: Ranker = rank
    if question is not None:

        def ranker(_: str, passages: Sequence[Passage], now: datetime | None) -> Sequence[float]:
            return rank(question, passages, now)

    relevance = replace(RELEVANCE, rank=ranker)
    if strategy is None:
        return relevance
    if isinstance(strategy, ContextStrategy):
        raise TypeError(f"{type(strategy).__name__} has a method for lists: call its compact()")
    if isinstance(strategy, Relevance):
        return replace(strategy, rank=ranker)
    if isinstance(strategy, type):
        raise TypeError(f"strategy has to be an object, not a class: {strategy.__name__}()")
    if hasattr(strategy, "fit"):
        return strategy  # type: ignore[return-value] # what has `fit` is a strategy of the engine
    return read_strategy(strategy, {**RANKING_STRATEGIES, relevance.name: relevance})
