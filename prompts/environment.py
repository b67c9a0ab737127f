"""The `# Environment` section of a system prompt: where an agent runs."""

from dataclasses import dataclass
from typing import Final

from formatters.guard import one_line

#: Alone on its line, so that callers who add the time can find it.
HEADING: Final = "# Environment"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFacts:
    """Facts about the machine; empty strings if unknown."""

    working_directory: str = ""
    #: As `platform.system` returns it: ``Linux``, ``Darwin``, ``Windows``.
    system: str = ""
    #: Of the kernel.
    release: str = ""
    #: Of Linux, with its version, such as ``Debian GNU/Linux 12 (bookworm)``.
    distribution: str = ""
    #: The version of macOS, such as ``14.2``.
    macos: str = ""
    terminal_program: str = ""
    #: The variable TERM.
    terminal: str = ""


def format_environment(facts: SystemFacts, *, is_repl: bool = True) -> str:
    """Return the section, one line per fact; the terminal only in a REPL."""
    mode = "Interactive REPL" if is_repl else "HTTP JSON-RPC Server"
    lines = [
        f"Working directory: {facts.working_directory or UNKNOWN}",
        *_operating_system(facts),
        *([f"Terminal: {_terminal(facts)}"] if is_repl else ()),
        f"Mode: {mode}",
    ]
    # the name of a folder may have line ends
    return "\n".join([HEADING, *map(one_line, lines)])


def _operating_system(facts: SystemFacts) -> list[str]:
    release = facts.release.lower()
    # Microsoft's names of the kernels of its subsystems
    if facts.system == "Linux" and "microsoft" in release:
        version = "WSL2" if "wsl2" in release or "microsoft-standard" in release else "WSL"
        return [f"Operating system: Linux ({version} on Windows)", f"Kernel: {facts.release}"]
    if facts.system == "Linux" and facts.distribution:
        name = f"Linux ({facts.distribution})"
    elif facts.system == "Darwin":
        name = f"macOS {facts.macos}".strip()
    else:
        name = " ".join(filter(None, (facts.system, facts.release))) or UNKNOWN
    return [f"Operating system: {name}"]


def _terminal(facts: SystemFacts) -> str:
    if facts.terminal_program and facts.terminal:
        return f"{facts.terminal_program} ({facts.terminal})"
    return facts.terminal_program or facts.terminal or UNKNOWN
