"""The `[FRIENDS_INFO]` block: the profile of the human."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from formatters.guard import Guard
from formatters.model import Block, Entry, Facts, Tag, TrimPolicy
from formatters.rows import as_mapping, fix_surrogates
from formatters.times import parse_timestamp

HEADER: Final = f"[{Tag.FRIENDS_INFO}]\nAbout this friend:\n\n"
NEW_FRIEND: Final = "(New friend, getting to know each other)"
NO_TEXT: Final = "(Still learning about this friend's preferences)"
SHORTENED: Final = "(shortened)"


def friends_info(facts: Facts) -> Block:
    """Show the text of the profile, or the configured default if it has none."""
    text = read_profile_text(facts.profile) or facts.default_profile.strip()
    entry = _entry(text, facts.guard, len(text)) if text else Entry(text=_empty(facts.profile))
    return Block(
        tag=Tag.FRIENDS_INFO,
        header=HEADER,
        entries=(entry,),
        gives_way=TrimPolicy.BY_TAIL if text else TrimPolicy.NEVER,
    )


def read_profile_text(profile: Mapping[str, object]) -> str:
    """Return the text of a profile: ``friends_profile``, else the older ``learning``."""
    overrides = as_mapping(profile.get("prompt_overrides"))
    texts = (overrides.get(key) for key in ("friends_profile", "learning"))
    stripped = (fix_surrogates(text).strip() for text in texts if isinstance(text, str))
    return next(filter(None, stripped), "")


class FriendsInfoFormatter:
    """Writes the block `[FRIENDS_INFO]`."""

    @staticmethod
    def format_friends_info(user_profile: Mapping[str, object] | None) -> str:
        """Return the block for a profile with ``prompt_overrides`` and ``created_at``."""
        return friends_info(Facts(current_input="", profile=user_profile or {})).text


def _entry(text: str, guard: Guard, chars: int) -> Entry:
    shown = guard.quote(text[:chars].rstrip())
    if chars < len(text):
        shown = f"{shown}\n{SHORTENED}" if shown else SHORTENED
    return Entry(text=shown, shorten=partial(_entry, text, guard), longest=len(text))


def _empty(profile: Mapping[str, object]) -> str:
    if not profile:
        return NEW_FRIEND
    if not profile.get("created_at"):
        return NO_TEXT
    since = parse_timestamp(profile["created_at"])
    return f"Member since: {since.date() if since else 'Unknown'}\n{NO_TEXT}"
