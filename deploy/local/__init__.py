"""Local cluster, whose parts run as processes of one checkout under supervisord."""
