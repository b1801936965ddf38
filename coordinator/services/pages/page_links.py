"""Links to pages of services. Each link logs a browser in with the permissions of the user who created it."""

from __future__ import annotations

from fastapi import Request

from coordinator.access.principal import Principal
from coordinator.server import browsers
from coordinator.services.gateway.routing import Routes
from coordinator.services.pages import page_layer, tickets
from coordinator.services.pages.page_names import PageNames
from coordinator.services.pages.tickets import Use
from engines import registry
from jobs import errors
from jobs.store.services import Service
from threads_protocol.answers import services as answers


async def link(
    request: Request, service: Service, principal: Principal, routes: Routes, names: PageNames
) -> answers.PageLink:
    """Return a link to a service's page. If the cluster requires no token, returns only the address.

    Raises Conflict if the engine has no page, Forbidden without TLS, and Unavailable while no replica serves the page.
    """
    if not (path := registry.page(service.engine)):
        shown = ", ".join(name for name in registry.names() if registry.page(name))
        detail = f"{service.name} with engine {service.engine} has no page; engines with pages: {shown}"
        raise errors.Conflict(detail, field="name")
    page_layer.check_transport(request)
    authority = names.authority(service, request.headers.get("host", ""))
    page = await routes.page(service.service_id)
    if page is None or page.leader is None:
        why = page.because if page else "the service was just created"
        detail = f"no replica of {service.name} serves its page yet: {why}; see: cluster service show"
        raise errors.Unavailable(f"{detail} {service.name}")
    at = f"{'https' if browsers.is_tls(request) else 'http'}://{authority}"
    if not principal.token:
        return {"url": f"{at}{path}", "seconds": None}
    ticket = tickets.issue(page_layer.place(page, page.leader), Use.LINK, principal, tickets.LINK_SECONDS)
    return {"url": f"{at}{page_layer.LINK}?ticket={ticket}", "seconds": tickets.LINK_SECONDS}
