"""Replicas of services: their start, their health checks, and tunnels to them."""
