"""The table of models that the package contains; `scripts/refresh_models.py` writes it."""

import json
from pathlib import Path
from typing import Final

from service.budget.limits import ModelLimits, ModelTable

#: The file of the table.
TABLE: Final = Path(__file__).with_name("models.json")


def load_models() -> ModelTable:
    """Read the table, which takes about a millisecond."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    models = {name: ModelLimits(**row) for name, row in table["models"].items()}
    return ModelTable(date=table["date"], source=table["source"], models=models)
