"""The gateway: picks a replica for each request, passes the request on, and counts its use."""
