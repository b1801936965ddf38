"""Names of hosts under which the pages of services are shown: an origin for each, none of them the cluster's own."""

from __future__ import annotations

import re

from jobs import errors
from jobs.network import exposure
from jobs.store.services import Service
from threads_protocol.numbers import short

#: A domain whose names are of the browser's own machine.
LOCAL = "localhost"
_MAX_NAME = 50
_LABEL = re.compile(r"[a-z0-9-]+-([0-9a-f]{12})")


class PageNames:
    """Names below `localhost`, and below the operator's domain where there is one.

    A name has the service's and its id: another service of this name, of another tenant or a later one, has another
    origin, with other cookies and another storage.
    """

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def service_id(self, authority: str) -> str:
        """Return the id of the service whose page is meant by `name` or `name:port`; empty for any other name."""
        label, _, domain = exposure.host_name(authority).partition(".")
        found = _LABEL.fullmatch(label) if domain and domain in (LOCAL, self._domain) else None
        return found[1] if found else ""

    def authority(self, service: Service, asked: str) -> str:
        """Return name and port of a service's page, for who asked the cluster under this name and port.

        Conflict where there is no domain for that.
        """
        domain = LOCAL if exposure.is_loopback(exposure.host_name(asked)) else self._domain
        if not domain:
            detail = f"pages of services have no names for who asks {short(asked, 80)}: set SERVICES_DOMAIN, or ask"
            raise errors.Conflict(f"{detail} at 127.0.0.1; see docs/services.md", field="Host")
        port = re.search(r":\d+$", asked)
        return f"{service.name[:_MAX_NAME].rstrip('-')}-{service.service_id}.{domain}{port[0] if port else ''}"
