"""Webhooks: the cluster tells a URL of its tenant's when a job or a workflow has ended."""
