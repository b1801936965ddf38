"""The local cluster: everything as plain processes of one checkout, under supervisord."""
