#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions per request, by callgrind: instructions.py SLUICE [--record | --gate].

The difference between a run of 4,000 and one of 1,000 requests, so that start and stop cancel out; the median of three. Counts hardly
depend on what else the machine does, so they show a regression that times cannot. `--record` appends the figures with the commit to
instructions.csv, `--gate` compares with its last line and fails above +3 %. Needs valgrind, nginx, h2load.
"""

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from price import BACKEND, SLUICE, Bench, Server

HISTORY = Path(__file__).with_name("instructions.csv")
LIMIT = 1.03
FEW, MANY = 1_000, 4_000


class Counter(Bench):
    """Sluice under callgrind, in front of the same backend as in price.py."""

    def contenders(self):
        return {"sluice": [self.options.sluice, "run", "--config", self.write("sluice", SLUICE)]}

    def count(self, requests, flags, profile=None):
        """Instructions of a whole run that answers so many requests."""
        out = Path(profile) if profile else self.dir / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *self.commands["sluice"]]
        server = Server(0, command, self.ports["sluice"], self.log)
        load = ["taskset", "-c", "1", "h2load", "-t1", f"-n{requests}", "-c4", *flags]
        said = subprocess.run(load, capture_output=True, text=True, timeout=300, check=True).stdout
        good = int(re.search(r"status codes: (\d+) 2xx", said).group(1))
        server.stop()
        if good != requests:
            sys.exit(f"{good} of {requests} requests were answered:\n{said}")
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE).group(1))


def scenarios(bench):
    url = f"http://127.0.0.1:{bench.ports['sluice']}/v1/completions"
    body = bench.dir / "body"
    head = '{"model": "bench", "max_tokens": 16, "prompt": "'
    body.write_text(head + "x" * (2048 - len(head) - 2) + '"}')
    yield "get", ["--h1", "-Hx-sluice-model: bench", url]
    yield "post_2k", ["--h1", f"-d{body}", "-Hcontent-type: application/json", url]
    yield "h2c", ["-m10", "-Hx-sluice-model: bench", url]


def measure(options):
    figures = {}
    with tempfile.TemporaryDirectory(prefix="sluice-count-") as directory:
        bench = Counter(options, directory)
        backend = Server(1, bench.nginx("backend", BACKEND), bench.ports["backend"], bench.log)
        try:
            for name, flags in scenarios(bench):
                runs = [bench.count(MANY, flags, options.profile) - bench.count(FEW, flags) for _ in range(options.repeats)]
                figures[name] = round(statistics.median(runs) / (MANY - FEW))
                print(f"  {name}: {figures[name]} instructions a request", file=sys.stderr, flush=True)
        finally:
            backend.stop()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", help="a release build")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", help="keep callgrind's file of the last longer run here, for callgrind_annotate")
    options = parser.parse_args()
    figures = measure(options)
    history = list(csv.DictReader(HISTORY.open())) if HISTORY.exists() else []
    if options.record:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        rows = [*history, {"commit": commit, **figures}]
        with HISTORY.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["commit", *figures], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if not history:
        return
    worse = []
    for name, now in figures.items():
        ratio = now / int(history[-1][name])
        print(f"{name}: {now} instructions a request, {ratio - 1:+.1%} since {history[-1]['commit']}")
        if ratio > LIMIT:
            worse.append(name)
    if options.gate and worse:
        sys.exit(f"more than {LIMIT - 1:.0%} above the last record: {', '.join(worse)}")


if __name__ == "__main__":
    os.environ.setdefault("RUST_BACKTRACE", "0")
    main()
