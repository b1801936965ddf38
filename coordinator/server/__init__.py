"""HTTP server: sockets, TLS, request bodies, dispatch, errors, and the web pages."""
