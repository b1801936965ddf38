"""The rule for links in folders, which the client and the cluster each have: neither may import the other."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent


def test_client_and_cluster_have_the_same_rule() -> None:
    ours, theirs = (
        [line for line in (TOP / folder / "links.py").read_text().splitlines() if "has the same rule" not in line]
        for folder in ("jobs/trees", "threads_cluster")
    )
    assert ours == theirs
