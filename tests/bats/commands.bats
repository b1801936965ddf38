# Help, scale, status, logs, stop, cleanup, report: on a fake engine.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; bench.bash sets status, out and err
load bench

# -- help -------------------------------------------------------------------------------------------------------------

@test "help names every command and exit code, on stdout" {
  for word in help -h --help; do
    cluster "$word"
    exits 0
    shows local docker scale status logs stop cleanup report backup restore --dry-run "5 2" "130 interrupted"
    [[ -z $err ]]
  done
}

@test "--help after a command prints help instead of running the command" {
  for command in local docker kubernetes stop; do
    cluster "$command" --help
    exits 0
    shows "Usage: ./deploy-cluster.sh COMMAND" "--workers N"
  done
}

@test "no command, and one that there is not" {
  cluster
  exits 2
  says Usage
  cluster dokcer
  exits 2
  says "the command 'dokcer' does not exist; the commands are: local, bundle, invite" "See: ./deploy-cluster.sh help"
}

@test "the version" {
  cluster --version
  exits 0
  [[ $out =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "no colours where there is no terminal" {
  cluster dokcer
  [[ $err != *$'\033'* ]]
}

@test "it runs from another folder" {
  cd /
  status=0
  out=$("$BATS_TEST_TMPDIR/checkout/deploy-cluster.sh" docker 2 0 --dry-run) || status=$?
  exits 0
  shows "docker compose up"
}

@test "local prints what it would run" {
  cluster local --workers 2 --dry-run
  exits 0
  shows "deploy/environment.sh local" "deploy/pages.sh" ".venv/bin/python -m deploy.local run --workers 2"
  [[ ! -e .venv ]]
}

# -- scale ------------------------------------------------------------------------------------------------------------

@test "scale touches workers, and coordinators one beside the other since they show the number wanted" {
  up 3
  workers=$(of_engine "[c['id'] for c in s['containers'] if c['service'] == 'cpu-worker']")
  cluster scale 5
  exits 0
  has_line CPU_WORKERS=5 CLUSTER_SIZE=5
  called "docker compose up -d --no-recreate --wait --wait-timeout 300 cpu-worker"
  not_called "compose build" "--no-deps" "compose up -d --wait"
  [[ $(of_engine "set($workers) <= {c['id'] for c in s['containers']}") == True ]]
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'cpu-worker'])") == 5 ]]
  says "5 CPU workers, 0 GPU workers" "keep their number of lanes (2)" "distribute the 8 cores again, run ./deploy-cluster.sh docker 5 0"
  cluster scale 1
  exits 0
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'cpu-worker'])") == 1 ]]
}

@test "scale keeps the GPU workers and refuses less than those" {
  engine runtimes '["nvidia"]'
  program nvidia-smi 'printf "GPU 0: NVIDIA\nGPU 1: NVIDIA\n"'
  cluster docker 5 2
  cluster scale 4
  exits 0
  has_line CPU_WORKERS=2 GPU_WORKERS=2 CLUSTER_SIZE=4
  cluster scale 1
  exits 2
  says "2 GPU workers exceed the total of 1 worker"
  cluster scale 4 --gpu 1
  exits 0
  has_line CPU_WORKERS=3 GPU_WORKERS=1
  cluster scale 3 --gpu 0
  exits 0
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'gpu-worker'])") == 0 ]]
}

@test "scale: what is refused" {
  cluster scale 3
  exits 1
  says "no cluster of this checkout is running in Docker" "./deploy-cluster.sh docker 3 0"
  for words in '' 'x' '3 4' '3 --gpu' '3 --gpus 1' '0'; do
    # shellcheck disable=SC2086
    cluster scale $words
    exits 2
  done
  up
  cluster scale 3 --gpu 1
  exits 3
  changed_nothing
}

@test "scale --dry-run" {
  up
  cp .env ../env
  cluster scale 4 --dry-run
  exits 0
  shows "# .env: CPU_WORKERS=4 GPU_WORKERS=0 CLUSTER_SIZE=4" "docker compose up -d --no-recreate --wait --wait-timeout 300 cpu-worker"
  changed_nothing
  cmp .env ../env
}

# -- status -----------------------------------------------------------------------------------------------------------

@test "status: services, replicas, work and addresses" {
  up
  cluster status
  exits 0
  shows "Docker project threads" "coordinator      2/2      2-running" "cpu-worker       3/3" "workers    3 live" "pages      http://127.0.0.1:"
  changed_nothing
}

