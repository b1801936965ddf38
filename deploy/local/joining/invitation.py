"""Text format of invitations. An invitation contains the cluster's address, a fingerprint, and a token for one use.

The format is HOST:PORT/FINGERPRINT/TOKEN, such as 192.0.2.7:3443/5f0c...e1/tc_k3v9x2m1qa_.... The fingerprint is the
one of the cluster's authority. The fingerprint `-` means that a public authority signed the certificate.
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
#: Text in place of a fingerprint if the certificate is signed by an authority that the system trusts.
PUBLIC = "-"


class NoInvitation(ValueError):
    """The text is not an invitation. The message describes the format, but contains no secret."""


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """Address, fingerprint and token with which a host joins a cluster."""

    #: Name or address of the cluster, without brackets.
    host: str
    port: int
    #: SHA-256 fingerprint of the authority's certificate in hexadecimal, or PUBLIC.
    fingerprint: str
    token: str

    @property
    def url(self) -> str:
        """Return the URL of the cluster's API."""
        return f"https://{bracket_ipv6(self.host)}:{self.port}"

    @property
    def pinned(self) -> str:
        """Return the part without a secret, HOST:PORT/FINGERPRINT."""
        return f"{bracket_ipv6(self.host)}:{self.port}/{self.fingerprint}"

    def __str__(self) -> str:
        return f"{self.pinned}/{self.token}"


def bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse(text: str) -> Invitation:
    """Parse the text of an invitation. Raises NoInvitation."""
    parts = _WRITTEN.fullmatch(text.strip())
    if parts is None or not 0 < int(parts["port"]) <= _LAST_PORT:
        raise NoInvitation(
            "this is not an invitation; copy the address HOST:PORT/FINGERPRINT and the token that"
            " `./deploy-cluster.sh invite` prints"
        )
    return Invitation(
        host=parts["host"].strip("[]"), port=int(parts["port"]), fingerprint=parts["fingerprint"], token=parts["token"]
    )
