#!/usr/bin/env bash
# Installs the real agents that the end-to-end tests run, by name, from npm.
# They go into $CAST_E2E (default: ~/.cache/cast-e2e), and are installed once.
set -euo pipefail
dir=${CAST_E2E:-$HOME/.cache/cast-e2e}
packages=(
  @agentclientprotocol/sdk@1.9.0       # its example agent; later versions leave it out
  @earendil-works/pi-coding-agent@1.6.0
  node@22                              # pi does not run on node 20
)
stamp="$dir/installed: ${packages[*]//\//_}"
if [ ! -e "$stamp" ]; then
  mkdir -p "$dir"
  npm install --prefix "$dir" --no-audit --no-fund --loglevel=error "${packages[@]}"
  : >"$stamp"
fi
echo "$dir"
