#!/usr/bin/env bash
# From a fresh clone to a server: installs packages, builds, fetches the default model once, serves.
# All arguments go to `baton serve`: scripts/serve.sh [MODEL] [flags]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install "${build_packages[@]}"
build release no-tests baton
exec "$build_dir/release/src/cli/baton" serve "$@"
