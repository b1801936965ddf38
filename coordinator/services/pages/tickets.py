"""Tickets: what lets a browser look at the page of one service, in a link or in a cookie.

A ticket is signed with the key of the replica that leads, which coordinators know, and ends with it; it names the token
of who asked for it, and the login where there is one, and ends with these. It opens nothing but this page, so it may
travel where a script cannot add a header: pages, their files, WebSockets.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from coordinator.access.credentials import Credentials
from coordinator.access.principal import BOOTSTRAP, Principal

#: Seconds for which a link can be followed, and for which a browser may look then.
LINK_SECONDS, LOOK_SECONDS = 600, 12 * 3600
_TICKET = re.compile(
    r"(?P<said>(?P<until>[0-9]{1,12})\.(?P<token>[a-z0-9-]{1,32})\.(?P<session>[a-z0-9]{0,32}))"
    r"\.(?P<signature>[A-Za-z0-9_-]{43})"
)


class Use(StrEnum):
    """Where a ticket is shown: one of a link is no cookie."""

    LINK = "link"
    COOKIE = "cookie"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Page that a ticket is for."""

    service_id: str
    #: Key of the replica that leads.
    key: str


def issue(place: Place, use: Use, principal: Principal, seconds: int) -> str:
    """Return a ticket with which this principal looks at a page for so long. It needs a token to be named."""
    said = f"{int(time.time()) + seconds}.{principal.token}.{principal.session}"
    return f"{said}.{_signature(place, use, said, principal.bootstrap)}"


async def holder(text: str, place: Place, use: Use, credentials: Credentials) -> Principal | None:
    """Return whose ticket this is; None for one that is forged, too old, for something else, or of a revoked token."""
    if not (parts := _TICKET.fullmatch(text)) or int(parts["until"]) <= time.time():
        return None
    for bootstrap in _bootstraps(parts["token"], credentials):
        if hmac.compare_digest(parts["signature"], _signature(place, use, parts["said"], bootstrap)):
            principal = await credentials.principal_by_token_id(parts["token"], bootstrap)
            principal = principal and replace(principal, session=parts["session"])
            return principal if principal and await credentials.is_valid(principal) else None
    return None


def _bootstraps(token: str, credentials: Credentials) -> Iterable[str]:
    """Return digests of the CLUSTER_TOKENs of which one may have been shown; of an API token, no text."""
    return credentials.cluster_token_digests() if token == BOOTSTRAP else ("",)


def _signature(place: Place, use: Use, said: str, bootstrap: str) -> str:
    words = f"threads cluster: ticket\0{use}\0{place.service_id}\0{said}\0{bootstrap}"
    digest = hmac.digest(place.key.encode(), words.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
