"""The autoscaler in containers: Compose's profile `autoscale`. docs/docker.md says how to use it."""
