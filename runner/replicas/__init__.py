"""Replicas of services: their start, their health, and tunnels to them."""
