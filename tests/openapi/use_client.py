"""Submit jobs with the client that openapi-python-client generated: use_client.py URL TOKEN. Prints JSON."""

from __future__ import annotations

import json
import sys

from threads_cluster_client import AuthenticatedClient  # type: ignore[import-not-found]
from threads_cluster_client.api.jobs import get_result, submit_job  # type: ignore[import-not-found]
from threads_cluster_client.models import (  # type: ignore[import-not-found]
    Problem,
    Result,
    Submission,
    Submitted,
)


def main(url: str, token: str) -> None:
    with AuthenticatedClient(base_url=url, token=token) as client:
        body = Submission.from_dict(
            {"type": "collatz", "parameters": {"start_number": 1, "number_count": 1000}, "priority": None}
        )
        submitted = submit_job.sync(client=client, body=body, wait_seconds=30)
        assert isinstance(submitted, Submitted), submitted
        result = get_result.sync(submitted.job_id, client=client)
        assert isinstance(result, Result), result
        body.type_ = "nosuch"
        problem = submit_job.sync(client=client, body=body)
        assert isinstance(problem, Problem), problem
    sys.stdout.write(json.dumps({"result": result.to_dict(), "problem": problem.to_dict()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
