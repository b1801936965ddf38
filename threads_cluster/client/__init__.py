"""The cluster from Python: one module for each resource of the API, and the connection below them."""
