"""Web pages of services, such as Dask's dashboard, each under its own host name."""
