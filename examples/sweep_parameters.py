"""Run a command once for each value of a parameter."""

from threads_cluster import Cluster, JobEnded, Program


def main() -> None:
    program = Program(command=["python3", "-c", "import sys; print(float(sys.argv[1]) ** 2)", "{item}"], retries=1)
    with Cluster() as cluster:
        job_id = cluster.programs.submit(program, values=["0.1", "0.2", "0.5"])["job_id"]
        job = cluster.wait(job_id, timeout=300)
        if job["state"] != "done":
            raise JobEnded(job_id, job["state"], job["error"])
        for unit in cluster.programs.units(job_id):
            print(unit["unit"], unit["state"], unit["seconds"])


if __name__ == "__main__":
    main()
