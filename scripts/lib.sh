# Shared by the scripts of this folder: packages, build, messages. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=${BATON_BUILD_DIR:-$root/build}
export BATON_CACHE=${BATON_CACHE:-${HOME:-/root}/.cache/baton}
export CCACHE_DIR=${CCACHE_DIR:-${HOME:-/root}/.cache/ccache}
# The same file compiled in another clone is a hit.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# What it takes to build and run; the tests want a little more.
build_packages=(g++ cmake ninja-build ccache pkg-config git ca-certificates python3 python3-pip
  libdnnl-dev libboost1.81-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libcli11-dev
  prometheus-cpp-dev libxxhash-dev libpcre2-dev libhwloc-dev libexpected-dev zlib1g-dev)
test_packages=(libgtest-dev libbenchmark-dev python3-venv curl procps)

# install PACKAGE…: installs what is missing, and says nothing when nothing is.
install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${#missing[@]} Debian packages"
  command -v apt-get >/dev/null || die "no apt-get here: install the equivalents of ${missing[*]} yourself"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "packages are missing (${missing[*]}): run this as root, or install sudo"
    sudo=(sudo)
  fi
  local log
  log=$(mktemp)
  if ! { "${sudo[@]}" apt-get update -qq &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    die "apt-get could not install ${missing[*]} (no network, or no space?); its log is $log"
  fi
  rm -f "$log"
}

# build PRESET tests|no-tests TARGET…: configures if need be, builds with all cores. Progress goes to stderr.
# A build that has the tests keeps them.
build() {
  local preset=$1 tests=$2 targets=() target dir=$build_dir/$1
  shift 2
  for target in "$@"; do targets+=(--target "$target"); done
  mkdir -p "$build_dir" || die "can't create $build_dir: set BATON_BUILD_DIR to a folder that can be written"
  local configured=no
  if [ -e "$dir/build.ninja" ]; then
    configured=no-tests
    grep -q '^BATON_BUILD_TESTS:BOOL=ON' "$dir/CMakeCache.txt" && configured=tests
  fi
  if [ $configured = no ]; then
    local free_mb
    free_mb=$(df -Pm "$build_dir" | awk 'NR==2 {print $4}')
    [ "$free_mb" -ge 1500 ] ||
      die "$build_dir has $free_mb MB free, the build wants 1500: set BATON_BUILD_DIR to another disk"
  fi
  if [ $configured = no ] || { [ $configured = no-tests ] && [ "$tests" = tests ]; }; then
    local on=OFF
    [ "$tests" = tests ] && on=ON
    (cd "$root" && cmake --preset "$preset" -B "$dir" -DBATON_BUILD_TESTS=$on) >"$build_dir/configure.log" 2>&1 ||
      { tail -n 15 "$build_dir/configure.log" >&2; die "cmake can't configure $preset"; }
  fi
  NINJA_STATUS='[%f/%t] ' cmake --build "$dir" "${targets[@]}" >&2 ||
    die "the $preset build failed (see above)"
}
