"""Program that starts vLLM's server. The key is in the environment, which other users cannot read."""

import os
import sys

os.environ["VLLM_API_KEY"] = os.environ["CLUSTER_KEY"]
where = ["--host", os.environ["CLUSTER_ADDRESS"], "--port", os.environ["CLUSTER_PORT"]]
words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *sys.argv[1:], *where]
sys.stdout.flush()
os.execv(words[0], words)
