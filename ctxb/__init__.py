"""The public names of context-builder, all in one place: ``from ctxb import ContextManager``.

The module of a name is imported when the name is first used. `ctxb.strategies` has what a strategy
is made of.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # for type checkers and editors; the table below is for Python
    from ctxb import strategies as strategies
    from ctxb.fitting import Fit as Fit
    from ctxb.fitting import FitUsage as FitUsage
    from ctxb.fitting import fit as fit
    from formatters.friends_info import FriendsInfoFormatter as FriendsInfoFormatter
    from formatters.guard import unquoted as unquoted
    from formatters.model import Message as Message
    from formatters.model import Role as Role
    from formatters.model import ToolCall as ToolCall
    from formatters.printed import format_annotation as format_annotation
    from formatters.providers.context_management import ContextEdit as ContextEdit
    from formatters.providers.context_management import ContextManagement as ContextManagement
    from formatters.rows import group_turns as group_turns
    from formatters.shared_memory import MemoryFormatter as MemoryFormatter
    from formatters.this_moment import MomentFormatter as MomentFormatter
    from prompts.identity import CORE_IDENTITY as CORE_IDENTITY
    from prompts.identity import QUOTING as QUOTING
    from prompts.layers import ContextLayer as ContextLayer
    from prompts.layers import ContextSources as ContextSources
    from prompts.layers import LoadedContext as LoadedContext
    from prompts.layers import LoadedPrompt as LoadedPrompt
    from prompts.summary import create_summary_message as create_summary_message
    from prompts.system_prompt import ContextSection as ContextSection
    from prompts.system_prompt import EveryNTurns as EveryNTurns
    from prompts.system_prompt import InjectionTrigger as InjectionTrigger
    from prompts.system_prompt import OnTokenThreshold as OnTokenThreshold
    from prompts.system_prompt import PersistentContext as PersistentContext
    from prompts.system_prompt import PromptManager as PromptManager
    from prompts.system_prompt import SystemInjector as SystemInjector
    from service.adapters.prompts.folders import ContextLoader as ContextLoader
    from service.adapters.prompts.loader import FilePromptSource as FilePromptSource
    from service.adapters.prompts.loader import PromptLoader as PromptLoader
    from service.adapters.prompts.loader import PromptSource as PromptSource
    from service.adapters.prompts.loader import get_system_info as get_system_info
    from service.adapters.tokens.tokenizers import TiktokenCounter as TiktokenCounter
    from service.adapters.tokens.tokenizers import get_token_counter as get_token_counter
    from service.adapters.tools.registry import InMemoryToolRegistry as InMemoryToolRegistry
    from service.app import open_builder as open_builder
    from service.app import open_worker as open_worker
    from service.budget.counting import MESSAGE_OVERHEAD as MESSAGE_OVERHEAD
    from service.budget.estimates import HeuristicTokenCounter as HeuristicTokenCounter
    from service.budget.estimates import SimpleTokenCounter as SimpleTokenCounter
    from service.budget.estimates import estimate_tokens as estimate_tokens
    from service.budget.limits import SEED_LIMITS as SEED_LIMITS
    from service.budget.strategies.importance import KEYWORD_WEIGHT as KEYWORD_WEIGHT
    from service.budget.strategies.importance import LENGTH_WEIGHT as LENGTH_WEIGHT
    from service.budget.strategies.importance import RECENCY_WEIGHT as RECENCY_WEIGHT
    from service.budget.strategies.importance import ROLE_WEIGHT_MODEL as ROLE_WEIGHT_MODEL
    from service.budget.strategies.importance import ROLE_WEIGHT_SYSTEM as ROLE_WEIGHT_SYSTEM
    from service.budget.strategies.importance import ROLE_WEIGHT_USER as ROLE_WEIGHT_USER
    from service.budget.strategies.importance import Importance as Importance
    from service.builder import ContextBuilder as ContextBuilder
    from service.config.load import load_settings as load_settings
    from service.config.settings import Settings as Settings
    from service.connect import connect_client as connect_client
    from service.connect import open_bus as open_bus
    from service.connect import open_stores as open_stores
    from service.conversation.compaction import CompactionResult as CompactionResult
    from service.conversation.compaction import build_summarize_prompt as build_summarize_prompt
    from service.conversation.compaction import (
        select_messages_for_compaction as select_messages_for_compaction,
    )
    from service.conversation.context_config import CompactionConfig as CompactionConfig
    from service.conversation.context_config import ContextConfig as ContextConfig
    from service.conversation.coordination import (
        CoordinationContextManager as CoordinationContextManager,
    )
    from service.conversation.fit import MessageDecision as MessageDecision
    from service.conversation.manager import ContextManager as ContextManager
    from service.conversation.messages import AssistantMessage as AssistantMessage
    from service.conversation.messages import ContextMessage as ContextMessage
    from service.conversation.messages import SystemMessage as SystemMessage
    from service.conversation.messages import ToolResult as ToolResult
    from service.conversation.messages import ToolResultMessage as ToolResultMessage
    from service.conversation.messages import UserMessage as UserMessage
    from service.conversation.messages import create_assistant_message as create_assistant_message
    from service.conversation.messages import (
        create_assistant_tool_call_message as create_assistant_tool_call_message,
    )
    from service.conversation.messages import create_system_message as create_system_message
    from service.conversation.messages import (
        create_tool_result_message as create_tool_result_message,
    )
    from service.conversation.messages import create_user_message as create_user_message
    from service.conversation.pruning import TARGET_UTILIZATION as TARGET_UTILIZATION
    from service.conversation.pruning import auto_manage_context as auto_manage_context
    from service.conversation.pruning import get_context_stats as get_context_stats
    from service.conversation.pruning import get_status as get_status
    from service.conversation.pruning import prune_context as prune_context
    from service.conversation.pruning import score_context_importance as score_context_importance
    from service.conversation.pruning import summarize_context as summarize_context
    from service.conversation.shapes import messages_from_dicts as messages_from_dicts
    from service.conversation.shapes import messages_to_dicts as messages_to_dicts
    from service.conversation.stored import Conversation as Conversation
    from service.conversation.strategies import CompositeStrategy as CompositeStrategy
    from service.conversation.strategies import ContextStrategy as ContextStrategy
    from service.conversation.strategies import NoContextManagement as NoContextManagement
    from service.conversation.strategies import SlidingWindowStrategy as SlidingWindowStrategy
    from service.conversation.strategies import SmartWindowSizeContext as SmartWindowSizeContext
    from service.conversation.strategies import SummarizationStrategy as SummarizationStrategy
    from service.conversation.strategies import (
        ToolResultClearingStrategy as ToolResultClearingStrategy,
    )
    from service.conversation.strategies import WindowSizeContext as WindowSizeContext
    from service.conversation.units import read_units as read_units
    from service.errors import BudgetExceededError as BudgetExceededError
    from service.errors import BusError as BusError
    from service.errors import ConfigError as ConfigError
    from service.errors import ContextBuilderError as ContextBuilderError
    from service.errors import ContextError as ContextError
    from service.errors import EmbedderError as EmbedderError
    from service.errors import InvalidRequestError as InvalidRequestError
    from service.errors import MessageError as MessageError
    from service.errors import PromptError as PromptError
    from service.errors import StoreError as StoreError
    from service.errors import SummarizerError as SummarizerError
    from service.ports.bus import Bus as Bus
    from service.ports.services import Embedder as Embedder
    from service.ports.services import Summarizer as Summarizer
    from service.ports.services import TokenCounter as TokenCounter
    from service.ports.services import ToolRegistry as ToolRegistry
    from service.ports.stores import HistoryStore as HistoryStore
    from service.wire.protocol import Topics as Topics
    from service.wire.recall import RecallRequest as RecallRequest
    from service.wire.recall import RecallResponse as RecallResponse
    from service.wire.recall import RecallSuccess as RecallSuccess
    from service.wire.request import BuildRequest as BuildRequest
    from service.wire.request import decode as decode
    from service.wire.response import BuildResponse as BuildResponse
    from service.wire.response import BuildSuccess as BuildSuccess
    from service.worker.client import ContextClient as ContextClient

    __version__: str

#: The public names, by the module that has them.
NAMES: Final = {
    "ctxb.fitting": "Fit FitUsage fit",
    "formatters.friends_info": "FriendsInfoFormatter",
    "formatters.guard": "unquoted",
    "formatters.model": "Message Role ToolCall",
    "formatters.printed": "format_annotation",
    "formatters.providers.context_management": "ContextEdit ContextManagement",
    "formatters.rows": "group_turns",
    "formatters.shared_memory": "MemoryFormatter",
    "formatters.this_moment": "MomentFormatter",
    "prompts.identity": "CORE_IDENTITY QUOTING",
    "prompts.layers": "ContextLayer ContextSources LoadedContext LoadedPrompt",
    "prompts.summary": "create_summary_message",
    "prompts.system_prompt": (
        "ContextSection EveryNTurns InjectionTrigger OnTokenThreshold PersistentContext "
        "PromptManager SystemInjector"
    ),
    "service.adapters.prompts.folders": "ContextLoader",
    "service.adapters.prompts.loader": "FilePromptSource PromptLoader PromptSource get_system_info",
    "service.adapters.tokens.tokenizers": "TiktokenCounter get_token_counter",
    "service.adapters.tools.registry": "InMemoryToolRegistry",
    "service.app": "open_builder open_worker",
    "service.budget.counting": "MESSAGE_OVERHEAD",
    "service.budget.estimates": "HeuristicTokenCounter SimpleTokenCounter estimate_tokens",
    "service.budget.limits": "SEED_LIMITS",
    "service.budget.strategies.importance": (
        "Importance KEYWORD_WEIGHT LENGTH_WEIGHT RECENCY_WEIGHT ROLE_WEIGHT_MODEL "
        "ROLE_WEIGHT_SYSTEM ROLE_WEIGHT_USER"
    ),
    "service.builder": "ContextBuilder",
    "service.config.load": "load_settings",
    "service.config.settings": "Settings",
    "service.connect": "connect_client open_bus open_stores",
    "service.conversation.compaction": (
        "CompactionResult build_summarize_prompt select_messages_for_compaction"
    ),
    "service.conversation.context_config": "CompactionConfig ContextConfig",
    "service.conversation.coordination": "CoordinationContextManager",
    "service.conversation.fit": "MessageDecision",
    "service.conversation.manager": "ContextManager",
    "service.conversation.messages": (
        "AssistantMessage ContextMessage SystemMessage ToolResult ToolResultMessage "
        "UserMessage create_assistant_message create_assistant_tool_call_message "
        "create_system_message create_tool_result_message create_user_message"
    ),
    "service.conversation.pruning": (
        "TARGET_UTILIZATION auto_manage_context get_context_stats get_status prune_context "
        "score_context_importance summarize_context"
    ),
    "service.conversation.shapes": "messages_from_dicts messages_to_dicts",
    "service.conversation.stored": "Conversation",
    "service.conversation.strategies": (
        "CompositeStrategy ContextStrategy NoContextManagement SlidingWindowStrategy "
        "SmartWindowSizeContext SummarizationStrategy ToolResultClearingStrategy "
        "WindowSizeContext"
    ),
    "service.conversation.units": "read_units",
    "service.errors": (
        "BudgetExceededError BusError ConfigError ContextBuilderError ContextError "
        "EmbedderError InvalidRequestError MessageError PromptError StoreError SummarizerError"
    ),
    "service.ports.bus": "Bus",
    "service.ports.services": "Embedder Summarizer TokenCounter ToolRegistry",
    "service.ports.stores": "HistoryStore",
    "service.wire.protocol": "Topics",
    "service.wire.recall": "RecallRequest RecallResponse RecallSuccess",
    "service.wire.request": "BuildRequest decode",
    "service.wire.response": "BuildResponse BuildSuccess",
    "service.worker.client": "ContextClient",
}

_MODULES: Final = {name: module for module, names in NAMES.items() for name in names.split()}

__all__ = ["strategies", *_MODULES]  # noqa: PLE0604 - strings, though computed


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import the module of a public name, and return what it has under it."""
        if name == "strategies":
            return import_module("ctxb.strategies")
        if name == "__version__":
            return import_module("importlib.metadata").version("ctxb")
        if name not in _MODULES:
            problem = f"module 'ctxb' has no attribute {name!r}"
            # with these, Python suggests a name
            raise AttributeError(problem, name=name, obj=sys.modules[__name__])
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value  # found at once from now on
        return value


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted(__all__)
