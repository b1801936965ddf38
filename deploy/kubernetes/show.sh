# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands status, logs and report on Kubernetes.

kubernetes_status() { # status [--json]
  need_deployed
  if (($#)); then kube_status_json; else kube_status_text; fi
  end_said
  [[ -z $(unready_rows) ]] || exit 1
}

unready_rows() { workloads | awk '$3 < $4'; }

kube_status_text() {
  printf 'Kubernetes context %s, namespace %s\n\n' "$CONTEXT" "$NAMESPACE"
  workloads | sort -k 2 | awk 'BEGIN { printf "%-16s %s\n", "WORKLOAD", "READY" } { printf "%-16s %s\n", $2, $3 "/" $4 }'
  printf '\n'
  in_a_coordinator deploy/docker/status.py text || kube_why_silent
}

kube_why_silent() { # print advice for an API that does not answer
  if [[ $(workloads | awk '$2 == "coordinator" { print $4 }') == 0 ]]; then
    named 'The cluster is stopped. Start it: ./deploy-cluster.sh kubernetes'
  elif [[ -n $(unready_rows | awk '$2 == "redis"') ]]; then
    named "The API does not answer, and redis is not ready. See: ./deploy-cluster.sh logs redis, and kubectl describe pod redis-0 -n $NAMESPACE"
  else
    named 'The API does not answer: no coordinator is ready. See: ./deploy-cluster.sh logs coordinator'
  fi
}

kube_status_json() {
  local api named
  named=${CONTEXT//\\/\\\\}
  api=$(in_a_coordinator deploy/docker/status.py json 2>/dev/null) || api=null
  printf '{"kubernetes":{"context":"%s","namespace":"%s","workloads":{%s},"api":%s}}\n' \
    "${named//\"/\\\"}" "$NAMESPACE" \
    "$(workloads | awk '{ printf "%s\"%s\":{\"ready\":%d,\"wanted\":%d}", (NR > 1 ? "," : ""), $2, $3, $4 }')" "$api"
}

# -- logs -------------------------------------------------------------------------------------------------------------

kubernetes_logs() { # kubernetes_logs SERVICE FOLLOW
  local service=$1 known arguments=(logs --tail 200 --prefix --all-containers --max-log-requests 100 --ignore-errors)
  need_deployed
  known=$(workloads | awk '{ print $2 }' | sort)
  if [[ -n $service && -z $PRETENDED ]] && ! grep -qx -- "$service" <<<"$known"; then
    wrong "there is no service '$service'; there are: $(paste -sd ' ' - <<<"$known")."
  fi
  [[ -z $2 ]] || arguments+=(--follow)
  # The pods of the workload cpu-workers are named cpu-worker.
  [[ -n $service ]] || service=$(paste -sd , - <<<"${known:-SERVICES}")
  end_said
  run "${KUBECTL[@]}" "${arguments[@]}" --selector "app.kubernetes.io/name in (${service//-workers/-worker})"
}

# -- report -----------------------------------------------------------------------------------------------------------

kubernetes_report() { # report [FILE]
  (($# <= 1)) && [[ ${1:-} != -* ]] || wrong "report accepts at most one file; without one it prints to stdout."
  need_deployed
  # The passwords are needed to redact them.
  fetch_passwords
  if [[ -n $DRY ]]; then
    quoted "${KUBECTL[@]}" get deployments,statefulsets,pods,services,persistentvolumeclaims,configmaps
    quoted "${KUBECTL[@]}" exec --stdin COORDINATOR -- python3 - "< deploy/docker/report.py"
  elif [[ -z ${1:-} ]]; then
    whole_report | redacted
  else
    save_report "$(from_caller "$1")"
  fi
}

whole_report() {
  printf '# Threads Cluster, %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  section Versions kube_versions
  section Workloads k get deployments,statefulsets,services,persistentvolumeclaims --output wide
  section Pods k get pods --output wide
  in_a_coordinator deploy/docker/report.py || printf '\nNo coordinator is ready, so measurements are missing.\n'
  section Events k get events --field-selector type=Warning --sort-by .lastTimestamp
  section 'Last 40 error lines of the last 24 hours' kube_errors
  section Configuration kube_settings
}

kube_settings() { # print the settings, newest first; older ones belong to earlier starts
  local names=()
  mapfile -t names < <(k get configmaps --sort-by .metadata.creationTimestamp --output name |
    grep -E '/(deployment|settings-|coordinator-settings-|alerts-)' | tac)
  k get "${names[@]}" --output 'go-template={{range .items}}{{.metadata.name}} {{.data}}{{"\n"}}{{end}}'
}

kube_versions() {
  printf 'threads %s\n' "$(version)"
  printf 'revision %s\n' "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
  k version 2>/dev/null
  k get nodes --output 'go-template={{range .items}}node {{.metadata.name}} {{.status.nodeInfo.kubeletVersion}} {{.status.allocatable.cpu}} cores {{.status.allocatable.memory}}{{"\n"}}{{end}}'
}

kube_errors() {
  k logs --selector 'app.kubernetes.io/name' --prefix --all-containers --since 24h --tail 2000 --max-log-requests 1000 2>&1 |
    error_lines
}
