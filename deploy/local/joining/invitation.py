"""An invitation as it is typed: where the cluster is, the fingerprint of its authority, and a token that counts once.

HOST:PORT/FINGERPRINT/TOKEN, such as 192.0.2.7:3443/5f0c...e1/tc_k3v9x2m1qa_...; - for a fingerprint: the certificate is
of an authority that every machine knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WRITTEN = re.compile(
    r"""(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})
    /(?P<fingerprint>[0-9a-f]{64}|-)/(?P<token>tc_[a-z0-9]{10}_[A-Za-z0-9_-]{43})""",
    re.VERBOSE | re.ASCII,
)
_LAST_PORT = 65535
#: In place of a fingerprint: the authorities of the system are trusted.
PUBLIC = "-"


class NoInvitation(ValueError):
    """A text is no invitation; the message says what one looks like, and holds no secret."""


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """Where a host joins, and with what."""

    #: Name or address, without brackets.
    host: str
    port: int
    #: SHA-256 of the authority's certificate in DER, as hexadecimal digits; or PUBLIC.
    fingerprint: str
    token: str

    @property
    def url(self) -> str:
        """Address of the cluster's API."""
        return f"https://{bracket_ipv6(self.host)}:{self.port}"

    def __str__(self) -> str:
        return f"{bracket_ipv6(self.host)}:{self.port}/{self.fingerprint}/{self.token}"


def bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse(text: str) -> Invitation:
    """Return the invitation that a text is. Raises NoInvitation."""
    parts = _WRITTEN.fullmatch(text.strip())
    if parts is None or not 0 < int(parts["port"]) <= _LAST_PORT:
        raise NoInvitation(
            "this is no invitation; one is HOST:PORT/FINGERPRINT/TOKEN, on one line, as `./deploy-cluster.sh invite`"
            " prints it. Copy it again"
        )
    return Invitation(
        host=parts["host"].strip("[]"), port=int(parts["port"]), fingerprint=parts["fingerprint"], token=parts["token"]
    )
