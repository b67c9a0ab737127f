"""Record a terminal as a picture: commands that run as it is made, and what they print.

    python -m scripts.record_terminal docs/images/terminal.svg

Colours are those of ``FORCE_COLOR``, since the output goes to a pipe here.
"""

import os
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).parents[1]
#: Run in the folder of the project, in this order.
COMMANDS: Final = ("cat examples/fit.py", "python examples/fit.py")
TITLE: Final = "context-builder"
COLUMNS: Final = 90


def record() -> str:
    """Return the picture as SVG.

    Raises:
        subprocess.CalledProcessError: A command failed.
    """
    console = Console(record=True, width=COLUMNS, file=StringIO(), no_color=False)
    for command in COMMANDS:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(_run(command)))
    svg = console.export_svg(title=TITLE)
    # an SVG that fetches a font asks another host
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def _run(command: str) -> str:
    """Return what a command prints, with its colours."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "FORCE_COLOR": "1",
        "NO_COLOR": "",
        "TERM": "xterm",
    }
    done = subprocess.run(  # noqa: S603 - the commands above
        shlex.split(command), check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    return done.stdout.rstrip("\n") + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(record(), encoding="utf-8")
