# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Shows the addresses, the status and the logs of the cluster.

# -- addresses --------------------------------------------------------------------------------------------------------

address() { # address PORT_NAME DEFAULT: print the URL of a published port
  local host port
  host=$(listen_host)
  [[ $host != *:* ]] || host="[$host]"
  port=$(setting "$1" "$2")
  printf 'http://%s%s\n' "$host" "$([[ $port == 80 ]] || printf ':%s' "$port")"
}

each_url() { # print the name and URL of each published service
  printf 'pages %s\napi %s\n' "$(address HTTP_PORT 80)" "$(address COORDINATOR_PORT 3000)"
  ! has_service grafana || printf 'grafana %s\n' "$(address GRAFANA_PORT 3001)"
  ! has_service prometheus || printf 'prometheus %s\n' "$(address PROMETHEUS_PORT 9091)"
}

has_token() { grep -q '[^[:space:]]' "$SECRETS/cluster_token" 2>/dev/null; }

token_command() { # print a command that prints the token; during a rotation the file has two tokens, and the last one is used
  if [[ $(tr , ' ' <"$SECRETS/cluster_token" | wc -w) -gt 1 ]]; then
    printf 'grep -oE "[^[:space:],]+" %q | tail -n 1' "$SECRETS/cluster_token"
  else
    printf 'cat %q' "$SECRETS/cluster_token"
  fi
}

tell_up() {
  local pages header=''
  pages=$(address HTTP_PORT 80)
  ! has_token || header="-H \"Authorization: Bearer \$($(token_command))\" "
  say ""
  say "The cluster is up: $(counted "$(setting CPU_WORKERS 1)" "CPU worker"), $(counted "$(setting GPU_WORKERS 0)" "GPU worker")."
  say "  Pages and API  $pages"
  say "  API only       $(address COORDINATOR_PORT 3000)"
  ! has_service grafana || say "  Grafana        $(address GRAFANA_PORT 3001)    user admin, password in $SECRETS/grafana_admin_password"
  ! has_service prometheus || say "  Prometheus     $(address PROMETHEUS_PORT 9091)"
  ! has_token || say "  API calls need the token in $SECRETS/cluster_token"
  say "Next:"
  say "  ./deploy-cluster.sh status"
  ! has_service runner || say "  CLUSTER_URL=$(address COORDINATOR_PORT 3000) CLUSTER_TOKEN=\$($(token_command)) cluster run -- echo hello"
  say "  curl -s ${header}$pages/api/submit -H 'Content-Type: application/json' -d '{\"type\": \"collatz\", \"parameters\": {\"start_number\": 1, \"number_count\": 1000000}}'"
  say "  ./deploy-cluster.sh scale N    ./deploy-cluster.sh logs -f    ./deploy-cluster.sh stop"
}

# -- status -----------------------------------------------------------------------------------------------------------

in_coordinator() { # in_coordinator SCRIPT ARGUMENT...: run a Python script in a coordinator; fails if none is serving
  local id
  id=$(running_id coordinator)
  [[ -n $id ]] || return 1
  docker exec -i "$id" python3 - "${@:2}" <"$1"
}

about_other() { # report why Docker containers cannot be shown
  case $STATE in
    other) note "containers of the project $PROJECT belong to another checkout: $FOLDER" ;;
    # Say nothing if this checkout never started containers.
    away) [[ ! -f $SECRETS/redis_password ]] || note "The Docker engine does not answer, so this checkout's containers are not shown. Start it: sudo systemctl start docker" ;;
    forbidden) note "This user has no access to Docker, so containers are not shown. Run: sudo ./deploy-cluster.sh ..." ;;
  esac
}

docker_status() { # fails if a service is not healthy
  need_containers
  printf 'Docker project %s\n\n' "$PROJECT"
  service_rows | awk 'BEGIN { printf "%-16s %-8s %s\n", "SERVICE", "READY", "STATE" } { printf "%-16s %-8s %s\n", $1, $2 "/" $3, $4 }'
  printf '\n'
  in_coordinator deploy/docker/status.py text || why_silent
  printf '\n'
  each_url | awk '{ printf "%-10s %s\n", $1, $2 }'
  all_ready
}

why_silent() { # print advice for an API that does not answer
  if ! any_running; then
    named 'The cluster is stopped. Start it: ./deploy-cluster.sh docker'
  elif [[ -z $(running_id redis) ]]; then
    named 'The API does not answer, and redis is not ready. See: ./deploy-cluster.sh logs redis. Start it: ./deploy-cluster.sh docker'
  else
    named 'The API does not answer: no coordinator is healthy. See: ./deploy-cluster.sh logs coordinator'
  fi
}

service_rows() { # print service, ready replicas, desired replicas and states of each service
  local service ready states wanted
  local -A have=()
  read_replicas
  while read -r service states; do have[$service]=$states; done < <(containers | awk '
    { ready[$2] += ('"$GOOD"'); state = ($4 == "running" && $5 != "-" && $5 != "healthy" ? $5 : $4); count[$2, state]++; seen[state] }
    END {
      for (service in ready) {
        text = ""
        for (state in seen) if (count[service, state]) text = text (text ? "," : "") count[service, state] "-" state
        print service, ready[service], text
      }
    }')
  printf '%s\n' "${SERVICES[@]}" "${!have[@]}" | sort -u | while read -r service; do
    read -r ready states <<<"${have[$service]:-0 missing}"
    wanted=0
    ! has_service "$service" || wanted=${REPLICAS[$service]:-1}
    [[ $service != "$POOL" ]] || wanted=$ready
    ((wanted == 0 && ready == 0)) || printf '%s %s %s %s\n' "$service" "$ready" "$wanted" "$states"
  done
}

all_ready() { ! service_rows | awk '$2 < $3 { bad = 1 } END { exit !bad }'; }

docker_json() {
  local api
  api=$(in_coordinator deploy/docker/status.py json 2>/dev/null) || api=null
  printf '{"project":"%s","services":{%s},"urls":{%s},"api":%s}' "$PROJECT" \
    "$(service_rows | awk '{ printf "%s\"%s\":{\"ready\":%d,\"wanted\":%d,\"state\":\"%s\"}", (NR > 1 ? "," : ""), $1, $2, $3, $4 }')" \
    "$(each_url | awk '{ printf "%s\"%s\":\"%s\"", (NR > 1 ? "," : ""), $1, $2 }')" "$api"
}

# -- logs -------------------------------------------------------------------------------------------------------------

docker_logs() { # docker_logs SERVICE FOLLOW
  need_containers
  local known arguments=(logs --tail 200)
  if [[ -n $PRETENDED ]]; then known=$(<"$WORK/services"); else known=$(containers | awk '{ print $2 }' | sort -u); fi
  if [[ -n $1 ]] && ! grep -qx -- "$1" <<<"$known"; then
    wrong "there is no service '$1'; there are: $(paste -sd ' ' - <<<"$known")."
  fi
  [[ -z $2 ]] || arguments+=(--follow)
  [[ -z $1 ]] || arguments+=("$1")
  end_said
  run "${COMPOSE[@]}" "${arguments[@]}"
}
