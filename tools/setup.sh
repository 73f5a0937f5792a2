#!/usr/bin/env bash
# setup.sh: make a fresh Debian or Ubuntu machine able to run a make target.
#
#   tools/setup.sh build|bench|peers|profile|test|fuzz|soak|outside
#
# Looks for what the target needs (commands and headers, from any source). If nothing
# is missing, prints nothing and exits 0. If something is missing and we are root,
# installs it with apt-get. If we are not root, prints the one command that does, and
# exits 1 (0 if only optional things are missing: their tests are skipped by name).
# Packages that the distribution does not have are named: optional ones are left out,
# required ones end the script. If the distribution's CMake is too old, one is fetched
# into build/tools, where the Makefile and tools/check.py find it.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/build/tools/bin:$PATH

# Group | required (req), optional (opt), or required where CI is set (ci) | Debian
# package | how to check that it exists: a command, a file pattern (starts with /) or a
# Python module (py:NAME). One|other: packages of which the distribution has one.
# prog: programs that both the tests and the benchmarks run; other: the checks of test/outside.
needs='
build req gcc                gcc
build req g++                g++
build req make               make
build req cmake              cmake
build req ninja-build        ninja
build req python3            python3
build req git                git
build req libc6-dev          /usr/include/stdlib.h
test  req libcmocka-dev      /usr/include/cmocka.h
bench req python3-venv       py:ensurepip
bench opt valgrind           valgrind
peers opt cargo              cargo
profile req valgrind         valgrind
profile req binutils         addr2line
profile opt linux-perf|linux-tools-generic perf
peers opt rustc              rustc
peers opt lua5.4             lua5.4
peers opt z3                 z3
peers opt ghostscript        gs
peers opt memcached          memcached
peers opt nginx              /usr/sbin/nginx
prog  opt redis-server       redis-server
prog  opt redis-tools        redis-benchmark
prog  opt sqlite3            sqlite3
prog  opt perl               perl
prog  opt nodejs             node
test  opt php-cli            php
prog  opt default-jdk-headless javac
test  ci  clang-19           clang-19
test  ci  libclang-rt-19-dev /usr/lib/llvm-19/lib/clang/19/lib/*/libclang_rt.asan*.a
test  req libgtest-dev       /usr/include/gtest/gtest.h
test  req valgrind           valgrind
test  req binutils           objdump
test  opt spin               spin
test  opt gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
test  opt g++-aarch64-linux-gnu aarch64-linux-gnu-g++
test  opt libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdlib.h
test  opt qemu-user          qemu-aarch64
test  opt musl-tools         musl-gcc
test  opt gdb                gdb
test  opt xz-utils           xz
test  opt zstd               zstd
test  opt clang-format-19    clang-format-19
test  opt libpython3-testsuite|libpython3.10-testsuite|libpython3.11-testsuite|libpython3.12-testsuite|libpython3.13-testsuite py:test.test_json
fuzz  req clang-19           clang-19
fuzz  req libclang-rt-19-dev /usr/lib/llvm-19/lib/clang/19/lib/*/libclang_rt.fuzzer-*.a
fuzz  opt afl++              afl-clang-fast
other opt glibc-source       /usr/src/glibc/glibc-*.tar.*
other opt stress-ng          stress-ng
other opt libglib2.0-tests   /usr/share/installed-tests/glib/hash.test
other opt python3-numpy      /usr/lib/python3/dist-packages/numpy/*core/tests/test_umath.py
other opt python3-pytest     /usr/lib/python3/dist-packages/pytest/__init__.py
other opt python3-hypothesis /usr/lib/python3/dist-packages/hypothesis/__init__.py
other opt libpython3-testsuite|libpython3.10-testsuite|libpython3.11-testsuite|libpython3.12-testsuite|libpython3.13-testsuite py:test.test_json
other opt rustc              rustc
other opt golang-go          go
'

# The groups of rows that each target needs.
case "${1:-}" in
build) groups='build' ;;
bench) groups='build bench' ;;
peers) groups='build bench peers prog' ;;
profile) groups='build profile' ;;
test) groups='build test prog other' ;;
fuzz) groups='build fuzz' ;;
soak) groups='build test prog bench' ;;
outside) groups='build other' ;;
*)
  echo "usage: tools/setup.sh build|bench|peers|profile|test|fuzz|soak|outside" >&2
  exit 2
  ;;
esac
target=$1

say() { echo "setup: $*" >&2; }

if [[ $target == test && $PWD =~ [[:blank:]:] ]]; then
  say "the tests preload libraries, and LD_PRELOAD ends a name at a blank or a colon: please move $PWD"
  exit 1
fi

if [[ $target == test ]] && script=$(mktemp "${TMPDIR:-/tmp}/hakmem-XXXXXX" 2>/dev/null); then
  printf '#!/bin/sh\n' >"$script"
  chmod 700 "$script"
  if ! "$script" 2>/dev/null; then
    rm -f "$script"
    say "the tests run programs in ${TMPDIR:-/tmp}, where none can be run (noexec?): please set TMPDIR to another folder"
    exit 1
  fi
  rm -f "$script"
fi

present() {
  case "$1" in
  py:*) python3 -c "import ${1#py:}" 2>/dev/null ;;
  /*) compgen -G "$1" >/dev/null ;;
  *) command -v "$1" >/dev/null ;;
  esac
}

# Whether the first number in the text is a sufficient CMake version.
is_new_enough() {
  [[ $1 =~ ([0-9]+)\.([0-9]+) ]] || return 1
  ((BASH_REMATCH[1] > 3 || (BASH_REMATCH[1] == 3 && BASH_REMATCH[2] >= 25)))
}
cmake_is_new_enough() { is_new_enough "$(cmake --version 2>/dev/null)"; }
# Whether the distribution has a CMake that is too old.
old_cmake_offered() {
  local policy
  policy=$(LC_ALL=C apt-cache policy cmake 2>/dev/null) || return 1
  [[ $policy =~ Candidate:\ ([0-9]+\.[0-9]+) ]] && ! is_new_enough "${BASH_REMATCH[1]}"
}

fetch_cmake() {
  say "CMake 3.25 or later goes into build/tools, as the one of this distribution is older"
  rm -rf build/tools
  # Links, because with the venv in PATH its Python would lack the distribution's modules.
  python3 -m venv build/tools/venv &&
    build/tools/venv/bin/python -m pip install --quiet --disable-pip-version-check 'cmake>=3.25,<4' &&
    mkdir build/tools/bin &&
    (cd build/tools/bin && ln -s ../venv/lib/python3*/site-packages/cmake/data/bin/{cmake,ctest} .) &&
    hash -r && cmake_is_new_enough || {
    rm -rf build/tools
    say "no CMake could be fetched (no network?); please install CMake 3.25 or later"
    exit 1
  }
  # Under sudo or in a container, the tree may belong to another user.
  if ((EUID == 0)); then chown -Rh --reference=tools build 2>/dev/null || :; fi
}
# The last step: everything that was missing is now present.
finish() {
  if [[ $fetch ]]; then fetch_cmake; fi
  exit 0
}

