"""Execution of docs/notebook.ipynb with the Python client and a new cluster: `make notebook`.

The outputs are stored in the notebook. A failed cell ends the command with an error, and the notebook stays unchanged.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.live import TOP, Live

NOTEBOOK = TOP / "docs" / "notebook.ipynb"
TOKEN = "a-token-of-the-notebook"
#: IDs of jobs, workflows and artifacts.
_ID = re.compile(r"\b(?:[0-9a-f]{16}|[0-9a-f]{64}|(?<=v-)[0-9a-f]{12})\b")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.notebook", description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="Python with Jupyter, joblib and scikit-learn")
    folder = parser.parse_args().python.absolute().parent
    with tempfile.TemporaryDirectory(prefix="notebook-") as name, started(Path(name), folder) as url:
        executed = Path(name) / NOTEBOOK.name
        executed.write_text(NOTEBOOK.read_text())
        variables = os.environ | {"CLUSTER_URL": url, "CLUSTER_TOKEN": TOKEN, "PYTHONPATH": str(TOP)}
        command = [folder / "jupyter", "execute", "--inplace", executed]
        if code := subprocess.run(command, env=variables).returncode:
            return code
        NOTEBOOK.write_text(json.dumps(stable(json.loads(executed.read_text())), indent=1, ensure_ascii=False) + "\n")
    return 0


@contextmanager
def started(folder: Path, python: Path) -> Iterator[str]:
    """Start a cluster, and return its URL. Programs use the Python in the folder `python`."""
    live = Live(folder, lanes=2, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts")
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_worker(HOST_ID="laptop")
        live.start_runner(HOST_ID="laptop", PATH=f"{python}:{os.environ['PATH']}")
        live.wait_ready(2)
        yield live.url()
    finally:
        live.stop()


def stable(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook in which IDs, ports and paths do not depend on the machine and the time."""
    found: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return found.setdefault(match[0], f"{len(found) + 1:0{len(match[0])}x}")

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            value = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:3000", _ID.sub(number, value))
            return re.sub(r"/tmp/ipykernel_\d+/", "/tmp/ipykernel/", value)
        if isinstance(value, list):
            return [clean(each) for each in value]
        return {name: clean(each) for name, each in value.items()} if isinstance(value, dict) else value

    cells = [
        {**cell, "metadata": {}, **({"outputs": clean(merged(cell["outputs"]))} if "outputs" in cell else {})}
        for cell in notebook["cells"]
    ]
    metadata = {"kernelspec": notebook["metadata"]["kernelspec"], "language_info": {"name": "python"}}
    return {**notebook, "cells": cells, "metadata": metadata}


def merged(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge successive outputs of the same stream. Of an object with HTML, keep only the HTML."""
    found: list[dict[str, Any]] = []
    for output in outputs:
        if found and output["output_type"] == "stream" and output["name"] == found[-1].get("name"):
            found[-1] = {**output, "text": [*found[-1]["text"], *output["text"]]}
            continue
        data = output.get("data", {})
        # The text of an object with HTML contains its address
        found.append({**output, "data": {"text/html": data["text/html"]}} if "text/html" in data else output)
    return found


if __name__ == "__main__":
    sys.exit(main())
