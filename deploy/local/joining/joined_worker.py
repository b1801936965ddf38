"""Program of a worker on a host that has joined a cluster: `python -m deploy.local.joining.joined_worker NAME`.

No environment variable contains its token.
"""

from __future__ import annotations

import re
import sys

from deploy.local.joining import membership
from jobs.network import exposure
from jobs.settings import override_settings
from runner.programs import processes


def main(name: str) -> int:
    joined = membership.load()
    if joined is None or name not in joined.workers:
        print(
            f"error: this checkout has no joined worker {name}; join a cluster with ./deploy-cluster.sh join",
            file=sys.stderr,
        )
        return exposure.REFUSED
    if sys.platform.startswith("linux"):
        processes.hide()
    sort = re.search(r"-(cpu|gpu|runner)-[0-9]+$", name)
    assert sort is not None, name
    override_settings(
        worker_api=joined.url,
        worker_token=membership.token(name),
        worker_api_ca=joined.authority,
        worker_id=name,
        host_id=joined.name,
        worker_threads=joined.lanes,
        runner_labels=joined.labels,
        metrics_port=0,
    )
    if sort[1] == "runner":
        from runner.__main__ import main as run
    elif sort[1] == "gpu":
        from gpu_worker.__main__ import main as run
    else:
        from cpu_worker.__main__ import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
