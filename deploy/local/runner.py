"""Program that starts the local cluster's runner: `python -m deploy.local.runner`.

No environment variable contains its token.
"""

from __future__ import annotations

import sys

from deploy.local import runner_token
from jobs.settings import override_worker_token
from runner import __main__ as runner
from runner.programs import processes


def main() -> int:
    processes.hide()
    override_worker_token(runner_token.wait_for_token())
    return runner.main()


if __name__ == "__main__":
    sys.exit(main())
