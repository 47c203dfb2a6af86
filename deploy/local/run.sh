#!/usr/bin/env bash
# Builds Sluice and starts it with deploy/local/NAME.yaml: run.sh demo | run.sh llama. Ctrl-C stops it and what it started.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${1:?say which: demo or llama}
config=deploy/local/$name.yaml

command -v cargo > /dev/null || { echo "cargo is missing: install Rust with rustup first" >&2; exit 1; }
[ "$name" != llama ] || deploy/local/llama_wheels.sh

echo "building (a first build takes some minutes)"
cargo build --package sluice-gateway --bin sluice
SLUICE_BIN=$(realpath "${CARGO_TARGET_DIR:-target}/debug/sluice")
export SLUICE_BIN

cat <<TEXT

Starting: $SLUICE_BIN run --config $config
  requests  http://127.0.0.1:8080    health, metrics and admin API  http://127.0.0.1:8081

TEXT
case $name in
  demo) cat <<'TEXT'
Two demo models, both at zero. In a second terminal try:

  curl http://127.0.0.1:8080/v1/models                  # lists both, starts neither

  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
    -d '{"model": "chat-demo", "messages": [{"role": "user", "content": "Who answers?"}]}'

  curl -N http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
    -d '{"model": "chat-demo", "stream": true, "messages": [{"role": "user", "content": "Slowly, please"}]}'

  curl http://127.0.0.1:8080/v1/embeddings -H 'content-type: application/json' \
    -d '{"model": "embed-demo", "input": "a few words"}'

The first request starts a process and waits for it; 30 s after the last one the process is gone.
TEXT
    ;;
  llama) cat <<'TEXT'
One model, gemma: Gemma 3 270M, a base model, so it continues text. Google's Gemma terms of use apply to it.
In a second terminal try:

  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
    -d '{"model": "gemma", "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": "One, two, three,"}]}'

  curl -N http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
    -d '{"model": "gemma", "max_tokens": 64, "stream": true, "messages": [{"role": "user", "content": "Once upon a time"}]}'

The first request starts llama.cpp and waits for it; a minute after the last one the process is gone.
TEXT
    ;;
esac
echo
exec "$SLUICE_BIN" run --config "$config"
