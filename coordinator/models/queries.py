"""Read models and chunks of data from the store, and serialize them."""

from __future__ import annotations

from coordinator.artifacts.catalog import CHUNK
from coordinator.cluster import Cluster
from coordinator.models import serializers
from coordinator.services import model_services
from jobs import errors
from threads_protocol.answers import models as answers


def page(cluster: Cluster, tenant: str, after: str, most: int) -> tuple[list[answers.Model], str]:
    """Return one page of a tenant's models, and the name after which the next page starts.

    The page starts after the name `after`. The returned name is empty on the last page.
    """
    found, last = cluster.models.page(tenant, after, most)
    services = cluster.store.services.of_tenant(tenant) if found else []
    loaded = model_services.places(cluster, tenant) if services else []
    return [serializers.serialize_model(find_model, services, loaded) for find_model in found], last


def find_model(cluster: Cluster, tenant: str, name: str) -> answers.Model:
    """Return a model. Raises NotFound if it does not exist."""
    found = cluster.models.find(tenant, name)
    return serializers.serialize_model(
        found, cluster.store.services.of_tenant(tenant), model_services.places(cluster, tenant)
    )


def chunks(cluster: Cluster, tenant: str, after: str, most: int) -> tuple[list[answers.Chunk], str]:
    """Return one page of a tenant's chunks, and the ID after which the next page starts.

    The page starts after the ID `after`. The returned ID is empty on the last page.
    """
    store = cluster.store.artifacts
    named = [each for each in sorted(store.names(tenant).items()) if each[0].startswith(CHUNK) and each[0] > after]
    page = named[:most]
    read = store.read(tenant, [artifact for _, artifact in page])
    found = [serializers.serialize_chunk(name, row) for (name, _), row in zip(page, read, strict=True) if row]
    return found, page[-1][0] if len(named) > most else ""


def chunk(cluster: Cluster, tenant: str, chunk_id: str) -> answers.Chunk:
    """Return a chunk. Raises NotFound if it does not exist."""
    store = cluster.store.artifacts
    artifact = store.named(tenant, chunk_id)
    [row] = store.read(tenant, [artifact]) if artifact else [None]
    if row is None:
        detail = f"chunk {chunk_id} does not exist or is not complete; list chunks with GET /api/v1/data"
        raise errors.NotFound(detail, field="chunk_id")
    return serializers.serialize_chunk(chunk_id, row)
