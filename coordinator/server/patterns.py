"""Patterns of names and IDs in requests, and messages that describe these patterns to users."""

from __future__ import annotations

import re

from coordinator.access.principal import Scope
from jobs.store import schedules, webhooks
from jobs.store.tenancy import secrets, tenants

TOKEN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
#: Patterns of a host name, and of a worker's name on its host. Both names together form a valid worker name.
HOST = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"
HOSTS_WORKER = r"^(cpu|gpu|runner)-[1-9][0-9]{0,2}$"
TOKEN_ID = r"^[a-z0-9]{1,32}$"
JOB_ID = r"^[A-Za-z0-9_-]{1,64}$"
#: Tag of a job, such as nightly, team/vision or dataset=v2.
TAG = r"^[A-Za-z0-9][A-Za-z0-9._:/=@+-]{0,63}$"
SCOPE = f"^({'|'.join(Scope)})$"

_DESCRIPTIONS = {
    TOKEN_NAME: "must be 1 to 64 letters, digits, dots, dashes, @ or _, and begin with a letter or a digit",
    HOST: "must be 1 to 48 letters, digits, dots, dashes or _, and begin with a letter or a digit",
    HOSTS_WORKER: "must be cpu-N, gpu-N or runner-N, with a number from 1 to 999",
    TOKEN_ID: "must be a token's ID, 1 to 32 lowercase letters or digits. List the IDs with `cluster token list`",
    JOB_ID: "must be a job ID: 1 to 64 letters, digits, dashes or _",
    TAG: "must be 1 to 64 letters, digits or . _ : / = @ + -, and begin with a letter or a digit",
    SCOPE: f"must be one of {', '.join(Scope)}",
    schedules.NAME: "must be 1 to 64 letters, digits, dots, dashes or _, and begin with a letter or a digit",
    secrets.NAME: "must be 1 to 64 letters, digits or _, and begin with a letter or _",
    tenants.NAME: "must be 1 to 32 lowercase letters, digits or dashes, and begin with a letter or a digit",
    webhooks.ID: "must be a delivery ID, which starts with msg_; list deliveries with GET /api/webhooks",
}
_MESSAGE = re.compile("String should match pattern '(.*)'")


def explain(message: str) -> str:
    """Return pydantic's error message, with a known pattern replaced by its description."""
    pattern = _MESSAGE.fullmatch(message)
    return _DESCRIPTIONS.get(pattern[1], message) if pattern else message
