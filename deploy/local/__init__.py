"""The local cluster: all parts run as processes of one checkout under supervisord."""
