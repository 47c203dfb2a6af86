#!/usr/bin/env bash
# Builds Sluice and starts it with deploy/local/NAME.yaml: run.sh demo | run.sh llama. Ctrl-C stops it and what it started.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${1:?say which: demo or llama}
config=deploy/local/$name.yaml

command -v cargo > /dev/null || { echo "cargo is missing: install Rust with rustup first" >&2; exit 1; }
[ "$name" != llama ] || deploy/local/llama_wheels.sh

echo "building Sluice; the first time this takes some minutes"
cargo build --package sluice-gateway --bin sluice
SLUICE_BIN=$(realpath "${CARGO_TARGET_DIR:-target}/debug/sluice")
export SLUICE_BIN

case $name in
  demo) cat <<'TEXT'

Two demo models, both at zero: the first request starts a process, and 30 s after the last one it is gone.
Beyond what Sluice suggests below, try:

    curl -N http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
      -d '{"model": "chat-demo", "stream": true, "messages": [{"role": "user", "content": "Word by word, please"}]}'
    curl http://127.0.0.1:8080/v1/embeddings -H 'content-type: application/json' \
      -d '{"model": "embed-demo", "input": "a few words"}'

TEXT
    ;;
  llama) cat <<'TEXT'

One model, gemma, at zero: Gemma 3 270M on llama.cpp. Google's Gemma terms of use apply to it. It is a base model: it
continues the text it is given. Beyond what Sluice suggests below, try:

    curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
      -d '{"model": "gemma", "temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": "One, two, three,"}]}'
    curl -N http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
      -d '{"model": "gemma", "max_tokens": 64, "stream": true, "messages": [{"role": "user", "content": "Once upon a time"}]}'

TEXT
    ;;
esac
exec "$SLUICE_BIN" run --config "$config"
