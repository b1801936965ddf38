"""Print the description of the API: `python -m coordinator.openapi > web/openapi.json`, or `make openapi`."""

from __future__ import annotations

import json
import sys

from coordinator import app
from jobs.settings import Settings


def text() -> str:
    """Return the description for web/openapi.json, from which the pages' types are made. Needs no Redis."""
    return json.dumps(app.create(Settings()).openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
