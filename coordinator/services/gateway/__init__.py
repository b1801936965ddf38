"""The gateway: chooses a replica for each request, forwards the request, and counts usage."""
