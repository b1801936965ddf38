# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Explains failures of Docker commands and what to do.

compose_run() { # compose_run ARGUMENT...: run Compose with output on stderr; explain a failure and exit
  if [[ -n $DRY ]]; then
    quoted "${COMPOSE[@]}" "$@"
    return
  fi
  local code=0
  { "${COMPOSE[@]}" "$@" 2>&1 </dev/null | tee "$WORK/log" >&2; } || code=$?
  ((code == 0)) || explain "$code" "$@"
}

said() { grep -qiE -- "$1" "$WORK/log"; }

explain() { # explain CODE ARGUMENT...: explain a failed Compose command, whose output is in $WORK/log
  (($1 != 130)) || exit 130
  about_devices
  about_ports
  about_room
  about_images
  about_health
  fail 1 "'${COMPOSE[*]} ${*:2}' failed with exit code $1; see the lines above." "Then run the same command again."
}

about_devices() {
  ! said 'could not select device driver' || fail 3 \
    "Docker cannot use GPUs: the NVIDIA container toolkit is missing or not configured in Docker." \
    "Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker" \
    "Without GPU workers: ./deploy-cluster.sh docker N 0"
  ! said 'nvidia-container-cli|CDI device' || fail 3 \
    "Docker could not attach the GPU to a container: $(grep -iE 'nvidia-container-cli|CDI device' "$WORK/log" | tail -n 1)" \
    "Check that 'nvidia-smi' works. Without GPU workers: ./deploy-cluster.sh docker N 0"
}

about_ports() {
  local line
  ! said 'cannot expose privileged port' || fail 6 "this Docker engine cannot open ports below 1024, because it runs without root." \
    "Set HTTP_PORT=8080 in $ENV_FILE, then run the same command again."
  line=$(grep -iE 'port is already allocated|address already in use|ports are not available' "$WORK/log" | tail -n 1) || return 0
  fail 6 "a port is in use: $line" \
    "Choose others in $ENV_FILE: HTTP_PORT, COORDINATOR_PORT, GRAFANA_PORT, PROMETHEUS_PORT. List programs with ports: sudo ss -ltnp"
}

about_room() {
  ! said 'no space left on device' || fail 1 "the disk is full." \
    "Free some space (docker system df, docker system prune), then run the same command again."
}

about_images() {
  said 'pull access denied|failed to resolve|failed to do request|error getting credentials|TLS handshake|no such host|server misbehaving|registry.*(timeout|refused|canceled)|Client\.Timeout|i/o timeout|manifest( .*)? not found|manifest unknown|toomanyrequests|load metadata for' ||
    return 0
  fail 1 "Docker could not pull an image: $(grep -iE 'denied|resolve|timeout|no such host|refused|not found|unknown|toomany|metadata' "$WORK/log" | tail -n 1)" \
    "The first start needs an image registry. Without a registry, build the base images from Debian packages:" \
    "sudo deploy/base-images.sh (see docs/docker.md). Then run the same command again."
}

about_health() {
  said 'is unhealthy|dependency failed to start|not healthy after|exited \([0-9]+\)|is missing dependency' || return 0
  show_bad
  fail 4 "a container did not become healthy: $(grep -iE 'unhealthy|failed to start|not healthy|exited|missing' "$WORK/log" | tail -n 1)" \
    "See: ./deploy-cluster.sh status, ./deploy-cluster.sh logs SERVICE; then run the same command again."
}
