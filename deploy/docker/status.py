"""Print the status of a cluster. ./deploy-cluster.sh status pipes this program into a coordinator.

Its command is `python3 - json|text`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

TOKEN = Path("/run/secrets/cluster_token")


def get_json(url: str, token: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(url, headers=headers, timeout=5, trust_env=False)
    if answer.is_error:
        raise OSError(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
    return answer.json()


def format_counts(counts: Mapping[str, int]) -> str:
    """Format numbers by name, for example as `2 idle, 1 busy`. Zeros are omitted."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def format_scaled(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"


def format_lines(status: Mapping[str, Any]) -> list[str]:
    workers, wanted = status["workers"], status["cluster_size"]
    devices = [
        f"{device}: {format_counts(workers[device])}" for device in ("cpu", "gpu", "runner") if workers.get(device)
    ]
    speeds = [f"{kind} {format_scaled(rate)} units/s" for kind, rate in status["units_per_second"].items()]
    waiting = ", ".join(f"{name} {jobs}" for name, jobs in status["queues"].items())
    desired = ", ".join(f"{count} {device}" for device, count in status.get("desired_workers", {}).items())
    return [
        f"workers    {workers['live']} live{f' of {wanted} desired' if wanted else ''}; {'; '.join(devices) or 'none'}",
        *([f"desired    {desired}"] if desired else []),
        f"lanes      {status['lanes']}",
        f"jobs       {format_counts(status['jobs'])}",
        f"queues     {waiting or 'empty'}; oldest wait {status['oldest_wait_seconds']:.0f} s",
        f"speed      {', '.join(speeds) or 'no job is running'}",
        f"version    {status['version']}",
    ]


def main() -> int:
    # While an operator replaces the token, the file contains two tokens. The first one is used.
    token = (TOKEN.read_text().replace(",", " ").split() or [""])[0] if TOKEN.is_file() else ""
    try:
        status = get_json("http://127.0.0.1:3000/api/status", token)
    except (httpx.HTTPError, OSError, ValueError) as error:
        print(f"The API does not answer: {error}", file=sys.stderr)
        return 1
    print(json.dumps(status, separators=(",", ":")) if sys.argv[1:] == ["json"] else "\n".join(format_lines(status)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
