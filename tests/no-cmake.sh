#!/usr/bin/env bash
# Checks that what Sluice stands on configures and compiles without cmake: a cmake that fails and leaves a mark stands first
# in PATH. Build scripts run here as in any build; linking is what every other test does.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat > "$scratch/cmake" <<STUB
#!/bin/sh
echo "cmake \$*" >> "$scratch/called"
echo "cmake was called, and is not to be needed" >&2
exit 1
STUB
chmod +x "$scratch/cmake"

# Its own target directory: all that it holds was built with that cmake, so keeping it hides nothing.
target=${CARGO_TARGET_DIR:-target}/no-cmake
unset CMAKE
PATH="$scratch:$PATH" cargo check --quiet --package pingora-core --target-dir "$target" \
  --config 'profile.dev.package."*".opt-level=0'

if [ -e "$scratch/called" ]; then
  echo "cmake was called:" && cat "$scratch/called"
  exit 1
fi
if ! ls "$target"/debug/build | grep -q '^libz-ng-sys-'; then
  echo "libz-ng-sys was not built: this check checks nothing"
  exit 1
fi
echo "built without cmake"
