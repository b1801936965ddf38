# ./deploy-cluster.sh docker: what is refused before anything is changed, what it writes, and what it runs.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; bench.bash sets status, out and err
load bench

# -- refusals ---------------------------------------------------------------------------------------------------------

@test "no docker command: says how to install one, and that local needs none" {
  mkdir ../few
  for tool in bash env dirname sed awk grep mktemp rm cat tail head sort tr; do ln -s "$(command -v "$tool")" "../few/$tool"; done
  PATH=$BATS_TEST_TMPDIR/few cluster docker 1
  exits 3
  says "the docker command is not installed" "docker-compose" "./deploy-cluster.sh local"
}

@test "permission denied: names the group and sudo" {
  engine refuse '[["docker version", 1, "Got permission denied while trying to connect to the Docker daemon socket"]]'
  cluster docker 1
  exits 3
  says "this user has no access to the Docker engine" "sudo usermod -aG docker" "sudo ./deploy-cluster.sh"
}

@test "no daemon: says how to start one" {
  engine refuse '[["docker version", 1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."]]'
  cluster docker 1
  exits 3
  says "the Docker engine does not answer: Cannot connect" "sudo systemctl start docker"
}

@test "an engine that is too old" {
  engine engine '"19.03.5"'
  cluster docker 1
  exits 3
  says "Docker Engine 20.10 or later is required; the installed version is 19.03.5"
}

@test "engines that are new enough: 20.10 and those with words behind the number" {
  for version in 20.10.24+dfsg1 28.2.2-rc1 v29.0; do
    engine engine "\"$version\""
    cluster docker 1 --dry-run
    exits 0
  done
}

@test "Compose 1 is refused, with the package that brings 2" {
  engine refuse '[["docker compose version", 1, "docker: '"'compose'"' is not a docker command."]]'
  program docker-compose 'echo 1.29.2'
  cluster docker 1
  exits 3
  says "docker-compose 1.29.2 is Compose 1" "sudo apt install docker-compose"
}

@test "no Compose at all" {
  engine refuse '[["docker compose version", 1, "not a docker command"]]'
  cluster docker 1
  exits 3
  says "'docker compose' does not work"
}

@test "Compose 2 as a program of its own is used" {
  engine refuse '[["docker compose version", 1, "not a docker command"]]'
  program docker-compose 'exec "$FAKE_DOCKER" compose "$@"'
  engine refuse '[]'
  program docker '[[ $1 != compose ]] || exit 1; exec "$FAKE_DOCKER" "$@"'
  cluster docker 2 --dry-run
  exits 0
  shows "docker-compose up -d --wait"
}

@test "a Compose that is too old" {
  engine compose '"2.19.1"'
  cluster docker 1
  exits 3
  says "Compose 2.20 or later is required; the installed version is 2.19.1"
}

@test "a full disk" {
  program df 'printf "Filesystem 1M-blocks Used Available\n/dev/sda 9 8 120 99%% /\n"'
  cluster docker 1
  exits 3
  says "only 120 MB are free" "docker system prune"
  changed_nothing
}

@test "numbers are checked" {
  for number in x -1 1.5 '' 0 1001 99999999999999999999 '1 2' '$(id)'; do
    cluster docker "$number" 0
    [[ $number == '' ]] || exits 2
    [[ $number == '' ]] || says "the number of workers needs a number from 1 to 1000; got '$number'"
  done
  cluster docker 3 x
  exits 2
  says "the number of GPU workers needs a number"
  cluster docker 1 2 3
  exits 2
}

@test "more GPU workers than workers" {
  cluster docker 2 3
  exits 2
  says "3 GPU workers exceed the total of 2 workers" "3 CPU workers and 2 GPU workers"
}

@test "GPUs on a machine without: CPU workers instead, or a failure when asked" {
  cluster docker 3 1 --require-gpu
  exits 3
  says "nvidia-smi finds no GPU" "./deploy-cluster.sh docker 3 0" "NVIDIA container toolkit"
  changed_nothing
  cluster docker 3 1
  exits 0
  says "This machine has no GPU, so 3 CPU workers will start. To fail instead, add --require-gpu."
  has_line CPU_WORKERS=3 GPU_WORKERS=0
  program nvidia-smi 'printf "GPU 0: NVIDIA\n"'
  engine runtimes '["nvidia"]'
  cluster docker 3 1 --require-gpu
  exits 0
  has_line CPU_WORKERS=2 GPU_WORKERS=1
}

