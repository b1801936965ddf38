"""Create the API token of a runner. ./deploy-cluster.sh pipes this program into a coordinator.

Its command is `python3 - NAME ID LABELS`. Prints nothing if token ID exists with this name, these labels and the scope
`worker`. Otherwise revokes the worker tokens of this name and prints a new token. LABELS are separated by commas or
spaces, as in WORKER_LABELS.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx

TOKEN = Path("/run/secrets/cluster_token")
API = "http://127.0.0.1:3000/api"


def request(method: str, path: str, body: Any = None) -> Any:
    """Send a request to the coordinator and return the JSON response. Raises httpx.HTTPError, OSError or ValueError."""
    tokens = TOKEN.read_text().replace(",", " ").split()
    headers = {"Authorization": f"Bearer {tokens[0]}"} if tokens else {}
    answer = httpx.request(method, f"{API}{path}", json=body, headers=headers, timeout=20, trust_env=False)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def renew_token(name: str, kept: str, labels: str = "") -> str:
    """Return a new token for a runner. Return "" if the existing token `kept` already has this name and these
    labels.
    """
    wanted = sorted(set(labels.replace(",", " ").split()))
    same = [row for row in request("GET", "/tokens")["tokens"] if row["name"] == name and row["scopes"] == ["worker"]]
    if any(row["id"] == kept and row["labels"] == wanted for row in same):
        return ""
    for row in same:
        request("DELETE", f"/tokens/{row['id']}")
    return str(request("POST", "/tokens", {"name": name, "scopes": ["worker"], "labels": wanted})["token"])


def main(arguments: list[str]) -> int:
    try:
        token = renew_token(*arguments)
    except httpx.HTTPStatusError as error:
        answer = error.response
        said = f"HTTP Error {answer.status_code}: {answer.reason_phrase}: {answer.text[:500]}"
        print(f"The API rejected the request: {said}", file=sys.stderr)
        return 1
    except (OSError, ValueError, httpx.HTTPError) as error:
        print(f"The API does not answer: {error}", file=sys.stderr)
        return 1
    if token:
        print(token)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
