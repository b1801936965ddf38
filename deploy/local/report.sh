# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the command report for a local cluster. This file also works with bash 3.2.

report_local_cluster() { # report [FILE]
  (($# <= 1)) && [[ ${1:-} != -* ]] || wrong "report accepts at most one file; without one it prints to stdout."
  if [[ -n $DRY ]]; then
    quoted .venv/bin/python -m deploy.local report
    quoted .venv/bin/python -m deploy.local configuration
    [[ -z ${1:-} ]] || printf '# into %s\n' "$(from_caller "$1")"
    return
  fi
  need_environment
  collect_secrets
  if [[ -z ${1:-} ]]; then whole_report | redacted; else save_report "$(from_caller "$1")"; fi
}

whole_report() {
  printf '# Threads Cluster, %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  .venv/bin/python -m deploy.local report
  section 'Last 40 error lines' error_lines "$DATA"/logs/*.log
  section 'Configuration' .venv/bin/python -m deploy.local configuration
}

collect_secrets() { # copy the secrets of the local cluster to a folder whose words are redacted
  local file
  SECRETS=$WORK/secrets
  mkdir "$SECRETS"
  for file in token runner_token secrets_key; do
    [[ ! -f $DATA/$file ]] || cp "$DATA/$file" "$SECRETS"
  done
  grep -oE '>[0-9a-f]{48}' "$DATA/redis.conf" 2>/dev/null | tr -d '>' >"$SECRETS/redis" || true
}
