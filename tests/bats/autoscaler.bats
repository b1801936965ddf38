# The profile autoscale: its workers are created stopped, and nothing else starts them.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; bench.bash sets status, out and err
load bench

readonly POOL="[c['state'] for c in s['containers'] if c['service'] == 'cpu-worker-pool']"

with_autoscaler() { # with_autoscaler: the profile, and a file in place of the engine's socket
  : >"$BATS_TEST_TMPDIR/socket"
  printf 'COMPOSE_PROFILES=autoscale\nAUTOSCALE_MAX=4\nDOCKER_SOCKET=%s\n' "$BATS_TEST_TMPDIR/socket" >>.env
}

pool() { # pool STATES: as Python lists them
  [[ $(of_engine "$POOL") == "$1" ]] || broken "not $1"
}

@test "autoscale: docker creates the pool and starts none of it, also when it updates" {
  with_autoscaler
  up 1
  pool "['created', 'created', 'created', 'created']"
  has_line "DOCKER_GID=$(stat -c %g ../socket)" CPU_WORKERS=1 COMPOSE_PROFILES=autoscale
  of_engine "[c.update(state='running') for c in s['containers'] if c['service'] == 'cpu-worker-pool'][:1]" >/dev/null
  of_engine "[c.update(state='exited') for c in s['containers'] if c['service'] == 'cpu-worker-pool' and c['number'] > 1]" >/dev/null
  engine hashes '{"coordinator": "h2"}'
  cluster docker
  exits 0
  pool "['running', 'exited', 'exited', 'exited']"
  cluster status
  exits 0
  shows "cpu-worker-pool  1/1"
}

@test "autoscale: a group that is set stays, and an engine elsewhere has none" {
  with_autoscaler
  printf 'DOCKER_GID=77\n' >>.env
  up 1
  has_line DOCKER_GID=77
  sed -i -e /DOCKER_GID/d -e s,DOCKER_SOCKET=.*,DOCKER_SOCKET=/nowhere/docker.sock, .env
  cluster docker
  exits 0
  ! grep -q DOCKER_GID .env
}

@test "autoscale: without the profile the autoscaler and its pool go" {
  with_autoscaler
  up 1
  sed -i /COMPOSE_PROFILES/d .env
  cluster docker
  exits 0
  called "docker compose --profile autoscale rm --stop --force autoscaler engine-proxy cpu-worker-pool"
  pool "[]"
  forget
  cluster docker
  exits 0
  not_called "profile autoscale" "create cpu-worker-pool"
}

@test "autoscale: the command refuses where the service follows" {
  with_autoscaler
  up 1
  cluster autoscale --once
  exits 5
  says "the service autoscaler already scales this cluster" "COMPOSE_PROFILES"
  changed_nothing
}

@test "autoscale: restore stops first who would start workers" {
  with_autoscaler
  up 1
  engine facts "\"fact redis_version 7.4.2\nfact keys 3\nfact bytes 16\nfact sha256 $(printf 'REDIS0011 a dump' | sha256sum | cut -d ' ' -f 1)\n\""
  cluster backup ../b.tar.gz
  exits 0
  forget
  cluster restore ../b.tar.gz --yes
  exits 0
  called "docker compose stop autoscaler cpu-worker-pool"
  pool "['exited', 'exited', 'exited', 'exited']"
}
