# The one entry point for people; each target is one line that calls cargo or a script.
.DEFAULT_GOAL := help
.PHONY: help run run-llama test loadtest lint fuzz deny audit bench bench-instructions bench-waiting

help:       ## Say what there is.
	@sed -n 's/^\([a-z-]*\): *## \(.*\)/  make \1	\2/p' Makefile | expand -t 20

run:        ## Start a gateway with two demo models at zero.
	@deploy/local/run.sh demo

run-llama:  ## The same with a real 270M language model on llama.cpp (downloads 250 MB once).
	@deploy/local/run.sh llama

test:       ## Run every test, and install what they need first.
	@tests/run.sh

loadtest:   ## Run one load scenario with k6: SCENARIO=burst, see loadtests/README.md.
	@cargo build --quiet --package sluice-gateway --bin sluice && loadtests/run.py "$${SCENARIO:-smoke}" --sluice "$${CARGO_TARGET_DIR:-target}/debug/sluice"

lint:       ## Check formatting and lints.
	@cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings

fuzz:       ## Fuzz the parsers for a short while.
	@gateway/fuzz/run.sh

deny:       ## Check licences, sources and banned crates of all dependencies.
	@cargo deny --log-level error check --hide-inclusion-graph bans licenses sources

audit:      ## Check dependencies for known faults (fetches the RustSec database).
	@cargo deny check --hide-inclusion-graph advisories

bench:      ## Compare CPU per request with nginx, HAProxy and bare Pingora: BENCH="--rounds 5 get".
	@cargo build --release --package sluice-gateway --bin sluice && cargo build --release --manifest-path loadtests/bare-pingora/Cargo.toml --target-dir "$${CARGO_TARGET_DIR:-target}/bare" && loadtests/price.py "$${CARGO_TARGET_DIR:-target}/release/sluice" --bare "$${CARGO_TARGET_DIR:-target}/bare/release/bare-pingora" $(BENCH)

bench-instructions: ## Compare instructions per request with the last record; fails above +3 %.
	@cargo build --release --package sluice-gateway --bin sluice && loadtests/instructions.py "$${CARGO_TARGET_DIR:-target}/release/sluice" --gate

bench-waiting: ## Measure what a wake and a parked request cost.
	@cargo build --release --package sluice-gateway --bin sluice && loadtests/waiting.py "$${CARGO_TARGET_DIR:-target}/release/sluice" $(BENCH)
