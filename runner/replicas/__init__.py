"""Replicas of services on a runner: their start, their health checks, and network tunnels to them."""
