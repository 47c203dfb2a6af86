#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target for SECONDS each (default 10), starting from the corpus in the tree, which stays as it is.
# Without cargo-fuzz the targets are only compiled; with CI=true that is an error.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-10}
targets="request_head response_head chunks model_id"

if ! cargo fuzz --version >/dev/null 2>&1; then
    if [ "${CI:-}" = true ]; then
        echo "fuzz: cargo-fuzz is not installed; cargo install cargo-fuzz --locked" >&2
        exit 1
    fi
    cargo check --quiet --locked
    echo "fuzz: SKIPPED, the targets compile but cargo-fuzz is not installed (cargo install cargo-fuzz --locked)"
    exit 0
fi

found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
cargo fuzz build -s none
for target in $targets; do
    mkdir "$found/$target"
    words=http.dict
    [ "$target" = model_id ] && words=json.dict
    # No sanitizer: the code is safe Rust, and so a stable compiler will do.
    if ! cargo fuzz run -s none "$target" "$found/$target" "corpus/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=10 -dict="$words" -verbosity=0 >"$found/log" 2>&1; then
        cat "$found/log" >&2
        echo "fuzz: $target FAILED; the input is in gateway/fuzz/artifacts/$target" >&2
        exit 1
    fi
    echo "fuzz: $target ran for $seconds s, $(find "$found/$target" -type f | wc -l) new inputs, no fault"
done
