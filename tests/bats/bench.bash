# shellcheck shell=bash
# shellcheck disable=SC2016  # what stands in single quotes is for scripts that are written here
# What every test stands on: a checkout of its own with the scripts in it, a fake engine first on PATH, words to judge with.

REPOSITORY=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)

setup_file() { # one fake engine for all tests of a file; each call says which test's it is
  # A Python with httpx: the engine runs the scripts that are piped into a coordinator's container.
  "${PYTHON:-python3}" -E "$REPOSITORY/tests/bats/fake_docker.py" "$BATS_FILE_TMPDIR/port" 3>&- &
  echo $! >"$BATS_FILE_TMPDIR/pid"
  until [[ -s $BATS_FILE_TMPDIR/port ]]; do /bin/sleep 0.05; done
}

teardown_file() { kill "$(<"$BATS_FILE_TMPDIR/pid")"; }

setup() {
  cd "$BATS_TEST_TMPDIR" || return
  mkdir -p bin fake checkout/jobs
  export FAKE=$PWD/fake FAKE_DOCKER=$PWD/bin/fake-docker PATH=$PWD/bin:$PATH FAKE_PORT
  FAKE_PORT=$(<"$BATS_FILE_TMPDIR/port")
  unset "${VARIABLES[@]}" DEBUG COMPOSE_FILE CLUSTER_URL
  cp -r "$REPOSITORY"/deploy{,-cluster.sh} "$REPOSITORY/docker-compose.yml" checkout/
  cp "$REPOSITORY/jobs/VERSION" checkout/jobs/
  program fake-docker "$CLIENT"
  ln -s fake-docker bin/docker
  program nvidia-smi 'exit 9'
  program sleep 'exec /bin/sleep 0.05'
  local first
  first=$(four_ports $((20000 + (BATS_TEST_NUMBER * 8 + $$) % 10000)))
  printf '# ports of this test\nHTTP_PORT=%s\nCOORDINATOR_PORT=%s\nGRAFANA_PORT=%s\nPROMETHEUS_PORT=%s\n' \
    "$first" $((first + 1)) $((first + 2)) $((first + 3)) >checkout/.env
  cd checkout || return
}

readonly VARIABLES=(AUTOSCALE_MIN AUTOSCALE_MAX CPU_WORKERS GPU_WORKERS CLUSTER_SIZE WORKER_THREADS COMPOSE_PROFILES COMPOSE_PROJECT_NAME BIND
  COORDINATORS WEBS HTTP_PORT COORDINATOR_PORT GRAFANA_PORT PROMETHEUS_PORT CLUSTER_TOKEN)

# docker as the tests' PATH has it: sends its words to the fake engine, and says what that answers.
CLIENT="variables=(${VARIABLES[*]})"'
mine=$FAKE/call.$$ given=()
case " $* " in *" -i "* | *" --interactive "*) cat >"$mine.in" ;; esac
for name in "${variables[@]}"; do [[ -z ${!name+set} ]] || given+=("$name=${!name}"); done
exec 3<>"/dev/tcp/127.0.0.1/$FAKE_PORT"
printf "%s\0" $((4 + ${#given[@]} + $#)) "$FAKE" "$PWD" "$mine" "${given[@]}" -- "$@" >&3
read -r code <&3
[[ ! -s $mine.err ]] || IFS= read -r -d "" err <"$mine.err" || printf %s "$err" >&2
[[ ! -s $mine.out ]] || IFS= read -r -d "" out <"$mine.out" || printf %s "$out"
exit "$code"'

four_ports() { # four_ports FROM: the first of four ports in a row, at FROM or above, on which nobody listens
  local first=$1 port
  for ((port = first; port < first + 4; port++)); do
    if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then first=$((port + 1)); fi
  done
  echo "$first"
}

program() { # program NAME LINE: on PATH
  rm -f "$BATS_TEST_TMPDIR/bin/$1"
  printf '#!/bin/bash\n%s\n' "$2" >"$BATS_TEST_TMPDIR/bin/$1"
  chmod +x "$BATS_TEST_TMPDIR/bin/$1"
}

engine() { # engine NAME JSON: sets a part of the fake engine's state
  "$FAKE_DOCKER" set "$1" "$2"
}

of_engine() { # of_engine EXPRESSION: of the engine's state s
  "$FAKE_DOCKER" tell "$1"
}

cluster() { # cluster ARGUMENT...: $status, $out and $err
  status=0
  ./deploy-cluster.sh "$@" >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" </dev/null || status=$?
  out=$(<"$BATS_TEST_TMPDIR/out")
  err=$(<"$BATS_TEST_TMPDIR/err")
}

up() { # a cluster that runs: up [WORKERS]
  cluster docker "${1:-3}" 0
  exits 0
  forget
}

forget() { # the calls so far
  : >"$FAKE/calls"
  : >"$FAKE/serving"
}

exits() { # exits CODE
  [[ $status == "$1" ]] || broken "exit code $status instead of $1"
}

says() { # says TEXT...: on stderr
  local text
  for text in "$@"; do [[ $err == *"$text"* ]] || broken "stderr lacks: $text"; done
}

shows() { # shows TEXT...: on stdout
  local text
  for text in "$@"; do [[ $out == *"$text"* ]] || broken "stdout lacks: $text"; done
}

called() { # called TEXT...: some call holds it
  local text
  for text in "$@"; do grep -qF -- "$text" "$FAKE/calls" || broken "not called: $text"; done
}

not_called() {
  local text
  for text in "$@"; do ! grep -qF -- "$text" "$FAKE/calls" || broken "called: $text"; done
}

has_line() { # has_line LINE...: in .env
  local line
  for line in "$@"; do grep -qxF -- "$line" .env || broken ".env lacks: $line"; done
}

# What asks only; everything else changes something.
readonly ASKING='^docker (version|info|ps|inspect|image inspect|volume ls|network ls|stats|logs|exec [0-9a-f]+ (cat|(redis|valkey)-server --version)|exec -i [0-9a-f]+ python3|compose (--profile gpu )?(version|config|logs))'

changed_nothing() {
  ! grep -vE "$ASKING" "$FAKE/calls" || broken "that changes something"
}

broken() {
  printf '%s\n--- status %s\n--- stdout\n%s\n--- stderr\n%s\n--- calls\n' "$1" "$status" "$out" "$err"
  cat "$FAKE/calls" 2>/dev/null
  return 1
}
