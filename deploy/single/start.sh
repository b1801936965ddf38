#!/usr/bin/env bash
# Start the cluster of the image, and keep it running until SIGTERM. Arguments are options of `deploy-cluster.sh local`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly TOKEN=$CLUSTER_HOME/.cluster/token

say() { printf '%s\n' "$*" >&2; }

print_token() { # wait until the first start has created the admin token, and print it
  until [[ -s $TOKEN ]]; do sleep 0.2; done
  say "Admin token, which this log contains only once: $(<"$TOKEN")"
  say "Use it on other machines: cluster login http://HOST:PORT"
}

say "Run the commands that this log names in the container: docker exec $(hostname) COMMAND"
say "Stop the cluster: docker stop -t 60 $(hostname)"
[[ -s $TOKEN ]] || print_token &
exec ./deploy-cluster.sh local --port 3000 "$@"
