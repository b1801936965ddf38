# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the command report, which describes the cluster without secrets.

docker_report() { # report [FILE]
  (($# <= 1)) && [[ ${1:-} != -* ]] || wrong "report accepts at most one file; without one it prints to stdout."
  need_containers
  if [[ -n $DRY ]]; then
    plan_report "${1:-}"
  elif [[ -z ${1:-} ]]; then
    whole_report | redacted
  else
    save_report "$(from_caller "$1")"
  fi
}

plan_report() { # plan_report FILE: print the commands whose output a report contains
  quoted docker version
  quoted docker stats --no-stream
  quoted docker exec -i COORDINATOR python3 - "< deploy/docker/report.py"
  quoted "${COMPOSE[@]}" logs --no-color --since 24h
  quoted "${COMPOSE[@]}" config
  [[ -z $1 ]] || printf '# into %s\n' "$(from_caller "$1")"
}

whole_report() {
  printf '# Threads Cluster, %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  section Versions report_versions
  section Services service_rows
  section Containers report_containers
  in_coordinator deploy/docker/report.py || printf '\nNo coordinator is healthy, so measurements are missing.\n'
  section 'Last 40 error lines of the last 24 hours' report_errors
  section 'Configuration' cat "$WORK/config.yml"
}

report_versions() {
  printf 'threads %s\n' "$(version)"
  printf 'revision %s\n' "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
  printf 'engine %s\n' "$(docker version --format '{{.Server.Version}} {{.Server.Os}}/{{.Server.Arch}}')"
  printf 'client %s\n' "$(docker version --format '{{.Client.Version}}')"
  printf 'compose %s\n' "$("${COMPOSE[@]}" version --short)"
  docker info --format 'machine {{.NCPU}} cores, {{.MemTotal}} bytes, {{.OperatingSystem}}, kernel {{.KernelVersion}}'
  printf 'gpus %s\n' "$(gpus)"
  local service id _
  containers | awk '!seen[$2]++ { print $2, $1 }' | while read -r service id; do
    printf 'image %s %s\n' "$service" "$(docker inspect --format '{{.Config.Image}} {{.Image}}' "$id")"
  done
  id=$(running_id redis)
  [[ -z $id ]] || docker exec "$id" valkey-server --version || true # containers of earlier versions of this project run Redis
}

report_containers() {
  local ids=()
  mapfile -t ids < <(containers | awk '$4 == "running" { print $1 }')
  docker ps --all --filter "label=$LABEL.project=$PROJECT" --format 'table {{.Names}}\t{{.Status}}'
  ((${#ids[@]} == 0)) || docker stats --no-stream --format 'table {{.Name}}\t{{.CPUPerc}}\t{{.MemUsage}}\t{{.PIDs}}' "${ids[@]}"
}

report_errors() { "${COMPOSE[@]}" logs --no-color --since 24h --tail 5000 2>&1 </dev/null | error_lines; }