@test "more GPU workers than GPUs" {
  program nvidia-smi 'printf "GPU 0: NVIDIA\nGPU 1: NVIDIA\n"'
  cluster docker 5 3
  exits 3
  says "3 GPU workers were requested, but there are only 2 GPUs" "./deploy-cluster.sh docker 5 2"
}

@test "GPUs that Docker does not know" {
  program nvidia-smi 'printf "GPU 0: NVIDIA\n"'
  cluster docker 3 1
  exits 3
  says "NVIDIA container toolkit is missing" "nvidia-ctk runtime configure" "docker 3 0"
}

@test "a port that another program has" {
  exec 8< <(python3 -c 'import socket, time; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(20)')
  read -r port <&8
  printf 'GRAFANA_PORT=%s\n' "$port" >>.env
  cluster docker 1
  exec 8<&-
  exits 6
  says "port $port is in use by another program" "GRAFANA_PORT=" "ss -ltnp"
  changed_nothing
}

@test "a port that another container has is named after it" {
  engine containers '[{"id": "ab", "project": "shop", "service": "db", "number": 1, "folder": "/", "state": "running", "health": "-", "hash": "h", "image": "i", "secrets": {}, "ports": [7123]}]'
  printf 'HTTP_PORT=7123\n' >>.env
  cluster docker 1
  exits 6
  says "port 7123 is in use by the container shop-db-1" "HTTP_PORT="
}

@test "ports that are no numbers, or the same twice" {
  printf 'HTTP_PORT=web\n' >>.env
  cluster docker 1
  exits 2
  says "HTTP_PORT needs a number from 1 to 65535; got 'web'"
  printf 'HTTP_PORT=7000\nGRAFANA_PORT=7000\n' >>.env
  cluster docker 1
  exits 2
  says "GRAFANA_PORT is 7000, but another service also uses this port"
}

@test "containers of another checkout under the same name are left alone" {
  mkdir ../other
  touch ../other/docker-compose.yml
  up
  (cd ../other && cp -r ../checkout/{deploy,deploy-cluster.sh,docker-compose.yml,jobs,.env} . &&
    ! ./deploy-cluster.sh docker 1 0 2>../refused && ! ./deploy-cluster.sh cleanup --yes 2>>../refused)
  [[ $(grep -c "belong to another checkout: $BATS_TEST_TMPDIR/checkout" ../refused) == 2 ]]
  changed_nothing
}

@test "a checkout that was moved still owns its containers" {
  up
  mv ../checkout ../moved
  cd ../moved
  cluster docker 3 0
  exits 0
}

@test "a configuration that Compose refuses" {
  engine refuse '[["docker compose config", 15, "failed to read .env: line 1: key cannot contain a space"]]'
  cluster docker 1
  exits 1
  says "Compose does not accept the configuration: failed to read .env: line 1"
}

@test "two at once: the second is refused" {
  exec 7<docker-compose.yml
  flock -n 7
  cluster docker 1
  exec 7<&-
  exits 5
  says "another ./deploy-cluster.sh is changing this cluster"
  changed_nothing
}

# -- what it does -----------------------------------------------------------------------------------------------------

@test "the first start: secrets, counts, images, containers, and where everything is" {
  cluster docker 3 0
  exits 0
  called "docker compose build" "docker compose up -d --wait --wait-timeout 300"
  has_line CPU_WORKERS=3 GPU_WORKERS=0 CLUSTER_SIZE=3 WORKER_THREADS=2
  [[ -s secrets/redis_password && -e secrets/grafana_admin_password ]]
  says "The cluster is up: 3 CPU workers, 0 GPU workers" "Pages and API  http://127.0.0.1:" "Grafana" "Prometheus" \
    "password in secrets/grafana_admin_password" "./deploy-cluster.sh status"
  [[ -z $out ]]
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'cpu-worker'])") == 3 ]]
}

@test "port 80 needs no number in the URL; Grafana is not named where it does not run" {
  engine services '["redis", "coordinator", "cpu-worker", "web", "nginx", "prometheus"]'
  program docker '[[ $* != *publish=80* ]] || exit 0; exec "$FAKE_DOCKER" "$@"'
  sed -i 's/^HTTP_PORT=.*/HTTP_PORT=80/' .env
  if (exec 3<>/dev/tcp/127.0.0.1/80) 2>/dev/null; then skip "something listens on port 80 here"; fi
  cluster docker 1
  exits 0
  says "The cluster is up: 1 CPU worker, 0 GPU workers" "Pages and API  http://127.0.0.1
"
  [[ $err != *Grafana* ]]
}

