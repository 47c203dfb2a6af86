#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU per request of Sluice and of nginx, in front of the same backend, in one run: compare.py SLUICE [--rounds N].

Proxies run one at a time on core 0, each with one worker; the backend (nginx as well) and the generator run on core 1. The
order is reversed every round, and only ratios within a round are compared, because a machine drifts. A round in which others
took more than a tenth of core 0 is thrown away. Needs nginx, h2load (nghttp2-client) and taskset; writes every row it measured.
"""

import argparse
import csv
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")
FOREIGN = 0.10  # share of core 0 that others may take
SCENARIOS = {"POST 2 KB JSON": 2 << 10, "POST 64 KB JSON": 64 << 10}

BACKEND = """
worker_processes 1; daemon off; pid {dir}/backend.pid; error_log {dir}/backend.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {dir}/backend-body; client_max_body_size 1m; client_body_buffer_size 128k;
  keepalive_requests 1000000000;
  server {{
    listen 127.0.0.1:{backend} backlog=1024;
    default_type application/json;
    location / {{ return 200 '{answer}'; }}
  }}
}}
"""

NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {dir}/nginx-body; client_max_body_size 1m; client_body_buffer_size 128k;
  keepalive_requests 1000000000;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""

SLUICE = """
listen: 127.0.0.1:{port}
admin: 127.0.0.1:{admin}
threads: 1
models:
  - name: bench
    url: http://127.0.0.1:{backend}
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tree(pid):
    """A process and all below it."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        children = [int(child) for child in file.read().split()]
    return [pid] + [below for child in children for below in tree(child)]


def cpu_ticks(pid):
    """User and system time of a tree, of its processes that live."""
    total = 0
    for each in tree(pid):
        with open(f"/proc/{each}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total


def core_ticks(core):
    """All and busy time of a core."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = next(line.split()[1:] for line in file if line.startswith(f"cpu{core} "))
    times = [int(field) for field in fields[:8]]
    return sum(times), sum(times) - times[3] - times[4]


class Proxy:
    """One contender, started anew for its turn so that the other one cannot disturb it."""

    def __init__(self, name, command, port, log):
        self.name, self.port = name, port
        self.process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=log, stderr=log)
        wait_for(port, self.process, log)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def wait_for(port, process, log):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            sys.exit(f"a server ended at once with {process.returncode}:\n{log.read()[-4000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def load(port, body, seconds, connections):
    """Sends requests for so long; how many were answered with 200, all others being an error of the measurement."""
    command = ["taskset", "-c", "1", "h2load", "--h1", "-t1", f"-c{connections}", f"-D{seconds}", f"-d{body}"]
    command += ["-Hcontent-type: application/json", f"http://127.0.0.1:{port}/v1/completions"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True).stdout
    good = int(re.search(r"status codes: (\d+) 2xx", said).group(1))
    bad = sum(int(count) for count in re.findall(r"(\d+) (?:3xx|4xx|5xx)", said))
    if good == 0 or bad > 0:
        sys.exit(f"requests failed:\n{said}")
    return good


def measure(proxy, body, options):
    """CPU microseconds per request, and the share of core 0 that others took."""
    load(proxy.port, body, 1, options.connections)
    cpu, (all_before, busy_before) = cpu_ticks(proxy.process.pid), core_ticks(0)
    requests = load(proxy.port, body, options.seconds, options.connections)
    own, (all_after, busy_after) = cpu_ticks(proxy.process.pid) - cpu, core_ticks(0)
    foreign = (busy_after - busy_before - own) / max(1, all_after - all_before)
    return own / TICK * 1e6 / requests, foreign, requests


def interval(values, rounds=10_000):
    """Bootstrap 95 % interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def run(options, directory, rows):
    log = open(os.path.join(directory, "log"), "w+", encoding="utf-8")
    ports = {"dir": directory, "backend": free_port(), "port": free_port(), "admin": free_port(), "answer": "x" * 1024}
    paths = {}
    for name, text in (("backend", BACKEND), ("nginx", NGINX), ("sluice", SLUICE)):
        paths[name] = os.path.join(directory, name)
        with open(paths[name], "w", encoding="utf-8") as file:
            file.write(text.format(**ports))
    commands = {"nginx": ["nginx", "-c", paths["nginx"]], "sluice": [options.sluice, "run", "--config", paths["sluice"]]}
    backend = subprocess.Popen(["taskset", "-c", "1", "nginx", "-c", paths["backend"]], stdout=log, stderr=log)
    try:
        wait_for(ports["backend"], backend, log)
        for scenario, size in SCENARIOS.items():
            body = os.path.join(directory, "body")
            head = '{"model": "bench", "max_tokens": 16, "prompt": "'
            with open(body, "w", encoding="utf-8") as file:
                file.write(head + "x" * (size - len(head) - 2) + '"}')
            for number in range(options.rounds):
                order = list(commands) if number % 2 == 0 else list(reversed(commands))
                for name in order:
                    proxy = Proxy(name, commands[name], ports["port"], log)
                    try:
                        micros, foreign, requests = measure(proxy, body, options)
                    finally:
                        proxy.stop()
                    rows.append((scenario, number, name, requests, round(micros, 2), round(foreign, 3)))
                    print(f"  {scenario}, round {number}, {name}: {micros:.1f} us, others {foreign:.0%}", flush=True)
    finally:
        backend.terminate()
        backend.wait(30)


def report(rows):
    for scenario in SCENARIOS:
        rounds = {}
        for _, number, name, _, micros, foreign in (row for row in rows if row[0] == scenario):
            rounds.setdefault(number, {})[name] = (micros, foreign)
        quiet = [r for r in rounds.values() if len(r) == 2 and all(foreign <= FOREIGN for _, foreign in r.values())]
        print(f"{scenario}: {len(quiet)} of {len(rounds)} rounds were quiet")
        if len(quiet) < 5:
            print("  too few for a result")
            continue
        ratios = [r["sluice"][0] / r["nginx"][0] for r in quiet]
        low, high = interval(ratios)
        for name in ("nginx", "sluice"):
            print(f"  {name}: {statistics.median(r[name][0] for r in quiet):.1f} us of CPU per request (median)")
        print(f"  sluice / nginx: {statistics.median(ratios):.2f} (95 % interval {low:.2f} to {high:.2f})")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sluice", help="a release build")
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--seconds", type=int, default=4, help="of one measurement")
    options.add_argument("--connections", type=int, default=16)
    options.add_argument("--rows", default="target/loadtests/compare.csv", help="where every row goes")
    options = options.parse_args()
    missing = [tool for tool in ("nginx", "h2load", "taskset") if not shutil.which(tool)]
    if missing or os.cpu_count() < 2:
        sys.exit(f"needs two cores and {', '.join(missing)}: apt-get install nginx-light nghttp2-client util-linux")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        run(options, directory, rows)
    os.makedirs(os.path.dirname(options.rows) or ".", exist_ok=True)
    with open(options.rows, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("scenario", "round", "proxy", "requests", "cpu_us", "foreign"), *rows])
    report(rows)


if __name__ == "__main__":
    main()
