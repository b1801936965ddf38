"""Token of a runner, made in a coordinator, into which ./deploy-cluster.sh pipes this: `python3 - NAME ID LABELS`.

Prints nothing where the cluster has a token of this id and name with the scope worker and these labels; else a new one,
and those of the same name end. Labels have commas or blanks between them, as in WORKER_LABELS.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOKEN = Path("/run/secrets/cluster_token")
API = "http://127.0.0.1:3000/api"


def ask(method: str, path: str, body: Any = None) -> Any:
    """Return the answer of this coordinator. Raises OSError, or ValueError for what is no JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{API}{path}", data, {"Content-Type": "application/json"}, method=method)
    tokens = TOKEN.read_text().replace(",", " ").split()
    request.add_header("Authorization", f"Bearer {tokens[0] if tokens else ''}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def renewed(name: str, kept: str, labels: str = "") -> str:
    """Return a new token of that name with these labels; empty where the one that is kept counts and has them."""
    wanted = sorted(set(labels.replace(",", " ").split()))
    same = [row for row in ask("GET", "/tokens")["tokens"] if row["name"] == name and row["scopes"] == ["worker"]]
    if any(row["id"] == kept and row["labels"] == wanted for row in same):
        return ""
    for row in same:
        ask("DELETE", f"/tokens/{row['id']}")
    return str(ask("POST", "/tokens", {"name": name, "scopes": ["worker"], "labels": wanted})["token"])


def main(arguments: list[str]) -> int:
    try:
        token = renewed(*arguments)
    except urllib.error.HTTPError as error:
        with error:
            print(f"the API refuses it: {error}: {error.read(500).decode(errors='replace')}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"the API does not answer: {error}", file=sys.stderr)
        return 1
    if token:
        print(token)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
