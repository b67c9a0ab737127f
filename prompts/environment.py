"""The `# Environment` section: where an agent runs, as a model is told it."""

from dataclasses import dataclass
from typing import Final

from formatters.guard import one_line

#: Stands alone on its line, so that whoever adds the time finds it.
HEADING: Final = "# Environment"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFacts:
    """What is known of the machine; empty where it is not."""

    working_directory: str = ""
    #: As `platform.system` names it: ``Linux``, ``Darwin``, ``Windows``.
    system: str = ""
    #: Of the kernel.
    release: str = ""
    #: Of Linux, with its version, such as ``Debian GNU/Linux 12 (bookworm)``.
    distribution: str = ""
    #: Of macOS, such as ``14.2``.
    macos: str = ""
    terminal_program: str = ""
    #: The variable TERM.
    terminal: str = ""


def format_environment(facts: SystemFacts, *, is_repl: bool = True) -> str:
    """Return the section, each fact on a line; the terminal only where a person sits at one."""
    mode = "Interactive REPL" if is_repl else "HTTP JSON-RPC Server"
    lines = [
        f"Working directory: {facts.working_directory or UNKNOWN}",
        *_operating_system(facts),
        *([f"Terminal: {_terminal(facts)}"] if is_repl else ()),
        f"Mode: {mode}",
    ]
    # a folder's name may hold line ends
    return "\n".join([HEADING, *map(one_line, lines)])


def _operating_system(facts: SystemFacts) -> list[str]:
    name = "Operating system"
    windows = _windows_below(facts.release.lower()) if facts.system == "Linux" else ""
    if windows:
        return [f"{name}: Linux ({windows} on Windows)", f"Kernel: {facts.release}"]
    if facts.system == "Linux" and facts.distribution:
        return [f"{name}: Linux ({facts.distribution})"]
    if facts.system == "Darwin":
        return [f"{name}: {' '.join(filter(None, ('macOS', facts.macos)))}"]
    return [f"{name}: {' '.join(filter(None, (facts.system, facts.release))) or UNKNOWN}"]


def _windows_below(release: str) -> str:
    """Return which subsystem of Windows a kernel is, by how Microsoft names it, or nothing."""
    if "microsoft" not in release:
        return ""
    return "WSL2" if "wsl2" in release or "microsoft-standard" in release else "WSL"


def _terminal(facts: SystemFacts) -> str:
    if facts.terminal_program and facts.terminal:
        return f"{facts.terminal_program} ({facts.terminal})"
    return facts.terminal_program or facts.terminal or UNKNOWN
