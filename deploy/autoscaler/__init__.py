"""The autoscaler in containers (Compose profile `autoscale`), described in docs/docker.md."""
