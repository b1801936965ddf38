"""Python client: one module per resource of the API, and the HTTP connection that all of them use."""
