# backup and restore on a fake engine; what runs inside the containers is tested with a real Redis in
# tests/unit/test_deploy_script.py.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; bench.bash sets status, out and err
load bench

facts() { # what the container says of the dump
  local sum
  sum=$(printf 'REDIS0011 a dump' | sha256sum | cut -d ' ' -f 1)
  engine facts "\"fact redis_version 7.4.2\nfact keys 3\nfact bytes 16\nfact sha256 ${1:-$sum}\n\""
}

saved() { # a backup in ../backup.tar.gz of a cluster that runs
  up
  facts
  cluster backup ../backup.tar.gz
  exits 0
  forget
}

@test "a backup is one file with a manifest, only for its owner" {
  up
  facts
  cd ..
  status=0
  checkout/deploy-cluster.sh backup backup.tar.gz 2>said || status=$?
  exits 0
  [[ $(stat -c %a backup.tar.gz) == 600 ]]
  mkdir parts
  tar -C parts -xzf backup.tar.gz
  [[ $(<parts/dump.rdb) == 'REDIS0011 a dump' ]]
  python3 -c '
import json
found = json.load(open("parts/manifest.json"))
assert (found["format"], found["redis_version"], found["keys"], found["bytes"], found["project"]) == (1, "7.4.2", 3, 16, "threads"), found
assert found["made"].endswith("Z") and found["version"] and len(found["sha256"]) == 64
'
  grep -q '3 keys' said
  not_called "$(<checkout/secrets/redis_password)"
}

@test "a backup is taken from a replica while the server redis is away" {
  up
  facts
  of_engine "[c.update(service='redis-replica-1') for c in s['containers'] if c['service'] == 'redis']"
  cluster backup ../backup.tar.gz
  exits 0
  of_engine "[c.update(health='unhealthy') for c in s['containers'] if c['service'] == 'redis-replica-1']"
  cluster backup ../other.tar.gz
  exits 1
  says "Redis is not running in Docker, or is not healthy" "./deploy-cluster.sh docker"
}

@test "without an engine, backup and restore say how to name a local cluster" {
  saved
  engine refuse '[["docker version", 1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."]]'
  cluster backup ../other.tar.gz
  exits 3
  says "the Docker engine does not answer" "For a local cluster, add the option --local."
  cluster restore ../backup.tar.gz --yes
  exits 3
  says "For a local cluster, add the option --local."
}

@test "a backup overwrites nothing" {
  up
  facts
  printf 'mine\n' >../backup.tar.gz
  cluster backup ../backup.tar.gz
  exits 2
  says "already exists and is not overwritten"
  [[ $(<../backup.tar.gz) == mine ]]
  changed_nothing
}

@test "a backup that is not whole is not kept" {
  up
  facts 0000
  cluster backup ../backup.tar.gz
  exits 1
  says "its checksum differs"
  engine refuse '[["sh -s", 1, "--- RDB ERROR DETECTED ---"]]'
  cluster backup ../backup.tar.gz
  exits 1
  says "RDB ERROR" "copying Redis failed"
  [[ -z $(find .. -maxdepth 1 -name 'backup*') ]]
}

@test "backup: what is refused" {
  cluster backup
  exits 2
  cluster backup --yes
  exits 2
  cluster backup nowhere/backup.tar.gz
  exits 2
  cluster backup ../backup.tar.gz
  exits 1
  says "Redis is not running in Docker" "For a local cluster, add the option --local."
}

@test "backup --dry-run" {
  up
  cluster backup ../backup.tar.gz --dry-run
  exits 0
  shows "deploy/docker/dump-redis.sh" "tar -czf"
  [[ ! -e ../backup.tar.gz ]]
}

@test "restore after cleanup brings everything up, without a question" {
  saved
  cluster cleanup --yes
  forget
  cluster restore ../backup.tar.gz
  exits 0
  says "Restored 3 keys" "The cluster is up"
  [[ $(of_engine "s['loaded']") == 'REDIS0011 a dump' ]]
  called "docker compose create redis" "--network none" "--volumes-from" "docker compose up -d --wait"
  not_called "compose stop"
  [[ $(of_engine "{c['state'] for c in s['containers']}") == "{'running'}" ]]
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'cpu-worker'])") == 3 ]]
}

@test "restore in a fresh checkout makes secrets and counts" {
  saved
  cluster cleanup --yes --secrets
  sed -i '/WORKER/d; /CLUSTER_SIZE/d' .env
  cluster restore ../backup.tar.gz
  exits 0
  [[ -s secrets/redis_password ]]
  has_line CPU_WORKERS=1
}

