"""Write dashboards/*.json: run `.venv/bin/python -m grafana` after a change in tables.py or render.py.

tests/unit/test_grafana.py checks that the files are up to date.
"""

from pathlib import Path

from grafana import render, tables

folder = Path(__file__).parent / "dashboards"
folder.mkdir(exist_ok=True)
for path in folder.glob("*.json"):
    path.unlink()
for dashboard in tables.DASHBOARDS:
    (folder / f"{dashboard.name}.json").write_text(render.text(dashboard))
