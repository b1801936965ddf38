"""Python client of a cluster: one module per resource of the API, and the HTTP connection that they share."""
