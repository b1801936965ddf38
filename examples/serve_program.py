"""Keep a program running as a service, and send it requests. A language model is served in the same way."""

from threads_cluster import Cluster

#: Server with a part of the API of OpenAI. It continues each text with the same text in capital letters.
SERVER = """
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer " + os.environ["CLUSTER_KEY"]:
            return self.answer(401, {})
        self.answer(200, {"choices": [{"text": body["prompt"].upper()}], "usage": {}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

address = (os.environ["CLUSTER_ADDRESS"], int(os.environ["CLUSTER_PORT"]))
ThreadingHTTPServer(address, Handler).serve_forever()
"""


def main() -> None:
    with Cluster() as cluster:
        cluster.services.serve("capitals", "http", parameters={"command": ["python3", "-c", SERVER]})
        try:
            service = cluster.services.wait("capitals", timeout=60)
            print(service["name"], service["state"])
            print(cluster.infer("capitals", "hello")["text"])
        finally:
            cluster.services.delete("capitals")


if __name__ == "__main__":
    main()
