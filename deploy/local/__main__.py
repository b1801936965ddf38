"""`python -m deploy.local run|stop|status`, behind ./deploy-cluster.sh."""

from __future__ import annotations

import sys

from deploy.local.cluster import main

if __name__ == "__main__":
    sys.exit(main())
