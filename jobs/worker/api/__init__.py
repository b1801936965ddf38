"""The worker API of a coordinator: leases, files and shells over HTTP."""