@test "without numbers: 1 and 0, later as many as before" {
  cluster docker
  exits 0
  has_line CPU_WORKERS=1 GPU_WORKERS=0 CLUSTER_SIZE=1
  cluster docker 4 0
  cluster docker
  exits 0
  has_line CPU_WORKERS=4
}

@test "GPU workers: their profile is on as long as there are some" {
  engine runtimes '["runc", "nvidia"]'
  program nvidia-smi 'printf "GPU 0: NVIDIA\nGPU 1: NVIDIA\n"'
  printf 'COMPOSE_PROFILES=dcgm\n' >>.env
  cluster docker 5 2
  exits 0
  has_line CPU_WORKERS=3 GPU_WORKERS=2 CLUSTER_SIZE=5 COMPOSE_PROFILES=dcgm,gpu
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'gpu-worker'])") == 2 ]]
  cluster docker 3 0
  exits 0
  has_line GPU_WORKERS=0 COMPOSE_PROFILES=dcgm
  called "docker compose --profile gpu rm --stop --force gpu-worker"
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'gpu-worker'])") == 0 ]]
}

@test "no secret is printed" {
  cluster docker 2 0
  for file in secrets/redis_password secrets/grafana_admin_password; do
    [[ $out$err != *"$(<"$file")"* ]] || broken "printed: $file"
  done
  not_called "$(<secrets/redis_password)"
}

@test "not even with DEBUG=1" {
  printf 'BIND=0.0.0.0\n' >>.env
  DEBUG=1 cluster docker 2 0
  exits 0
  says "+ compose_run up"
  for file in secrets/redis_password secrets/grafana_admin_password secrets/cluster_token secrets/secrets_key; do
    [[ $out$err != *"$(<"$file")"* ]] || broken "printed: $file"
  done
  DEBUG=1 cluster report
  for file in secrets/redis_password secrets/grafana_admin_password secrets/cluster_token secrets/secrets_key; do
    [[ $out$err != *"$(<"$file")"* ]] || broken "printed: $file"
  done
}

@test "opened to the network, it gets a token, and the path is said" {
  printf 'BIND=0.0.0.0\n' >>.env
  cluster docker 1
  exits 0
  says "token in secrets/cluster_token" 'Authorization: Bearer $(cat secrets/cluster_token)'
  [[ $(tr -d '\n' <secrets/cluster_token | wc -c) -ge 32 ]]
  [[ $err != *"$(<secrets/cluster_token)"* ]]
  kept=$(<secrets/cluster_token)
  cluster docker 1
  [[ $(<secrets/cluster_token) == "$kept" ]]
}

@test "with two tokens, the command that it prints sends one of them" {
  printf 'BIND=0.0.0.0\n' >>.env
  mkdir secrets
  for between in , '\n' ' '; do
    printf "an-old-token-0123456789${between}a-new-token-0123456789\\n" >secrets/cluster_token
    cluster docker 1
    exits 0
    command=$(grep -oE 'Authorization: Bearer .*\)"' <<<"$err")
    [[ $(eval "printf '%s' \"$command") == "Authorization: Bearer a-new-token-0123456789" ]] || broken "$command"
  done
}

@test "opened later, coordinators without the token are replaced" {
  up
  printf 'BIND=192.0.2.7\n' >>.env
  cluster docker 3 0
  exits 0
  called "--scale coordinator=4"
  [[ $(of_engine "{c['secrets']['cluster_token'] for c in s['containers'] if c['service'] == 'coordinator'}.pop()") == "$(<secrets/cluster_token)" ]]
}

@test "coordinators with another key of secrets are replaced, and nobody else" {
  up
  printf 'another-key-0123456789-0123456789-0\n' >secrets/secrets_key
  cluster docker 3 0
  exits 0
  called "--scale coordinator=4"
  [[ $(of_engine "{c['secrets']['secrets_key'] for c in s['containers'] if c['service'] == 'coordinator'}.pop()") == "$(<secrets/secrets_key)" ]]
}

# -- what fails on the way --------------------------------------------------------------------------------------------

refuses_up() { # refuses_up TEXT: of docker compose up
  engine refuse "[[\"compose up\", 1, \"$1\"]]"
  cluster docker 2 0
}

@test "no device driver for GPUs" {
  refuses_up 'Error response from daemon: could not select device driver \"nvidia\" with capabilities: [[gpu]]'
  exits 3
  says "NVIDIA container toolkit" "docker N 0"
}

