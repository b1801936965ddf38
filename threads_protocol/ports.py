"""Ports of services in commands of other systems, which have no effect here."""


def explain_unused(port: int) -> str:
    """Return the note about a port that a user has chosen for a service."""
    return f"port {port} is not used: send requests to /v1 of the cluster, with the service's name as the model"
