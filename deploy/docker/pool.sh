# shellcheck shell=bash
# Sourced by deploy-cluster.sh: the profile autoscale, whose workers are created stopped; deploy/autoscaler starts them.

readonly POOL=cpu-worker-pool
BUT_LATER=() # what `up` names where there is a pool or a runner: without names, it would start all at once

# shellcheck disable=SC2034  # others read it
but_later() { # sets BUT_LATER: a pool starts by need, a runner once there is a token for it
  if has_service "$POOL" || has_service runner; then
    mapfile -t BUT_LATER < <(grep -vxE -- "$POOL|runner|runner-token" "$WORK/services")
  fi
}

create_pool() { # AUTOSCALE_MAX of them; one that runs from another image or configuration is replaced by a stopped one
  ! has_service "$POOL" || compose_run create "$POOL"
}

admit_engine_proxy() { # the group that may open the engine's socket; unknown where the engine runs elsewhere
  local group
  has_service engine-proxy && [[ -z $(setting DOCKER_GID '') ]] || return 0
  group=$(stat -Lc %g "$(setting DOCKER_SOCKET /var/run/docker.sock)" 2>/dev/null) || return 0
  put "DOCKER_GID=$group"
}

drop_autoscaler() { # of a profile that is off now it would run on, and its pool with it
  has_service autoscaler || [[ -z $(containers autoscaler)$(containers "$POOL") ]] ||
    compose_run --profile autoscale rm --stop --force autoscaler engine-proxy "$POOL"
}
