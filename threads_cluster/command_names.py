"""Names of commands and folders in messages, which are written for a checkout. An installation has other names."""

from __future__ import annotations

import re

from threads_cluster import settings

#: Patterns of names in a checkout, with the names in an installation. deploy/state.sh has the same commands.
_NAMES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\./deploy-cluster\.sh local, docker or kubernetes", "cluster start"),
        (r"\./deploy-cluster\.sh local\b", "cluster start"),
        (r"\./deploy-cluster\.sh (docker|kubernetes)\b", r"cluster start --\1"),
        (r"\./deploy-cluster\.sh status\b", "cluster status --processes"),
        (r"\./deploy-cluster\.sh logs(?= -f|$|[,;.])", "cluster logs --process all"),
        (r"\./deploy-cluster\.sh logs\b", "cluster logs --process"),
        (r"\./deploy-cluster\.sh help\b", "cluster --help"),
        (r"\./deploy-cluster\.sh", "cluster"),
        (r"\.venv/bin/cluster\b", "cluster"),
        (r"\bthis checkout\b", "this installation"),
    )
)
#: Pattern of the data folder's relative path.
_DATA = re.compile(r"(?<![\w/])\.cluster\b")


def name_commands(text: str) -> str:
    """Return a message with the names that commands and folders have for the user of this client."""
    if not settings.IS_INSTALLED:
        return text
    for pattern, name in _NAMES:
        text = pattern.sub(name, text)
    return _DATA.sub(lambda _: str(settings.LOCAL_FOLDER), text)
