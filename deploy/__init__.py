"""Deployment: the cluster in containers, and as processes of one machine."""
