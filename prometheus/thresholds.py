"""Write the alert thresholds as recording rules: `.venv/bin/python -m prometheus.thresholds`.

The values come from the settings ALERT_*, which the environment can change. The committed file contains the defaults.
"""

from __future__ import annotations

from pathlib import Path

from jobs.settings import Settings

FILE = Path(__file__).parent / "rules" / "thresholds.yml"
_HEAD = """\
# Default thresholds of alerts, written by `.venv/bin/python -m prometheus.thresholds` from the settings ALERT_*. In
# Compose, prometheus/start.sh replaces them by the configured values. Alert rules and dashboards use these series.
groups:
  - name: thresholds
    rules:
"""


def threshold_names() -> list[str]:
    """Return the names of the threshold settings without the prefix ALERT_."""
    return [field.removeprefix("alert_") for field in Settings.model_fields if field.startswith("alert_")]


def render(settings: Settings) -> str:
    """Return the contents of rules/thresholds.yml."""
    values = {name: getattr(settings, f"alert_{name}") for name in threshold_names()}
    rules = (
        f"      - {{record: 'alert:{name}:threshold', expr: vector({value:g})}}\n" for name, value in values.items()
    )
    return _HEAD + "".join(rules)


if __name__ == "__main__":
    FILE.write_text(render(Settings()))