@test "status: something that is not healthy makes it 1" {
  up
  of_engine "[c.update(health='unhealthy') for c in s['containers'] if c['id'].endswith('2')]"
  cluster status
  exits 1
  shows "coordinator      1/2" "1-unhealthy"
  of_engine "[c.update(health='unhealthy') for c in s['containers'] if c['service'] == 'coordinator']"
  cluster status
  exits 1
  shows "coordinator      0/2" "The API does not answer: no coordinator is healthy"
  of_engine "[c.update(health='unhealthy') for c in s['containers'] if c['service'] == 'redis']"
  cluster status
  exits 1
  shows "The API does not answer, and redis is not ready" "logs redis" "./deploy-cluster.sh docker"
  of_engine "s['containers'].clear() or [c for c in s['containers']]"
  cluster status
  exits 1
  says "No local cluster of this checkout is running"
}

@test "status --json is one object" {
  up
  cluster status --json
  exits 0
  python3 -c '
import json, sys
found = json.loads(sys.argv[1])
assert found["local"] is None
assert found["docker"]["project"] == "threads"
assert found["docker"]["services"]["coordinator"] == {"ready": 2, "wanted": 2, "state": "2-running"}
assert found["docker"]["api"]["jobs"]["done"] == 3
assert set(found["docker"]["urls"]) == {"pages", "api", "grafana", "prometheus"}
' "$out"
  engine containers '[]'
  cluster status --json
  exits 1
  [[ $out == '{"docker":null,"local":null}' ]]
}

@test "status without a daemon speaks of the local cluster" {
  engine refuse '[["docker", 1, "Cannot connect to the Docker daemon"]]'
  cluster status
  exits 1
  says "No local cluster of this checkout is running. Start one: ./deploy-cluster.sh local"
  [[ $err != *"Docker engine"* ]] || broken "nothing was ever started in Docker here"
  mkdir -p secrets && touch secrets/redis_password
  cluster status
  exits 1
  says "The Docker engine does not answer, so this checkout's containers are not shown"
}

@test "status of what was stopped says how it starts" {
  up
  cluster stop
  cluster status
  exits 1
  shows "The cluster is stopped. Start it: ./deploy-cluster.sh docker"
}

@test "status of both: a local cluster beside the containers" {
  up
  pretend_local
  cluster status
  exits 0
  shows "Docker project threads" "local status"
  cluster status --json
  exits 0
  python3 -c 'import json, sys; f = json.loads(sys.argv[1]); assert f["local"] == {"url": "http://127.0.0.1:7", "api": {"of": "local"}} and f["docker"]' "$out"
}