@test "a port that is taken at the last moment" {
  refuses_up 'Bind for 127.0.0.1:80 failed: port is already allocated'
  exits 6
  says "a port is in use: Bind for 127.0.0.1:80 failed" "HTTP_PORT"
}

@test "an engine without root, and port 80" {
  refuses_up 'error while calling PortManager.AddPort(): cannot expose privileged port 80'
  exits 6
  says "HTTP_PORT=8080"
}

@test "a disk that is full in the middle" {
  refuses_up 'failed to register layer: write /usr/lib/x: no space left on device'
  exits 1
  says "the disk is full" "docker system df"
}

@test "no registry" {
  for text in 'pull access denied for prom/prometheus' 'dial tcp: lookup registry on 127.0.0.53:53: no such host' \
    'Get \"https://registry/v2/\": net/http: TLS handshake timeout' 'dial tcp 192.0.2.1:443: i/o timeout'; do
    refuses_up "$text"
    exits 1
    says "Docker could not pull an image" "deploy/base-images.sh" "docs/docker.md"
  done
}

@test "an image that cannot be built: its last lines are shown" {
  engine refuse '[["compose build", 17, "ERROR: failed to solve: process /bin/sh -c pip install did not complete"]]'
  cluster docker 2 0
  exits 1
  says "pip install did not complete" "failed with exit code 17"
}

@test "an unhealthy service: its last lines, without secrets, and exit code 4" {
  mkdir -p secrets
  printf 'hunter2hunter2hunter2\n' >secrets/cluster_token
  engine health '{"coordinator": "unhealthy"}'
  engine logs '"cannot reach redis://:hunter2hunter2hunter2@redis:6379/0"'
  cluster docker 2 0
  exits 4
  says "coordinator-1" "cannot reach redis://" "logs SERVICE"
  [[ $err != *hunter2* ]] || broken "a secret is shown"
}

@test "a Compose that takes a timeout for success is not believed" {
  engine swallow true
  engine health '{"cpu-worker": "starting"}'
  START_SECONDS=1 cluster docker 2 0
  exits 4
  says "not everything is ready: cpu-worker-1 is running, starting"
}

# -- again ------------------------------------------------------------------------------------------------------------

@test "a second run changes no container and no line" {
  up
  before=$(of_engine "sorted(c['id'] for c in s['containers'])")
  cp -p .env ../env
  cluster docker 3 0
  exits 0
  [[ $(of_engine "sorted(c['id'] for c in s['containers'])") == "$before" ]]
  cmp .env ../env
  not_called "docker stop" "docker rm" "--scale"
}

@test "an update replaces replicas while as many as before answer at every moment" {
  up
  before=$(of_engine "[c['id'] for c in s['containers'] if c['service'] in ('coordinator', 'web')]")
  engine hashes '{"coordinator": "h2"}'
  engine images '{"web": "sha256:web-2"}'
  cluster docker 3 0
  exits 0
  called "docker compose up -d --no-recreate --scale coordinator=4 coordinator" "--scale web=4 web" "docker stop " "docker rm "
  not_called "--no-deps"
  ! grep -vE ' ([2-9])$' "$FAKE/serving" || broken "fewer than 2 served"
  [[ $(of_engine "[c['id'] for c in s['containers'] if c['id'] in $before]") == '[]' ]]
  [[ $(of_engine "sorted(c['service'] for c in s['containers'] if c['service'] in ('coordinator', 'web'))") == "['coordinator', 'coordinator', 'web', 'web']" ]]
}

@test "an update of a cluster on Redis 7.4 changes nothing and names the commands that convert the data" {
  up
  engine redis '"Redis server v=7.4.2 sha=0"'
  : >"$FAKE/calls"
  cluster docker 3 0
  exits 1
  says "cannot read the data of Redis server v=7.4.2" "./deploy-cluster.sh restore FILE"
  not_called "compose up" "docker stop" "docker rm"
  engine redis '"Redis server v=7.2.4 sha=0"'
  cluster docker 3 0
  exits 0
}

@test "an update of one service leaves the others alone, and Redis above all" {
  up
  engine images '{"coordinator": "sha256:coordinator-2"}'
  before=$(of_engine "sorted(c['id'] for c in s['containers'] if c['service'] != 'coordinator')")
  cluster docker 3 0
  exits 0
  [[ $(of_engine "sorted(c['id'] for c in s['containers'] if c['service'] != 'coordinator')") == "$before" ]]
  not_called "--scale web"
}

