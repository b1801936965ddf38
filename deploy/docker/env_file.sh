# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Reads and writes .env, whose counts a plain `docker compose up -d` keeps.
# The script changes only these settings:
# - CPU_WORKERS, GPU_WORKERS, CLUSTER_SIZE, AUTOSCALE_MIN and AUTOSCALE_MAX
# - the profiles gpu and runner in COMPOSE_PROFILES, and AUTH together with runner
# - DOCKER_GID if it is missing, and WORKER_THREADS below THREADS_MARK

readonly THREADS_MARK='# Set by ./deploy-cluster.sh to cores / CPU workers. To set your own number, delete this comment too.'
readonly NEW_ENV='# Settings of the stack, described in .env.example. ./deploy-cluster.sh writes the numbers of workers to this file.'

VALUE='' # value of the setting that read_env_line found
read_env_line() { # read_env_line NAME: sets VALUE to the last value in .env, as Compose reads it; fails if the name is not set
  [[ -f $ENV_FILE ]] || return 1
  # Compare bytes, because .env can contain any bytes.
  local LC_ALL=C line value found='' names="^[[:blank:]]*(export[[:blank:]]+)?$1[[:blank:]]*=[[:blank:]]*(.*)$"
  while IFS= read -r line || [[ -n $line ]]; do
    [[ ! ${line%$'\r'} =~ $names ]] || value=${BASH_REMATCH[2]} found=yes
  done <"$ENV_FILE"
  [[ -n $found ]] || return 1
  case $value in
    '"'*'"'*) value=${value#'"'} value=${value%%'"'*} ;;
    "'"*"'"*) value=${value#"'"} value=${value%%"'"*} ;;
    '#'*) value='' ;;
    *)
      value=${value%%[[:blank:]]#*}
      value=${value%"${value##*[![:blank:]]}"}
      ;;
  esac
  VALUE=$value
}

setting() { # setting NAME DEFAULT: print the value that Compose uses for ${NAME:-DEFAULT}
  local value
  if [[ -n ${!1+set} ]]; then value=${!1}; else read_env_line "$1" && value=$VALUE || value=''; fi
  printf '%s\n' "${value:-$2}"
}

count() { # count NAME DEFAULT: print a numeric setting
  local value
  value=$(setting "$1" "$2")
  number "$1 in $ENV_FILE" "$value" 0 10000
  printf '%s\n' "$value"
}

with_lines() { # with_lines NAME=VALUE...: print .env with these values
  LC_ALL=C awk -v mark="$THREADS_MARK" -v file="$ENV_FILE" '
    BEGIN {
      for (i = 1; i < ARGC; i++) {
        at = index(ARGV[i], "="); name = substr(ARGV[i], 1, at - 1)
        wanted[name] = substr(ARGV[i], at + 1); order[i] = name; ARGV[i] = ""
      }
      last = ARGC; ARGV[1] = file; ARGC = 2
    }
    { name = $0; sub(/^[ \t]*(export[ \t]+)?/, "", name); sub(/[ \t]*=.*$/, "", name) }
    /=/ && name in wanted { print name "=" wanted[name]; done[name] = 1; next }
    { print }
    END {
      for (i = 1; i < last; i++) {
        if (order[i] in done) continue
        if (order[i] == "WORKER_THREADS") print mark
        print order[i] "=" wanted[order[i]]
      }
    }' "$@"
}

put() { # put NAME=VALUE...: change .env atomically; an unchanged file is not written
  local target=$ENV_FILE new
  [[ ! -L $target ]] || target=$(readlink -f "$target")
  if [[ -n $DRY ]]; then
    printf '# %s: %s\n' "$ENV_FILE" "$*"
    # With --dry-run, later commands must be printed with the new values.
    # shellcheck disable=SC2163
    export "$@"
    return
  fi
  [[ -f $target ]] || printf '%s\n' "$NEW_ENV" >"$target"
  new=$(mktemp "$target.XXXXXX")
  cp -p "$target" "$new"
  with_lines "$@" >"$new"
  if cmp -s "$target" "$new"; then rm -f "$new"; else mv -f "$new" "$target"; fi
}

threads_are_ours() { # true if this script wrote WORKER_THREADS or the setting is missing
  [[ -z ${WORKER_THREADS+set} ]] || return 1
  read_env_line WORKER_THREADS || return 0
  awk -v mark="$THREADS_MARK" 'before == mark && /^WORKER_THREADS=/ { ours = 1 } { before = $0 } END { exit !ours }' "$ENV_FILE"
}

lanes_for() { # lanes_for CPU_WORKERS CORES: print the lanes per worker; 0 (all usable cores) with a CPU limit or a single worker
  if (($1 < 2)) || [[ $(setting CPU_WORKER_CPUS 0) != 0 ]]; then
    echo 0
  else
    echo $(($2 / $1 > 1 ? $2 / $1 : 1))
  fi
}

profiles_for() { # profiles_for GPU_WORKERS: print COMPOSE_PROFILES with or without gpu, keeping other profiles
  local kept='' profile profiles
  profiles=$(setting COMPOSE_PROFILES '')
  for profile in ${profiles//[,[:blank:]]/ }; do
    [[ $profile == gpu ]] || kept+=${kept:+,}$profile
  done
  (($1 == 0)) || kept=${kept:+$kept,}gpu
  printf '%s\n' "$kept"
}

forget_overrides() { # variables of the environment would override .env now, but not at the next plain `up`
  local name
  for name in CPU_WORKERS GPU_WORKERS CLUSTER_SIZE; do
    [[ -z ${!name+set} ]] || note "The environment variable $name is ignored; set it in $ENV_FILE."
    unset "$name"
  done
}

write_counts() { # write_counts CPU_WORKERS GPU_WORKERS [LANES]
  local lines=("CPU_WORKERS=$1" "GPU_WORKERS=$2" "CLUSTER_SIZE=$(($1 + $2 + $(runners)))") profiles
  profiles=$(profiles_for "$2")
  if [[ -n $profiles ]] || read_env_line COMPOSE_PROFILES; then lines+=("COMPOSE_PROFILES=$profiles"); fi
  unset COMPOSE_PROFILES
  if [[ -n ${3:-} ]] && threads_are_ours; then lines+=("WORKER_THREADS=$3"); fi
  put "${lines[@]}"
}