@test "restore over a cluster that runs stops its writers, workers last of them before Redis" {
  saved
  cluster restore ../backup.tar.gz --yes
  exits 0
  grep -nE 'compose (stop|create|up)|docker run' "$FAKE/calls" | sed 's/.*compose //; s/.*docker run.*/run/' >../order
  [[ $(paste -sd, ../order) == 'stop coordinator cpu-worker,stop redis,create redis,run,up -d --wait --wait-timeout 300' ]] ||
    broken "$(cat ../order)"
}

@test "restore asks when there is something to lose, and names unfinished jobs" {
  saved
  engine api '{"jobs":{"queued":2,"running":1,"done":5}}'
  cluster restore ../backup.tar.gz
  exits 2
  says "would be lost: queued:2, running:1" "Use --yes"
  changed_nothing
}

@test "a restore that fails leaves the data and starts the cluster again" {
  saved
  engine broken_dump true
  cluster restore ../backup.tar.gz --yes
  exits 1
  says "this is not a complete RDB file" "The data was not changed" "nothing was restored"
  [[ $(of_engine "{c['state'] for c in s['containers']}") == "{'running'}" ]]
}

@test "restore: files that are no backups" {
  cluster restore
  exits 2
  cluster restore ../none
  exits 2
  says "does not exist"
  printf 'x\n' >../text
  cluster restore ../text
  exits 1
  says "is not a complete backup"
  saved
  head -c 200 ../backup.tar.gz >../short
  cluster restore ../short --yes
  exits 1
  mkdir ../parts
  tar -C ../parts -xzf ../backup.tar.gz
  printf 'REDIS0011 b dump' >../parts/dump.rdb
  tar -C ../parts -czf ../changed.tar.gz manifest.json dump.rdb
  cluster restore ../changed.tar.gz --yes
  exits 1
  says "is damaged: its checksum differs"
  sed -i 's/"format": 1/"format": 9/' ../parts/manifest.json
  tar -C ../parts -czf ../newer.tar.gz manifest.json dump.rdb
  cluster restore ../newer.tar.gz --yes
  exits 1
  says "has format '9', but this version reads only format 1"
  changed_nothing
}

@test "restore --dry-run" {
  saved
  cluster restore ../backup.tar.gz --dry-run
  exits 0
  shows "docker compose stop coordinator cpu-worker" "docker run --rm --interactive --init --network none" "docker compose up -d --wait"
  changed_nothing
}

@test "the file of the audit log is in a backup and is put back" {
  engine audit '"{\"seq\":1}\n{\"seq\":2}\n"'
  saved
  mkdir ../parts
  tar -C ../parts -xzf ../backup.tar.gz
  [[ $(<../parts/audit.jsonl) == $'{"seq":1}\n{"seq":2}' ]]
  cluster cleanup --yes
  forget
  cluster restore ../backup.tar.gz
  exits 0
  says "The audit log's file was restored"
  [[ $(of_engine "s['loaded_audit']") == $'{"seq":1}\n{"seq":2}' ]]
  grep -nE 'compose (create|up)|docker run' "$FAKE/calls" | sed 's/.*compose //; s/.*docker run.*/run/' >../order
  [[ $(paste -sd, ../order) == 'create redis,run,create coordinator,run,up -d --wait --wait-timeout 300' ]] ||
    broken "$(cat ../order)"
}

@test "a restore says what became of the file of the audit log that was there" {
  engine audit '"{\"seq\":1}\n"'
  saved
  engine audit_answer '"kept"'
  cluster restore ../backup.tar.gz --yes
  exits 0
  says "was kept: a rollback entry will mark"
  engine audit_answer '"aside audit.jsonl.before-restore-5"'
  cluster restore ../backup.tar.gz --yes
  exits 0
  says "was renamed to audit.jsonl.before-restore-5"
  engine refuse '[["--entrypoint python3", 1, "PermissionError: no"]]'
  cluster restore ../backup.tar.gz --yes
  exits 0
  says "PermissionError" "could not be restored" "was not changed"
  cluster restore ../backup.tar.gz --dry-run
  exits 0
  shows "load /var/lib/audit/audit.jsonl"
}

@test "a backup whose audit log cannot be read says so, and is restored without" {
  engine refuse '[["python3 - dump", 1, "PermissionError: no"]]'
  saved
  says "does not contain the audit log's file: PermissionError: no"
  cluster restore ../backup.tar.gz --yes
  exits 0
  not_called "--entrypoint python3"
}

@test "restore: a changed audit log is refused" {
  engine audit '"{\"seq\":1}\n"'
  saved
  mkdir ../parts
  tar -C ../parts -xzf ../backup.tar.gz
  tar -C ../parts -czf ../less.tar.gz manifest.json dump.rdb
  printf 'x\n' >../parts/audit.jsonl
  tar -C ../parts -czf ../changed.tar.gz manifest.json dump.rdb audit.jsonl
  for file in less changed; do
    cluster restore ../$file.tar.gz --yes
    exits 1
    says "audit.jsonl is missing or its checksum differs"
  done
  changed_nothing
}