@test "Redis comes first, then coordinators, pages, workers, and the rest" {
  up
  engine hashes '{"redis": "h2", "coordinator": "h2", "web": "h2", "cpu-worker": "h2", "nginx": "h2"}'
  cluster docker 3 0
  exits 0
  grep -E 'compose up' "$FAKE/calls" | sed 's/.*300 *//; s/.*=. //' >../order
  [[ $(paste -sd, ../order) == redis,coordinator,web,cpu-worker, ]] || broken "order: $(paste -sd, ../order)"
}

@test "other users of Redis make it start again with them, and only once" {
  up
  rm secrets/redis_worker_password
  cluster docker 3 0
  exits 0
  called "docker compose up -d --force-recreate --wait --wait-timeout 300 redis"
  : >"$FAKE/calls"
  cluster docker 3 0
  exits 0
  not_called "--force-recreate"
}

@test "new replicas that do not become healthy go again; the old ones serve on" {
  up
  before=$(of_engine "sorted(c['id'] for c in s['containers'])")
  engine hashes '{"coordinator": "h2", "web": "h2"}'
  engine health '{"coordinator": "starting"}'
  START_SECONDS=1 cluster docker 3 0
  exits 4
  says "the new coordinator did not become healthy" "The old replicas keep serving" "The last lines of coordinator-3"
  [[ $(of_engine "sorted(c['id'] for c in s['containers'])") == "$before" ]]
  not_called "--scale web"
}

@test "replicas that are dead do not hold an update up" {
  up
  of_engine "[c.update(state='exited') for c in s['containers'] if c['id'].endswith('2')]"
  engine hashes '{"coordinator": "h2"}'
  cluster docker 3 0
  exits 0
  [[ $(of_engine "[c['state'] for c in s['containers'] if c['service'] == 'coordinator']") == "['running', 'running']" ]]
}

@test "after a stop it starts again with what it had" {
  up
  cluster stop
  cluster docker 3 0
  exits 0
  [[ $(of_engine "{c['state'] for c in s['containers']}") == "{'running'}" ]]
}

@test "a dry run prints the commands and changes nothing" {
  cp .env ../env
  cluster docker 3 0 --dry-run
  exits 0
  shows "# .env: CPU_WORKERS=3 GPU_WORKERS=0 CLUSTER_SIZE=3" "deploy/secrets.sh" "docker compose build" "docker compose up -d --wait"
  changed_nothing
  cmp .env ../env
  [[ ! -e secrets ]]
}

@test "a dry run of an update names what goes" {
  up
  engine hashes '{"coordinator": "h2"}'
  cluster --dry-run docker 3 0
  exits 0
  shows "docker compose up -d --no-recreate --scale coordinator=4 coordinator" "docker stop 0" "docker rm 0"
  changed_nothing
}

@test "dry runs need no engine and no client" {
  printf '%s\n' 'COMPOSE_PROFILES=runner' >>.env
  cp .env ../env
  mkdir ../few ../parts
  ln -s /usr/bin/* /bin/* ../few 2>/dev/null || true
  rm -f ../few/docker* ../few/kubectl ../few/nvidia-smi
  printf 'REDIS0011 a dump' >../parts/dump.rdb
  printf '{"format": 1, "sha256": "%s", "audit_sha256": ""}' "$(sha256sum ../parts/dump.rdb | cut -d ' ' -f 1)" >../parts/manifest.json
  tar -C ../parts -czf ../backup.tar.gz manifest.json dump.rdb
  engine refuse '[["docker", 1, "Cannot connect to the Docker daemon"]]'
  path=$PATH
  while read -r command; do
    # shellcheck disable=SC2086
    PATH=$path cluster ${command%:*} --dry-run
    exits 0
    says "No Docker engine answers"
    shows "${command#*:}"
    path=$BATS_TEST_TMPDIR/few # after the first command, there is no client
  done <<'TEXT'
docker 3 1:docker compose up -d --wait --wait-timeout 300 runner-token runner
scale 4:docker compose up -d --no-recreate --wait --wait-timeout 300 cpu-worker
autoscale --max 4:docker exec -i COORDINATOR python3 - look
report:docker exec -i COORDINATOR python3 -
backup ../new.tar.gz:docker exec -i REDIS sh -s
restore ../backup.tar.gz:docker run --rm --interactive
cleanup --docker:docker compose --profile '*' down --volumes --remove-orphans
logs coordinator -f --docker:docker compose logs --tail 200 --follow coordinator
stop --docker:docker compose --profile '*' stop
TEXT
  not_called compose
  cmp .env ../env
  [[ ! -e secrets && ! -e ../new.tar.gz ]]
}
