#!/usr/bin/env bash
# The whole matrix: castctl beside other process managers and beside the floor of
# this machine, into BENCH.md. It takes about an hour, wants root, a quiet machine
# and cgroup v1 `cpuacct`, and installs what it needs.
#
#   ADAPTERS='castctl runit' MEASURES='crash:100 stop:100' bench/run.sh
set -euo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" != 0 ] || [ ! -w /sys/fs/cgroup/cpuacct ]; then
  echo "bench: it needs root and a writable cgroup v1 cpuacct, to count what each manager uses" >&2
  exit 1
fi
PEERS=${PEERS:-$HOME/.cache/cast-bench}
ADAPTERS=${ADAPTERS:-castctl supervisord pm2 runit s6 monit}
MEASURES=${MEASURES:-crash:100 crashloop:100 start:100 single:100 status:100 status:500 mem:100 log:1 logl:1 stop:100 idle:100 idlelog:100 tree:5 killmgr:10 killhelper:10 double:10}
OUT=${PB_OUT:-results/raw.jsonl}
export PB_OUT=$OUT

missing=()
for pair in supervisord:supervisor runsvdir:runit s6-svscan:s6 monit:monit gcc:gcc npm:npm python3:python3; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -qq
  # Policy: nothing that is installed here may start as a service.
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
  DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends "${missing[@]}"
  rm -f /usr/sbin/policy-rc.d
fi
[ -d "$PEERS/npm/node_modules/pm2" ] || npm install --silent --prefix "$PEERS/npm" pm2@7
gcc -O2 -static -s -o bin/child child.c
floors/build.sh
trap 'python3 cleanup.py' EXIT

for m in $MEASURES; do
  measure=${m%%:*} n=${m##*:}
  for a in $ADAPTERS; do
    case $measure:$a in
      killhelper:supervisord | killhelper:pm2 | killhelper:monit) continue ;; # they have none
      log*:monit) continue ;;                                                # it captures no output
      stop:monit | tree:monit | kill*:monit | double:monit) continue ;;      # it stops one after another, for minutes
    esac
    python3 run.py "$a" "$measure" "$n" >/dev/null || echo "bench: $a $m failed" >&2
  done
  echo "measured $m"
done
ROUNDS=1 floors/run_floors.sh >results/floors.txt 2>/dev/null
python3 report.py "$OUT" results/floors.txt >../BENCH.md
echo "written: BENCH.md"
