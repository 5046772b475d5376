#!/usr/bin/env bash
# Is it slower than it was? Runs the micro-benchmarks of a commit and of the working tree (or of another commit) in
# turn and ends with 1 if any has become slower by more than the noise.
# scripts/bench.sh [flags] COMMIT [OTHER]
#   --only TARGET     one of the *_bench targets (again for more); without it all that both have
#   --filter REGEX, --rounds N, --min-time S, --threshold PERCENT: see bench/compare/builds.py
# Commits are built in git worktrees in build/bench, where those of the last run stay.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { sed -n '4,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
commits=() only=() flags=()
while [ $# -gt 0 ]; do
  case $1 in
    --only | --filter | --rounds | --min-time | --threshold)
      [ $# -ge 2 ] || usage
      if [ "$1" = --only ]; then only+=("$2"); else flags+=("$1" "$2"); fi
      shift 2 ;;
    -*) usage ;;
    *) commits+=("$1"); shift ;;
  esac
done
[ ${#commits[@]} -eq 1 ] || [ ${#commits[@]} -eq 2 ] || usage

# bench_targets TREE: the names in its CMakeLists.txt files.
bench_targets() { grep -rhoE --include=CMakeLists.txt '^baton_bench\(\w+' "$1/src" | sed 's/.*(//' | sort; }

# tree_of COMMIT: its worktree, made if need be.
tree_of() {
  local id tree
  id=$(git -C "$root" rev-parse --verify --quiet "$1^{commit}") || die "$1 is no commit here"
  tree=$build_dir/bench/${id:0:12}
  [ -e "$tree/CMakeLists.txt" ] || git -C "$root" worktree add -f -q --detach "$tree" "$id" >&2 ||
    die "git can't check out $1 in $tree"
  printf '%s\n' "$tree"
}

mkdir -p "$build_dir/bench"
trees=()
for commit in "${commits[@]}"; do
  tree=$(tree_of "$commit") || exit 1
  trees+=("$tree")
done
if [ ${#trees[@]} -eq 1 ]; then trees+=("$root"); fi
# Each takes some hundred MB: those of other commits go.
for tree in "$build_dir"/bench/*/; do
  tree=${tree%/}
  [[ " ${trees[*]} " == *" $tree "* ]] || git -C "$root" worktree remove --force "$tree" || rm -rf "$tree"
done

mapfile -t targets < <(comm -12 <(bench_targets "${trees[0]}") <(bench_targets "${trees[1]}"))
if [ ${#only[@]} -gt 0 ]; then
  for target in "${only[@]}"; do
    [[ " ${targets[*]} " == *" $target "* ]] || die "$target is not in both; these are: ${targets[*]}"
  done
  targets=("${only[@]}")
fi

install "${build_packages[@]}" "${test_packages[@]}"
folders=()
for tree in "${trees[@]}"; do
  if [ "$tree" = "$root" ]; then
    say "building the working tree"
    build release tests "${targets[@]}"
    folders+=("$build_dir/release")
  else
    say "building $(git -C "$tree" log -1 --format='%h %s')"
    # The same paths from the top as in any clone, so that the compiler cache knows its files.
    (root=$tree build_dir=$tree/build CCACHE_BASEDIR=$tree; build release tests "${targets[@]}")
    folders+=("$tree/build/release")
  fi
done
say "${commits[0]} (base) and ${commits[1]:-the working tree} in turn"
exec python3 "$root/bench/compare/builds.py" "${folders[@]}" "${targets[@]}" ${flags[@]+"${flags[@]}"}
