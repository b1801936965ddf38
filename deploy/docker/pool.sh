# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the profile autoscale.
# The profile creates stopped workers, which deploy/autoscaler starts.

readonly POOL=cpu-worker-pool
BUT_LATER=() # services for `up` if there is a pool or a runner; without names, Compose would start all services at once

# shellcheck disable=SC2034  # used by other sourced files
but_later() { # sets BUT_LATER: the autoscaler starts the pool, and the runner needs a token first
  if has_service "$POOL" || has_service runner; then
    mapfile -t BUT_LATER < <(grep -vxE -- "$POOL|runner|runner-token" "$WORK/services")
  fi
}

create_pool() { # create AUTOSCALE_MAX stopped workers; workers with an outdated image or configuration are replaced
  ! has_service "$POOL" || compose_run create "$POOL"
}

admit_engine_proxy() { # set DOCKER_GID to the group of the engine's socket; unknown if the engine is on another machine
  local group
  has_service engine-proxy && [[ -z $(setting DOCKER_GID '') ]] || return 0
  group=$(stat -Lc %g "$(setting DOCKER_SOCKET /var/run/docker.sock)" 2>/dev/null) || return 0
  put "DOCKER_GID=$group"
}

drop_autoscaler() { # remove the autoscaler and its pool, which would keep running after their profile was disabled
  has_service autoscaler || [[ -z $(containers autoscaler)$(containers "$POOL") ]] ||
    compose_run --profile autoscale rm --stop --force autoscaler engine-proxy "$POOL"
}
