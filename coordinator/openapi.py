"""Print the OpenAPI description: `python -m coordinator.openapi > web/openapi.json`, or `make openapi`."""

from __future__ import annotations

import json
import sys

from coordinator import app
from jobs.settings import Settings


def text() -> str:
    """Return the OpenAPI description, from which the types of the web pages are generated. Does not need Redis."""
    return json.dumps(app.create(Settings()).openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
