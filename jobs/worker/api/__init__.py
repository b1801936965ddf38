"""The worker API, through which workers reach leases, files and shells over HTTP."""
