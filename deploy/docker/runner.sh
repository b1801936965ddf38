# shellcheck shell=bash
# Sourced by deploy-cluster.sh: the profile runner, whose token a coordinator makes once it runs.

readonly RUNNER_SERVICES=(runner-token runner)

wants_runner() { # the profile is on
  local profiles
  profiles=$(setting COMPOSE_PROFILES '')
  [[ ,${profiles// /}, == *,runner,* ]]
}

runners() { if wants_runner; then echo 1; else echo 0; fi; }

turn_on_runner() { # a plain `docker compose up` starts it from now on, too
  local profiles
  profiles=$(setting COMPOSE_PROFILES '')
  wants_runner || profiles=${profiles:+$profiles,}runner
  unset COMPOSE_PROFILES
  put "COMPOSE_PROFILES=$profiles"
}

close_api() { # whoever may submit has programs run, so nobody may without a token
  unset AUTH
  put AUTH=required
}

start_runner() { # after the coordinators
  local made=()
  has_service runner || return 0
  [[ -z $DRY ]] || note "a coordinator makes secrets/runner_token, unless it knows the one that is there."
  if [[ -z $DRY ]] && renew_token; then made=(--force-recreate); fi
  compose_run up -d --wait --wait-timeout "$START_SECONDS" "${made[@]}" "${RUNNER_SERVICES[@]}"
}

renew_token() { # writes secrets/runner_token; 1 when the cluster knows the one that is there, with WORKER_LABELS
  local id
  id=$(cut -d _ -f 2 secrets/runner_token 2>/dev/null) || id=''
  # Never in a variable, which DEBUG=1 would show.
  in_coordinator deploy/runner_token.py runner-1 "${id:-none}" "$(setting WORKER_LABELS '')" >"$WORK/runner_token" 2>"$WORK/log" ||
    fail 1 "no token for the runner could be made: $(tail -n 1 "$WORK/log")" "Then run the same command again."
  [[ -s $WORK/runner_token ]] || return 1
  # As the others: the folder is closed, and the container has a user of its own.
  chmod 0644 "$WORK/runner_token"
  mv "$WORK/runner_token" secrets/runner_token
}

drop_runner() { # of a profile that is off now it would run on
  has_service runner || [[ -z $(containers runner)$(containers runner-token) ]] ||
    compose_run --profile runner rm --stop --force "${RUNNER_SERVICES[@]}"
}
