# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Lets --dry-run print commands on a machine without a Docker engine.
# shellcheck disable=SC2034,SC2329  # used by other sourced files

pretend_engine() { # answer the queries of this run as an engine without containers would
  note "No Docker engine answers. The commands below are those for an engine without containers of this checkout."
  PRETENDED=yes
  STATE=ours
  docker() {
    case "$*" in
      *NCPU*) getconf _NPROCESSORS_ONLN ;;
    esac
  }
}

pretend_config() { # sets PROJECT and SERVICES from the files that Compose would read
  PROJECT=$(setting COMPOSE_PROJECT_NAME threads)
  : >"$WORK/config.yml"
  pretended_services >"$WORK/services"
  mapfile -t SERVICES <"$WORK/services"
}

pretended_services() { # print the services of the enabled profiles
  local files profiles
  files=$(setting COMPOSE_FILE docker-compose.yml)
  profiles=$(setting COMPOSE_PROFILES '')
  # shellcheck disable=SC2086  # the names are separated by colons
  awk -v enabled=" ${profiles//,/ } " '
    /^[^ #]/ { is_inside = /^services:/ }
    is_inside && /^  [a-z0-9-]+:/ { service = $1; sub(":.*", "", service); known[service] }
    is_inside && /^    profiles: / {
      gsub(/^    profiles: |[][",]/, " ")
      for (i = 1; i <= NF; i++) if (index(enabled, " " $i " ")) chosen[service]
      optional[service]
    }
    END { for (service in known) if (!(service in optional) || service in chosen) print service }
  ' ${files//:/ } | sort
}
