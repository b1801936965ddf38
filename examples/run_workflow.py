"""Submit a workflow of two actions, and wait for it."""

from threads_cluster import Cluster

WORKFLOW = {
    "name": "two-steps",
    "actions": [
        {"action_id": "first", "action_type": "command", "parameters": {"command": ["echo", "first"]}},
        {
            "action_id": "second",
            "action_type": "command",
            "parameters": {"command": ["echo", "second"]},
            "dependencies": ["first"],
        },
    ],
}


def main() -> None:
    with Cluster() as cluster:
        workflow = cluster.workflows.submit(WORKFLOW)
        ended = cluster.workflows.wait(workflow["workflow_id"], timeout=300)
        print(ended["state"], {action["action_id"]: action["state"] for action in ended["actions"]})


if __name__ == "__main__":
    main()
