"""What is known of this machine, for agents that work on it."""

import os
import platform
from pathlib import Path

from prompts.environment import SystemFacts, system_info


def system_facts() -> SystemFacts:
    """Return the facts about this process and the machine below it; what is not known is empty."""
    return SystemFacts(
        working_directory=_working_directory(),
        system=platform.system(),
        release=platform.release(),
        distribution=_distribution(),
        macos=platform.mac_ver()[0],
        terminal_program=os.environ.get("TERM_PROGRAM", ""),
        terminal=os.environ.get("TERM", ""),
    )


def get_system_info(is_repl: bool = True, *, facts: SystemFacts | None = None) -> str:
    """Return the `# Environment` section; of this machine, where no facts are given."""
    return system_info(facts or system_facts(), is_repl=is_repl)


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was deleted
        return ""


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except (OSError, ValueError):
        return ""
