# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the profile runner, whose token a running coordinator creates.

readonly RUNNER_SERVICES=(runner-token runner)

wants_runner() { # true if the profile is enabled
  local profiles
  profiles=$(setting COMPOSE_PROFILES '')
  [[ ,${profiles// /}, == *,runner,* ]]
}

runners() { if wants_runner; then echo 1; else echo 0; fi; }

turn_on_runner() { # enable the profile, so that a plain `docker compose up` also starts the runner
  local profiles
  profiles=$(setting COMPOSE_PROFILES '')
  wants_runner || profiles=${profiles:+$profiles,}runner
  unset COMPOSE_PROFILES
  put "COMPOSE_PROFILES=$profiles"
}

close_api() { # require tokens, because anyone who can submit jobs can run programs
  unset AUTH
  put AUTH=required
}

start_runner() { # start the runner after the coordinators
  local made=()
  has_service runner || return 0
  [[ -z $DRY ]] || note "a coordinator creates $SECRETS/runner_token unless the existing token is valid."
  if [[ -z $DRY ]] && renew_token; then made=(--force-recreate); fi
  compose_run up -d --wait --wait-timeout "$START_SECONDS" "${made[@]}" "${RUNNER_SERVICES[@]}"
}

renew_token() { # write the file runner_token; fails if the existing token is valid and has WORKER_LABELS
  local id
  id=$(cut -d _ -f 2 "$SECRETS/runner_token" 2>/dev/null) || id=''
  # Do not store the token in a variable, which DEBUG=1 would print.
  in_coordinator deploy/runner_token.py runner-1 "${id:-none}" "$(setting WORKER_LABELS '')" >"$WORK/runner_token" 2>"$WORK/log" ||
    fail 1 "cannot create a token for the runner: $(tail -n 1 "$WORK/log")" "Then run the same command again."
  [[ -s $WORK/runner_token ]] || return 1
  # Use the mode of the other secrets, because the container reads the file under its own user ID.
  chmod 0644 "$WORK/runner_token"
  mv "$WORK/runner_token" "$SECRETS/runner_token"
}

drop_runner() { # remove the runner, which would keep running after its profile was disabled
  has_service runner || [[ -z $(containers runner)$(containers runner-token) ]] ||
    compose_run --profile runner rm --stop --force "${RUNNER_SERVICES[@]}"
}