pretend_local() { # pretend_local [stopped]: a local cluster, as far as these scripts can see
  mkdir -p .venv/bin .cluster/logs
  printf 'http://127.0.0.1:7\n' >.cluster/url
  printf '#!/bin/bash\ncase $2 in\n*is_running*) exit %s ;;\n*user_contexts*) echo "$2 ${3:-}" >>../python ;;\n*) echo "local ${@: -1}" ;;\nesac\n' "$((${#1} > 0))" >.venv/bin/python
  printf '#!/bin/bash\necho "{\\"of\\": \\"local\\"}"\n' >.venv/bin/cluster
  chmod +x .venv/bin/*
  printf 'a line of redis\n' >.cluster/logs/redis.log
  printf 'a line of a worker\n' >.cluster/logs/cpu-worker-1.log
}

@test "status when Docker may not be asked says so where containers were started" {
  engine refuse '[["docker", 1, "permission denied while trying to connect"]]'
  cluster status
  exits 1
  [[ $err != *Docker* ]] || broken "nothing was ever started in Docker here"
  mkdir secrets
  cluster status
  exits 1
  says "This user has no access to Docker, so containers are not shown" "sudo ./deploy-cluster.sh"
}

@test "status with a configuration that Compose refuses says so" {
  up
  engine refuse '[["docker compose config", 15, "failed to read .env: line 1"]]'
  cluster status
  exits 1
  says "Compose does not accept the configuration: failed to read .env: line 1"
}

@test "status takes --json only" {
  cluster status now
  exits 2
}

# -- logs -------------------------------------------------------------------------------------------------------------

@test "logs of all, of one, followed" {
  up
  cluster logs
  exits 0
  shows "a line of a log"
  cluster logs coordinator -f
  exits 0
  called "docker compose logs --tail 200 --follow coordinator"
}

@test "logs of a service that there is not" {
  up
  cluster logs postgres
  exits 2
  says "there is no service 'postgres'; there are: coordinator cpu-worker grafana nginx prometheus redis redis-exporter web"
}

@test "logs where nothing has run" {
  cluster logs
  exits 1
  says "this checkout has not started a cluster yet"
}

@test "logs of the local cluster" {
  pretend_local
  cluster logs
  exits 0
  shows "a line of redis" "a line of a worker"
  cluster logs redis
  shows "a line of redis"
  [[ $out != *worker* ]]
  cluster logs nginx
  exits 2
  says "program 'nginx' has no log; the programs with logs are: cpu-worker-1 redis"
  cluster logs -f redis --dry-run
  shows "tail -n 200 -F .cluster/logs/redis.log"
}

@test "logs with both: asks which" {
  up
  pretend_local
  cluster logs
  exits 2
  says "this checkout has several clusters: docker local." "these options to ./deploy-cluster.sh logs: --docker --local"
  cluster logs --local redis
  exits 0
  shows "a line of redis"
  cluster logs --docker redis
  exits 0
  shows "a line of a log"
}

# -- stop -------------------------------------------------------------------------------------------------------------

@test "stop keeps volumes and says so" {
  up
  cluster stop
  exits 0
  says "Stopped. Jobs and results remain"
  called "docker compose --profile '*' stop"
  not_called "down"
  [[ $(of_engine "s['volumes']") == "['redis-data']" ]]
  forget
  cluster stop
  exits 0
  says "No containers of this checkout are running."
  not_called "compose --profile '*' stop"
}

@test "stop stops both" {
  up
  pretend_local
  cluster stop
  exits 0
  shows "local stop"
  called "docker compose --profile '*' stop"
}

@test "stop without Docker, and when it may not be asked" {
  engine refuse '[["docker", 1, "Cannot connect to the Docker daemon"]]'
  cluster stop
  exits 0
  engine refuse '[["docker", 1, "permission denied while trying to connect"]]'
  cluster stop
  exits 0
  [[ $err != *Docker* ]] || broken "nothing was ever started in Docker here"
  mkdir secrets
  touch secrets/redis_password
  cluster stop
  exits 3
  says "this user has no access to the Docker engine"
  pretend_local
  cluster stop
  exits 0
  shows "local stop"
  says "This user has no access to Docker, so containers are not shown"
}

@test "stop --dry-run; stop takes nothing else" {
  up
  cluster stop --dry-run
  exits 0
  shows "docker compose --profile '*' stop"
  changed_nothing
  cluster stop now
  exits 2
  says "stop accepts only options that choose a cluster"
}

# -- cleanup ----------------------------------------------------------------------------------------------------------

@test "cleanup lists what goes, and nobody to ask means no" {
  up
  cluster cleanup
  exits 2
  says "container threads-redis-1" "volume threads_redis-data" "backup FILE" "Use --yes"
  changed_nothing
}

@test "cleanup --yes removes containers and volumes of all profiles; secrets stay" {
  up
  cluster cleanup --yes
  exits 0
  called "docker compose --profile '*' down --volumes --remove-orphans"
  [[ -s secrets/redis_password && $(of_engine "s['volumes'] + s['containers']") == '[]' ]]
  cluster cleanup --yes
  exits 0
  says "There is nothing to remove"
}

@test "cleanup removes the chosen cluster, and secrets when asked" {
  up
  pretend_local stopped
  cluster cleanup --yes --secrets
  exits 0
  says "folder secrets" "The local cluster of this checkout was kept" "cleanup --local"
  grep 'user_contexts.delete_at.* http://127.0.0.1:[0-9]*$' ../python
  [[ ! -e secrets && -e .cluster && $(of_engine "s['volumes'] + s['containers']") == '[]' ]]
  up
  grep 'user_contexts.keep_at.* http://127.0.0.1:[0-9]*$' ../python
  cluster cleanup --yes --local
  exits 0
  [[ ! -e .cluster && $(of_engine "s['volumes']") == "['redis-data']" ]]
}

@test "cleanup of a local cluster deletes its data and contexts, and lists the folders that remain" {
  pretend_local stopped
  mkdir -p web/node_modules
  cluster cleanup
  exits 2
  says "folder .cluster" "contexts of this checkout" "backup FILE" "Use --yes"
  [[ -e .cluster ]]
  cluster cleanup --dry-run
  exits 0
  shows "user_contexts.delete()" "rm -rf .cluster"
  [[ -e .cluster && ! -e ../python ]]
  cluster cleanup --yes
  exits 0
  grep -q 'user_contexts.delete()' ../python
  says "To delete them: rm -rf .venv web/node_modules"
  [[ ! -e .cluster && -e .venv ]]
  engine refuse '[["docker", 1, "Cannot connect to the Docker daemon"]]'
  cluster cleanup --yes
  exits 0
  says "There is nothing to remove." "rm -rf .venv web/node_modules"
}

@test "cleanup changes nothing in a folder to which links in .cluster, or .cluster itself, point" {
  pretend_local stopped
  mkdir -p ../victim/folder
  echo kept >../victim/file
  chmod 400 ../victim/file
  ln -s "$BATS_TEST_TMPDIR/victim" .cluster/runner
  cluster cleanup --yes
  exits 0
  [[ ! -e .cluster ]]
  ln -s "$BATS_TEST_TMPDIR/victim" .cluster
  cluster cleanup --yes
  exits 0
  says "link .cluster, but not the folder to which it points: $BATS_TEST_TMPDIR/victim"
  [[ ! -L .cluster && -d ../victim/folder && $(ls -l ../victim/file) == -r--------* ]]
}

@test "cleanup refuses a local cluster that is running, and a member of another cluster" {
  pretend_local
  cluster cleanup --yes
  exits 5
  says "First stop it: ./deploy-cluster.sh stop"
  pretend_local stopped
  mkdir .cluster/joined
  touch .cluster/joined/host.json
  cluster cleanup --yes
  exits 1
  says "First revoke them: ./deploy-cluster.sh leave"
  [[ -e .cluster ]]
}

@test "cleanup asks on a terminal, and only yes is yes" {
  up
  for answer in n '' nope; do
    status=0
    printf '%s\n' "$answer" | script -qec './deploy-cluster.sh cleanup' /dev/null >../said || status=$?
    [[ $status == 1 ]] || broken "$(cat ../said)"
    grep -q 'Delete everything listed' ../said
  done
  not_called " down"
  printf 'y\n' | script -qec './deploy-cluster.sh cleanup' /dev/null >../said
  called " down --volumes"
}

@test "cleanup --dry-run" {
  up
  cluster cleanup --dry-run --secrets
  exits 0
  shows "docker compose --profile '*' down --volumes --remove-orphans" "rm -rf secrets"
  [[ -d secrets ]]
  changed_nothing
}

@test "scale of a local cluster takes one number of CPU workers" {
  pretend_local
  cluster scale 2
  exits 0
  shows "local 2"
  for words in "" "two" "0" "65" "2 --gpu 1"; do
    # shellcheck disable=SC2086
    cluster scale $words
    exits 2
  done
  says "scale of a local cluster needs one number of CPU workers, such as scale 2, and no options."
  cluster autoscale
  exits 1
  says "./deploy-cluster.sh scale N"
}

# -- without Docker ---------------------------------------------------------------------------------------------------

@test "a Docker client that hangs delays commands for a limited time" {
  program timeout 'shift; exec /usr/bin/timeout 0.3 "$@"'
  program docker 'exec /bin/sleep 60'
  pretend_local stopped
  mkdir -p secrets && touch secrets/redis_password
  cluster status
  shows "local status"
  says "The Docker engine does not answer, so this checkout's containers are not shown"
  cluster logs redis
  exits 0
  shows "a line of redis"
  cluster docker
  exits 3
  says "the Docker engine does not answer: no response within 20 seconds"
  ((SECONDS < 20)) || broken "the commands waited for Docker"
}

@test "a local cluster does not query Docker, and works without its client" {
  pretend_local
  mkdir ../few
  ln -s /usr/bin/* /bin/* ../few 2>/dev/null || true
  rm -f ../few/docker*
  for path in "$PATH" "$BATS_TEST_TMPDIR/few"; do
    PATH=$path cluster status
    exits 0
    shows "local status"
    PATH=$path cluster logs redis
    exits 0
    shows "a line of redis"
    PATH=$path cluster stop
    exits 0
    shows "local stop"
  done
  pretend_local stopped
  PATH=$BATS_TEST_TMPDIR/few cluster cleanup --yes
  exits 0
  [[ ! -e .cluster && ! -e $FAKE/calls ]]
}

@test "an option that names a cluster chooses it" {
  pretend_local
  cluster logs --docker
  exits 1
  says "this checkout has no containers"
  touch .kubernetes
  cluster logs
  exits 2
  says "this checkout has several clusters: kubernetes local."
  cluster status
  exits 2
  cluster logs --local redis
  exits 0
  shows "a line of redis"
}

# -- report -----------------------------------------------------------------------------------------------------------

@test "report tells and hides" {
  printf 'CLUSTER_TOKEN=token-of-the-env-file\nMY_PASSWORD="short1"\n' >>.env
  up
  password=$(<secrets/redis_password)
  printf 'a-token-of-ours-0123456789\n' >secrets/cluster_token
  engine logs "\"coordinator-1 | {\\\"level\\\": \\\"error\\\", \\\"event\\\": \\\"redis://:$password@redis and $password and token-of-the-env-file and short1\\\"}\""
  export SOME_API_KEY=key-of-the-environment
  engine figures '"p95 of the API 12 ms, key-of-the-environment, a-token-of-ours-0123456789, https://me:pw@example.org/x"'
  cluster report
  exits 0
  shows "# Threads Cluster" "engine 26.1.0" "compose 2.26.1" "coordinator 2 2" "p95 of the API 12 ms" '"level": "error"' "name: threads" "[redacted]"
  for secret in "$password" "$(<secrets/grafana_admin_password)" token-of-the-env-file short1 key-of-the-environment \
    a-token-of-ours-0123456789 me:pw; do
    [[ $out$err != *"$secret"* ]] || broken "shown: $secret"
  done
  changed_nothing
}

@test "report into a file, seen from where the user is" {
  up
  mkdir ../desk && cd ../desk
  status=0
  ../checkout/deploy-cluster.sh report report.txt 2>err || status=$?
  exits 0
  grep -q 'engine 26.1.0' report.txt
  status=0
  ../checkout/deploy-cluster.sh report nowhere/report.txt 2>err || status=$?
  exits 2
}

@test "report without a cluster, and without a healthy coordinator" {
  cluster report
  exits 1
  says "this checkout has no containers"
  up
  of_engine "[c.update(health='unhealthy') for c in s['containers'] if c['service'] == 'coordinator']"
  cluster report
  exits 0
  shows "No coordinator is healthy, so measurements are missing"
}

@test "report --dry-run" {
  up
  cluster report --dry-run
  exits 0
  shows "docker version" "deploy/docker/report.py"
}

# -- join -------------------------------------------------------------------------------------------------------------

@test "join without an invitation is refused before anything is installed" {
  cluster join --name join --workers 2
  exits 2
  says "join needs an invitation" "./deploy-cluster.sh invite"
  cluster join 192.0.2.7:3443
  exits 2
  says "'192.0.2.7:3443' is not an invitation" "HOST:PORT/FINGERPRINT"
  cluster join 192.0.2.7:3443/- --dry-run
  exits 0
  shows "deploy/environment.sh local" "-m deploy.local join 192.0.2.7:3443/-"
  mkdir -p .cluster/joined
  touch .cluster/joined/host.json
  cluster join --dry-run
  exits 0
  shows "-m deploy.local join"
}

@test "join reads the token from stdin before anything is installed" {
  cluster join 192.0.2.7:3443/-
  exits 2
  says "reads the token of the invitation from stdin, but stdin is empty" "paste the token"
  err=$(./deploy-cluster.sh join 192.0.2.7:3443/- <<<"tc_k3v9x2m1qa_short" 2>&1) && return 1
  says "this is not the token of an invitation" "tc_..."
  [[ $err != *short* && ! -e .venv ]]
}

# -- state outside of the checkout ------------------------------------------------------------------------------------

@test "CLUSTER_HOME: counts, secrets and the local cluster's data are in that folder" {
  export CLUSTER_HOME="$BATS_TEST_TMPDIR/my home"
  mkdir -p "$CLUSTER_HOME/.cluster/logs"
  mv .env "$CLUSTER_HOME/.env"
  cluster docker 2 0
  exits 0
  called "--env-file '$CLUSTER_HOME/.env' up"
  grep -q '^CPU_WORKERS=2' "$CLUSTER_HOME/.env"
  [[ -s $CLUSTER_HOME/secrets/redis_password && ! -e .env && ! -e secrets ]]
  cluster cleanup --local --yes --secrets
  exits 0
  says "folder $CLUSTER_HOME/.cluster" "folder $CLUSTER_HOME/secrets"
  says "To delete it: rm -rf '$CLUSTER_HOME/releases'"
  [[ ! -e $CLUSTER_HOME/.cluster && ! -e $CLUSTER_HOME/secrets ]]
}

@test "with CLUSTER_HOME, messages name the commands of an installation" {
  export CLUSTER_HOME=$BATS_TEST_TMPDIR
  cluster logs --local
  exits 1
  says "this installation has not started a cluster yet." "Start one: cluster start"
}
