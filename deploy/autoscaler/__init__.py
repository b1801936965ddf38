"""Autoscaler for workers in containers (Compose profile `autoscale`). docs/docker.md describes it."""
