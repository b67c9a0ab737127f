"""One shared conversation for a coordinator and the agents that it supervises (SPADE_LLM's)."""

from collections.abc import Iterable
from typing import Final, Unpack

from formatters.model import Row
from service.conversation.manager import ContextManager, ManagerOptions
from service.conversation.message_log import SpadeMessage
from service.conversation.messages import bare, create_user_message, speaker_name

#: Where a message names agents, in the dictionary of a caller or of `add_message`.
_AGENTS: Final = ("sender", "receiver")


class CoordinationContextManager(ContextManager):
    """Puts every message from or to a subagent into the coordination session.

    That holds whatever thread or conversation such a message came with; messages of others keep
    theirs. Addresses match with and without a resource (``a@x/phone``).
    """

    def __init__(
        self,
        coordination_session: str,
        subagent_ids: Iterable[str],
        **kwargs: Unpack[ManagerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.coordination_session = coordination_session
        self.subagent_ids = frozenset(map(bare, subagent_ids))

    def add_message(self, message: SpadeMessage, conversation_id: str | None = None) -> None:
        """Add what an agent says; where nothing else says which, a pair has a conversation."""
        sender, to = str(message.sender or ""), str(message.to or "")
        name = conversation_id or message.thread or f"{sender}_{to}"
        super().add_message(message, self._session(sender, to) or name)

    def add_message_dict(self, message: Row, conversation_id: str | None = None) -> None:
        """Add a message; its ``sender`` and ``receiver``, if it has them, are agents."""
        agents = [str(message.get(key) or "") for key in _AGENTS]
        super().add_message_dict(message, self._session(*agents) or conversation_id)

    def add_coordination_command(self, target_agent: str, command: str) -> None:
        """Record in the session what the coordinator tells an agent to do."""
        text = f"[TO: {target_agent}] {command}"
        row = create_user_message(text, speaker_name(target_agent))
        super().add_message_dict(row, self.coordination_session)

    def _session(self, *agents: str) -> str | None:
        """Return the coordination session, if a subagent is among agents."""
        involved = not self.subagent_ids.isdisjoint(map(bare, agents))
        return self.coordination_session if involved else None
