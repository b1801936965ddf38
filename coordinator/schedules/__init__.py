"""Schedules: jobs and workflows that the leader submits for a tenant at configured times."""
