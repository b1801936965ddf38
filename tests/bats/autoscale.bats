# autoscale: on a fake engine, whose coordinators answer with what deploy/docker/autoscale.py makes of its workers.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; bench.bash sets status, out and err
load bench

readonly THERE="[c['id'] for c in s['containers'] if c['service'] == 'cpu-worker']"

once() { # once ARGUMENT...: one round
  cluster autoscale --once "$@"
  exits 0
}

there() { # there N: so many containers of workers, and .env says so
  [[ $(of_engine "len($THERE)") == "$1" ]] || broken "not $1 containers"
  has_line "CPU_WORKERS=$1"
}

@test "autoscale starts what is needed, and .env keeps the number" {
  up 2
  engine need 4
  once --max 6
  says "4 workers needed, 2 running: starting 2"
  called "docker compose up -d --no-recreate cpu-worker"
  there 4
  has_line AUTOSCALE_MIN=1 AUTOSCALE_MAX=6 CLUSTER_SIZE=1
  forget
  once --max 6
  says "4 workers needed, 4 running."
  changed_nothing
}

@test "autoscale drains a worker first, and stops it when its leases have ended" {
  up 3
  of_engine "s['busy'].extend($THERE)"
  once
  says "1 workers needed, 3 running: draining"
  not_called "docker stop" "docker rm"
  once
  says "1 workers needed, 3 running: surplus workers finish their leases first"
  not_called "docker stop"
  of_engine "s['busy'].clear()"
  forget
  once
  says "which has finished its leases"
  called "docker stop" "docker rm"
  there 1
}

@test "autoscale lets a draining worker work again before it starts one" {
  up 3
  of_engine "s['busy'].extend($THERE)"
  once
  engine need 2
  once
  says "resuming"
  not_called "docker stop"
  [[ $(of_engine "len(s['draining'])") == 1 ]]
  engine need 4
  once
  says "resuming" "4 workers needed, 3 running: starting 1"
  [[ $(of_engine "s['draining']") == "[]" ]]
  there 4
}

@test "autoscale changes nothing while nobody says what is needed" {
  up 2
  once
  forget
  engine need null
  once
  says "No worker was started or stopped" "coordinator has calculated"
  engine refuse '[["python3", 1, "cannot exec"]]'
  once
  says "No worker was started or stopped: cannot exec"
  changed_nothing
}

@test "autoscale follows until it is interrupted, and lets draining workers go on" {
  up 2
  of_engine "s['busy'].extend($THERE)"
  ./deploy-cluster.sh autoscale >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" </dev/null 3>&- &
  for _ in {1..400}; do
    ! grep -q ": draining " "$BATS_TEST_TMPDIR/err" || break
    /bin/sleep 0.05
  done
  kill -TERM $!
  status=0
  wait $! || status=$?
  err=$(<"$BATS_TEST_TMPDIR/err")
  exits 130
  says "Adjusting the number of workers to the number needed, from 1 to 10" "Resumed" "Stopped autoscaling; 2 CPU workers continue"
  [[ $(of_engine "s['draining']") == "[]" ]]
  not_called "docker stop"
}

@test "autoscale: limits and what is refused" {
  for words in '--min 0' '--min x' '--max 0' '--min 3 --max 2' '--min' '--gpu 1' '4'; do
    # shellcheck disable=SC2086
    cluster autoscale $words
    exits 2
  done
  cluster autoscale
  exits 1
  says "no cluster of this checkout is running in Docker" "./deploy-cluster.sh docker"
  up 2
  printf 'AUTOSCALE_MIN=2\nAUTOSCALE_MAX=3\n' >>.env
  once
  has_line AUTOSCALE_MIN=2 AUTOSCALE_MAX=3 CLUSTER_SIZE=2
  says "3 workers have 12 lanes on 8 cores"
  cluster autoscale --kubernetes
  exits 2
  says "on Kubernetes, an autoscaler in the cluster" "components/keda"
}

@test "autoscale --dry-run" {
  up 2
  engine need 3
  cp .env ../env
  cluster autoscale --max 4 --dry-run
  exits 0
  shows "# .env: AUTOSCALE_MIN=1 AUTOSCALE_MAX=4" "# .env: CPU_WORKERS=3" "docker compose up -d --no-recreate cpu-worker"
  changed_nothing
  cmp .env ../env
}
