"""Webhooks: requests to a tenant's URL when a job or a workflow has ended."""
