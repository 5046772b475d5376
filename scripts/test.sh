#!/usr/bin/env bash
# Installs, builds and runs every test: unit tests and micro-benchmarks (release), unit tests again under
# ASan+UBSan, the threaded ones under TSan, then real processes with the real models.
# scripts/test.sh [stage…]: only these of: release asan tsan e2e
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(release asan tsan e2e)
passed=0 failed=0 skipped=0
summary=()

# count NAME LOG: adds the figures of a ctest or pytest log to the totals.
count() {
  local log=$1 p=0 f=0 s=0
  if grep -q 'tests passed,' "$log"; then
    f=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of.*/\1/p' "$log" | tail -1)
    p=$(($(sed -n 's/.*tests failed out of \([0-9]*\).*/\1/p' "$log" | tail -1) - f))
  else
    local last
    last=$(grep -E '(passed|failed|error).* in [0-9.]+s' "$log" | tail -1)
    p=$(grep -oE '[0-9]+ passed' <<<"$last" | grep -oE '[0-9]+' || echo 0)
    f=$(($(grep -oE '[0-9]+ failed' <<<"$last" | grep -oE '[0-9]+' || echo 0) +
      $(grep -oE '[0-9]+ error' <<<"$last" | grep -oE '[0-9]+' || echo 0)))
    s=$(grep -oE '[0-9]+ skipped' <<<"$last" | grep -oE '[0-9]+' || echo 0)
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# run_ctest PRESET CTEST-ARG…
run_ctest() {
  local preset=$1 log=$build_dir/$1.log
  shift
  (cd "$build_dir/$preset" && ctest --output-on-failure --no-tests=error -j "$(nproc)" "$@") 2>&1 | tee "$log"
  local status=${PIPESTATUS[0]}
  count "$log"
  return "$status"
}

# The long goldens run through the API in the e2e stage.
stage_release() {
  build release tests
  local model
  for model in smollm2-135m gemma3-270m; do
    "$build_dir/release/src/cli/baton" pull $model || say "skipped: tests of $model in process (it can't be fetched)"
  done
  BATON_GOLDEN_MAX_TOKENS=${BATON_GOLDEN_MAX_TOKENS:-30} run_ctest release
}
# Sanitizers find memory errors, not wrong numbers: the long golden runs stay with the release build.
stage_asan() { build asan tests && run_ctest asan -LE 'bench|real-model'; }
stage_tsan() { build tsan tests threaded_tests && run_ctest tsan -L threaded; }
stage_e2e() {
  build release tests baton
  local venv=$BATON_CACHE/venv-tests
  if ! "$venv/bin/python" -c 'import openai, pytest' 2>/dev/null; then
    say "preparing a Python environment with the openai package in $venv"
    python3 -m venv "$venv" && "$venv/bin/pip" install -q -r "$root/tests/e2e/requirements.txt" ||
      die "pip could not install tests/e2e/requirements.txt (no network?)"
  fi
  BATON=$build_dir/release/src/cli/baton "$venv/bin/python" -m pytest -q -ra --durations=10 \
    -p no:cacheprovider "$root/tests/e2e" 2>&1 | tee "$build_dir/e2e.log"
  local status=${PIPESTATUS[0]}
  count "$build_dir/e2e.log"
  return "$status"
}

start=$SECONDS
say "packages"
install "${build_packages[@]}" "${test_packages[@]}"
summary+=("packages $((SECONDS - start)) s")
for stage in "${stages[@]}"; do
  stage_start=$SECONDS
  say "stage $stage"
  verdict=ok
  # In a subshell-free call `die` ends the script: a build that fails is the end anyway.
  "stage_$stage" || { verdict=FAILED; [ "$failed" -gt 0 ] || failed=1; }
  summary+=("$stage $((SECONDS - stage_start)) s $verdict")
done
say "$(printf '%s; ' "${summary[@]}")in all $((SECONDS - start)) s"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
