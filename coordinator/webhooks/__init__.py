"""Webhooks: the cluster tells a URL of its tenant's when a job has ended."""
