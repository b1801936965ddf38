"""Thresholds of alerts as recording rules: `.venv/bin/python -m prometheus.thresholds` writes rules/thresholds.yml.

The values are those of the settings ALERT_*, so the environment changes them; the committed file has the defaults.
"""

from __future__ import annotations

from pathlib import Path

from jobs.settings import Settings

FILE = Path(__file__).parent / "rules" / "thresholds.yml"
_HEAD = """\
# Thresholds of alerts, as the settings ALERT_* have them by default: `.venv/bin/python -m prometheus.thresholds` writes
# this file, and in Compose prometheus/start.sh puts in what is set. Rules and dashboards read thresholds here.
groups:
  - name: thresholds
    rules:
"""


def names() -> list[str]:
    """Thresholds by the names of their settings, without ALERT_."""
    return [field.removeprefix("alert_") for field in Settings.model_fields if field.startswith("alert_")]


def rendered(settings: Settings) -> str:
    """Return the file's text."""
    values = {name: getattr(settings, f"alert_{name}") for name in names()}
    rules = (
        f"      - {{record: 'alert:{name}:threshold', expr: vector({value:g})}}\n" for name, value in values.items()
    )
    return _HEAD + "".join(rules)


if __name__ == "__main__":
    FILE.write_text(rendered(Settings()))