# The first of the alternatives that the distribution has, or else the first one.
offered() {
  local package
  for package in ${1//|/ }; do
    if [[ $package == "$1" ]] || has_candidate "$package"; then
      echo "$package"
      return
    fi
  done
  echo "${1%%|*}"
}

has_candidate() {
  local policy
  policy=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null) || return 1
  [[ $policy =~ Candidate:\ [^\(] ]]
}

# An installed package has a candidate even without package lists.
have_lists() { [[ $(LC_ALL=C apt-cache policy 2>/dev/null) == *" Packages"* ]]; }

# Sets required and optional to the packages that are missing, fetch if a CMake is to be fetched.
look() {
  required=() optional=() fetch=
  local group kind package check
  while read -r group kind package check; do
    [[ " $groups " == *" $group "* ]] || continue
    present "$check" && continue
    if [[ $package == cmake ]] && old_cmake_offered; then continue; fi
    package=$(offered "$package")
    [[ " ${required[*]-} ${optional[*]-} " == *" $package "* ]] && continue
    [[ $kind == ci && ${CI-} ]] && kind=req
    if [[ $kind == req ]]; then required+=("$package"); else optional+=("$package"); fi
  done <<<"$needs"
  if cmake_is_new_enough; then return; fi
  if old_cmake_offered; then
    fetch=1
    present py:ensurepip || required+=(python3-venv)
  elif command -v cmake >/dev/null; then
    say "cmake here is older than 3.25"
    required+=(cmake)
  fi
}

# Moves optional packages that the distribution lacks to absent; ends if it lacks a required one.
drop_unavailable() {
  local package kept=()
  absent=()
  for package in ${required[@]+"${required[@]}"}; do
    has_candidate "$package" || absent+=("$package")
  done
  if ((${#absent[@]})); then
    say "make $target needs ${absent[*]}, and this distribution has no such package"
    exit 1
  fi
  for package in ${optional[@]+"${optional[@]}"}; do
    if has_candidate "$package"; then kept+=("$package"); else absent+=("$package"); fi
  done
  optional=(${kept[@]+"${kept[@]}"})
}

as_root() {
  export DEBIAN_FRONTEND=noninteractive APT_LISTCHANGES_FRONTEND=none NEEDRESTART_MODE=a
  local apt=(apt-get -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold)
  # Stale package lists are as bad as none: their packages may no longer exist.
  say "apt-get update"
  "${apt[@]}" -qq update </dev/null >&2 || say "apt-get update failed; trying with the lists there are"
  look # again: of alternatives it takes one that the lists have
  have_lists || return 0
  drop_unavailable
  local packages=(${required[@]+"${required[@]}"} ${optional[@]+"${optional[@]}"})
  ((${#packages[@]})) || return 0

  # Packages must not start their services: tests start their own.
  local policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  say "installing ${packages[*]}"
  if ! "${apt[@]}" -qq --no-install-recommends install "${packages[@]}" </dev/null >&2; then
    # One bad package must not keep the others away.
    local package
    for package in "${packages[@]}"; do
      "${apt[@]}" -qq -o Acquire::Retries=0 --no-install-recommends install "$package" </dev/null >&2 ||
        say "could not install $package"
    done
  fi
}

# Peers that are Debian's binaries are downloaded, not installed; that needs package lists.
if [[ $target == peers ]] && command -v apt-get >/dev/null && ! has_candidate libtbbmalloc2; then
  if ((EUID == 0)); then
    say "apt-get update"
    apt-get -qq -o DPkg::Lock::Timeout=300 update </dev/null >&2 || say "apt-get update failed; some peers may be left out"
  else
    say "without package lists (sudo apt-get update) tcmalloc, tbbmalloc and scudo are left out"
  fi
fi

look
if ((${#required[@]} + ${#optional[@]} == 0)); then finish; fi

if ! command -v apt-get >/dev/null; then
  say "no apt-get here; please install what these Debian packages hold:" \
    "${required[*]-} ${optional[*]-}"
  ((${#required[@]} == 0)) && exit 0
  exit 1
fi

lists=
if have_lists; then lists=1; fi
# If only optional packages are missing and none of them is offered, newer lists do not help.
if [[ $lists ]] && ((EUID != 0 || ${#required[@]} == 0)); then
  drop_unavailable
  if ((${#absent[@]})); then say "this distribution has no ${absent[*]} (what needs them is skipped)"; fi
  if ((${#required[@]} + ${#optional[@]} == 0)); then finish; fi
fi

if ((EUID != 0)); then
  packages=(${required[@]+"${required[@]}"} ${optional[@]+"${optional[@]}"})
  command="sudo apt-get install -y ${packages[*]}"
  # Without lists it is unknown which of these packages exist.
  if [[ ! $lists ]]; then command="sudo $(printf %q "$PWD/tools/setup.sh") $target"; fi
  if ((${#required[@]})); then
    say "make $target needs packages that are missing. Please run:"
    echo "$command"
    exit 1
  fi
  say "going on without ${optional[*]} (what needs them is skipped); to have them:"
  echo "$command"
  finish
fi

as_root
look
if ((${#required[@]})); then
  say "make $target needs ${required[*]}, which could not be installed (no network?)"
  exit 1
fi
if ((${#optional[@]})); then
  say "going on without ${optional[*]} (what needs them is skipped)"
fi
finish
