"""Host names of pages of services. Each page has its own origin, separate from the cluster's origin."""

from __future__ import annotations

import re

from jobs import errors
from jobs.network import exposure
from jobs.store.services import Service
from threads_protocol.numbers import short

#: Domain in which all names resolve to the browser's own machine.
LOCAL = "localhost"
_MAX_NAME = 50
_LABEL = re.compile(r"[a-z0-9-]+-([0-9a-f]{12})")


class PageNames:
    """Host names below `localhost`, and below the operator's domain if one is configured.

    A name contains the service's name and ID, so that another service with the same name has another origin, with
    separate cookies and storage.
    """

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def service_id(self, authority: str) -> str:
        """Return the ID of the service to which `name` or `name:port` belongs, or an empty string."""
        label, _, domain = exposure.host_name(authority).partition(".")
        found = _LABEL.fullmatch(label) if domain and domain in (LOCAL, self._domain) else None
        return found[1] if found else ""

    def authority(self, service: Service, asked: str) -> str:
        """Return host name and port of a service's page, for a client that used the cluster's address `asked`.

        Raises Conflict if no domain is configured for that address.
        """
        domain = LOCAL if exposure.is_loopback(exposure.host_name(asked)) else self._domain
        if not domain:
            detail = (
                f"pages of services are not available at {short(asked, 80)}: set SERVICES_DOMAIN, or use the cluster"
            )
            raise errors.Conflict(f"{detail} at 127.0.0.1; see docs/services.md", field="Host")
        port = re.search(r":\d+$", asked)
        return f"{service.name[:_MAX_NAME].rstrip('-')}-{service.service_id}.{domain}{port[0] if port else ''}"
