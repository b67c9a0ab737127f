"""One shared conversation for a coordinator and its subagents (SPADE_LLM's)."""

from collections.abc import Iterable
from typing import Unpack

from formatters.guard import one_line
from formatters.model import Row
from formatters.rows import as_mapping
from service.conversation.manager import ContextManager, ManagerOptions
from service.conversation.messages import (
    SpadeMessage,
    bare_address,
    create_user_message,
    speaker_name,
)


class CoordinationContextManager(ContextManager):
    """Adds every message from or to a subagent to the coordination session.

    The thread or conversation of such a message is ignored; messages of others keep theirs.
    Addresses match with and without a resource (``a@x/phone``).
    """

    def __init__(
        self,
        coordination_session: str,
        subagent_ids: Iterable[str],
        **kwargs: Unpack[ManagerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.coordination_session = coordination_session
        self.subagent_ids = frozenset(map(bare_address, subagent_ids))

    def add_message(self, message: SpadeMessage, conversation_id: str | None = None) -> None:
        """Add an agent's message; its default conversation is the session, or `sender_receiver`."""
        sender, to = str(message.sender or ""), str(message.to or "")
        name = conversation_id or message.thread or f"{sender}_{to}"
        super().add_message(message, self._session(sender, to) or name)

    def add_message_dict(self, message: Row, conversation_id: str | None = None) -> None:
        """Add a message; ``sender`` and ``receiver``, if it has them, are agents."""
        agents = [str(as_mapping(message).get(key) or "") for key in ("sender", "receiver")]
        super().add_message_dict(message, self._session(*agents) or conversation_id)

    def add_coordination_command(
        self, target_agent: str, command: str, conversation_id: str | None = None
    ) -> None:
        """Add a command of the coordinator to an agent; the default conversation is the session."""
        text = f"[TO: {one_line(target_agent)}] {command}"
        row = create_user_message(text, speaker_name(target_agent))
        session = self.coordination_session if conversation_id is None else conversation_id
        self._add_from_user(row, session)

    def _session(self, *agents: str) -> str | None:
        """Return the coordination session if one of the agents is a subagent."""
        involved = not self.subagent_ids.isdisjoint(map(bare_address, agents))
        return self.coordination_session if involved else None
