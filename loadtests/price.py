#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU per request and per streamed event of Sluice, bare Pingora, nginx and HAProxy, in one run: price.py SLUICE [--bare FILE].

Every proxy has one worker on core 0 and one turn at a time; backend and generator run on core 1. The order is reversed every
round, and only ratios within a round count, because a machine drifts. A turn in which others took more than a tenth of core 0 is
thrown away. Needs nginx, h2load (nghttp2-client), taskset; takes HAProxy and bare Pingora if they are there. Every row goes to
a file; the table at the end is Markdown.
"""

import argparse
import csv
import json
import os
import platform
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
FOREIGN = 0.10  # share of core 0 that others may take
LEAST = 5  # quiet rounds for a result

NGINX = """
worker_processes 1; daemon off; pid {dir}/{name}.pid; error_log {dir}/{name}.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {dir}/{name}-body; client_max_body_size 1m; client_body_buffer_size 128k;
  keepalive_requests 1000000000;
  {server}
}}
"""
BACKEND = """server {{ listen 127.0.0.1:{backend} backlog=1024; default_type application/json;
  location / {{ return 200 '{answer}'; }} }}"""
PROXY = """upstream backend {{ server 127.0.0.1:{backend}; keepalive 128; keepalive_requests 1000000000; }}
  upstream source {{ server 127.0.0.1:{source}; keepalive 128; keepalive_requests 1000000000; }}
  server {{ listen 127.0.0.1:{nginx} backlog=1024; listen 127.0.0.1:{nginx_h2} http2 backlog=1024;
    location /v1/chat/ {{ proxy_pass http://source; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
    location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}"""
HAPROXY = """
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend one
  bind 127.0.0.1:{haproxy}
  use_backend source if {{ path_beg /v1/chat/ }}
  default_backend plain
frontend two
  bind 127.0.0.1:{haproxy_h2} proto h2
  default_backend plain
backend plain
  http-reuse always
  server one 127.0.0.1:{backend}
backend source
  http-reuse always
  server one 127.0.0.1:{source}
"""
SLUICE = """
listen: 127.0.0.1:{sluice}
admin: 127.0.0.1:{admin}
threads: 1
models:
  - {{name: bench, url: "http://127.0.0.1:{backend}"}}
  - {{name: source, url: "http://127.0.0.1:{source}"}}
"""


class Scenario:
    """One kind of load. `size` is the length of a JSON body, 0 for GET; `events` a token rate for 64 streams."""

    def __init__(self, title, unit="request", size=0, streams=0, events=None, goal=None):
        self.title, self.unit, self.size, self.streams, self.events, self.goal = title, unit, size, streams, events, goal


SCENARIOS = {
    "get": Scenario("GET, 1 KiB back", goal="≤ 1.0 nginx, ≤ 0.6 bare Pingora"),
    "post-2k": Scenario("POST 2 KiB of JSON", size=2 << 10, goal="≤ 1.0 nginx, ≤ 0.6 bare Pingora"),
    "post-64k": Scenario("POST 64 KiB of JSON", size=64 << 10, goal="≤ 1.0 nginx"),
    "h2c": Scenario("GET over h2c, 10 streams", streams=10),
    "events": Scenario("64 event streams, 200 events a second each", unit="event", events=200, goal="≤ 1.0 nginx"),
    "events-full": Scenario("64 event streams, as fast as they go", unit="event", events=0, goal="≤ 1.0 nginx"),
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tree(pid):
    """A process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid] + [below for child in children for below in tree(int(child))]


def cpu_ticks(pid):
    """User and system time of a tree, of its processes that live."""
    total = 0
    for each in tree(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total


def core_ticks(core):
    """All and busy time of a core."""
    lines = Path("/proc/stat").read_text().splitlines()
    times = [int(field) for field in next(line.split()[1:9] for line in lines if line.startswith(f"cpu{core} "))]
    return sum(times), sum(times) - times[3] - times[4]


class Server:
    """A process of ours on one core."""

    def __init__(self, core, command, port, log):
        self.process = subprocess.Popen(["taskset", "-c", str(core), *map(str, command)], stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                log.seek(0)
                sys.exit(f"{command[0]} ended at once with {self.process.returncode}:\n{log.read()[-4000:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        sys.exit(f"{command[0]} does not listen on port {port}")

    def stop(self, patience=30):
        """Ends it; with little patience, as its figures are taken: some proxies wait long for connections that are gone."""
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Bench:
    """Everything that runs, and how a turn is measured."""

    def __init__(self, options, directory):
        self.options, self.dir = options, Path(directory)
        self.log = (self.dir / "log").open("w+")
        names = ["backend", "source", "nginx", "nginx_h2", "haproxy", "haproxy_h2", "sluice", "admin", "bare"]
        self.ports = {name: free_port() for name in names}
        self.commands = self.contenders()

    def write(self, name, text, **more):
        path = self.dir / name
        path.write_text(text.format(dir=self.dir, name=name, answer="x" * 1024, **self.ports, **more))
        return path

    def nginx(self, name, server):
        filled = server.format(answer="x" * 1024, **self.ports)
        return ["nginx", "-c", self.write(name, NGINX.replace("{server}", filled.replace("{", "{{").replace("}", "}}")))]

    def contenders(self):
        commands = {"sluice": [self.options.sluice, "run", "--config", self.write("sluice", SLUICE)]}
        commands["nginx"] = self.nginx("nginx", PROXY)
        if shutil.which("haproxy"):
            commands["haproxy"] = ["haproxy", "-db", "-f", self.write("haproxy", HAPROXY)]
        return commands

    def bare(self, upstream):
        return [self.options.bare, f"127.0.0.1:{self.ports['bare']}", f"127.0.0.1:{self.ports[upstream]}"]

    def start_backend(self, scenario):
        if scenario.unit == "event":
            command = [self.options.sluice, "demo-engine", "--model", "source", "--port", self.ports["source"], "--load-time", "0s"]
            command += ["--concurrency", "0", "--token-rate", scenario.events, "--tokens", 1_000_000]
            return Server(1, command, self.ports["source"], self.log)
        return Server(1, self.nginx("backend", BACKEND), self.ports["backend"], self.log)

    def turn(self, name, scenario, seconds):
        """One contender's turn: microseconds of CPU per unit, the share of core 0 that others took, and how many units."""
        upstream = "source" if scenario.unit == "event" else "backend"
        command = self.bare(upstream) if name == "bare" else self.commands[name]
        server = Server(0, command, self.ports[name], self.log)
        try:
            port = self.ports.get(f"{name}_h2", self.ports[name]) if scenario.streams else self.ports[name]
            self.load(port, scenario, 1)
            cpu, (all_before, busy_before) = cpu_ticks(server.process.pid), core_ticks(0)
            units = self.load(port, scenario, seconds)
            own, (all_after, busy_after) = cpu_ticks(server.process.pid) - cpu, core_ticks(0)
        finally:
            server.stop(patience=1)
        foreign = (busy_after - busy_before - own) / max(1, all_after - all_before)
        return own / TICK * 1e6 / units, foreign, units

    def load(self, port, scenario, seconds):
        """Sends load for so long; how many requests were answered or events came. Anything else is a failed measurement."""
        if scenario.unit == "event":
            return self.stream(port, scenario, seconds)
        command = ["taskset", "-c", "1", "h2load", "-t1", f"-D{seconds}", "-Hx-sluice-model: bench"]
        command += [f"-c{4 if scenario.streams else self.options.connections}"]
        command += [f"-m{scenario.streams}"] if scenario.streams else ["--h1"]
        if scenario.size:
            head = '{"model": "bench", "max_tokens": 16, "prompt": "'
            body = self.dir / "body"
            body.write_text(head + "x" * (scenario.size - len(head) - 2) + '"}')
            command = [part for part in command if not part.startswith("-Hx-sluice")]
            command += [f"-d{body}", "-Hcontent-type: application/json"]
        command += [f"http://127.0.0.1:{port}/v1/completions"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True).stdout
        good = int(re.search(r"status codes: (\d+) 2xx", said).group(1))
        bad = sum(int(count) for count in re.findall(r"(\d+) (?:3xx|4xx|5xx)", said))
        if good == 0 or bad > 0:
            sys.exit(f"requests failed:\n{said}")
        return good

    def stream(self, port, scenario, seconds):
        command = ["taskset", "-c", "1", self.options.sluice, "bench", "--url", f"http://127.0.0.1:{port}", "--model", "source"]
        command += ["--concurrency", "64", "--duration", f"{seconds}s", "-o", "json"]
        command += ["--tokens", str(scenario.events * seconds or 5_000 * seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
        result = json.loads(done.stdout or "{}")
        if not result.get("answered") or result.get("failures"):
            sys.exit(f"streams failed:\n{done.stdout}\n{done.stderr}")
        return result["events"]


def run(bench, options, rows):
    names = list(bench.commands) + (["bare"] if options.bare else [])
    for key in options.scenarios:
        scenario = SCENARIOS[key]
        backend = bench.start_backend(scenario)
        try:
            for number in range(options.rounds):
                for name in names if number % 2 == 0 else reversed(names):
                    try:
                        micros, foreign, units = bench.turn(name, scenario, options.seconds)
                    except subprocess.TimeoutExpired:
                        print(f"  {key}, round {number}, {name}: the load came to no end, so the turn does not count", file=sys.stderr, flush=True)
                        continue
                    rows.append((key, number, name, units, round(micros, 3), round(foreign, 3)))
                    print(f"  {key}, round {number}, {name}: {micros:.2f} us, others {foreign:.0%}", file=sys.stderr, flush=True)
        finally:
            backend.stop()


def interval(values, rounds=10_000):
    """Bootstrap 95 % interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def cell(quiet, name, peer):
    """Median ratio of Sluice to a peer in the same round, with its interval; a dash if they did not meet often enough."""
    ratios = [turns[name] / turns[peer] for turns in quiet if name in turns and peer in turns]
    if len(ratios) < LEAST:
        return "-"
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.2f} ({low:.2f}–{high:.2f})"


def table(rows, keys):
    """Markdown: medians in microseconds, and ratios."""
    lines = ["| load | Sluice, µs | nginx, µs | HAProxy, µs | bare Pingora, µs | Sluice / nginx | Sluice / HAProxy | Sluice / bare | goal |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for key in keys:
        rounds = {}
        for _, number, name, _, micros, foreign in (row for row in rows if row[0] == key):
            if foreign <= FOREIGN:
                rounds.setdefault(number, {})[name] = micros
        quiet = list(rounds.values())
        medians = []
        for name in ("sluice", "nginx", "haproxy", "bare"):
            values = [turns[name] for turns in quiet if name in turns]
            medians.append(f"{statistics.median(values):.2f}" if len(values) >= LEAST else "-")
        ratios = [cell(quiet, "sluice", peer) for peer in ("nginx", "haproxy", "bare")]
        scenario = SCENARIOS[key]
        lines.append(f"| {scenario.title}, per {scenario.unit} | {' | '.join(medians + ratios)} | {scenario.goal or ''} |")
    return "\n".join(lines)


def machine():
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    versions = []
    for command in (["nginx", "-v"], ["haproxy", "-v"]):
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            versions.append((done.stdout + done.stderr).splitlines()[0].removeprefix("nginx version: "))
    return f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; {'; '.join(versions)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", help="a release build")
    parser.add_argument("--bare", help="a release build of loadtests/bare-pingora")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=4, help="of one turn")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rows", default="target/loadtests/price.csv", help="where every row goes")
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), help=", ".join(SCENARIOS))
    options = parser.parse_intermixed_args()
    options.scenarios = options.scenarios or list(SCENARIOS)
    missing = [tool for tool in ("nginx", "h2load", "taskset") if not shutil.which(tool)]
    if missing or os.cpu_count() < 2:
        sys.exit(f"needs two cores and {', '.join(missing)}: apt-get install nginx-light nghttp2-client util-linux")
    rows = []
    with tempfile.TemporaryDirectory(prefix="sluice-price-") as directory:
        run(Bench(options, directory), options, rows)
    Path(options.rows).parent.mkdir(parents=True, exist_ok=True)
    with open(options.rows, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("scenario", "round", "proxy", "units", "cpu_us", "foreign"), *rows])
    print(f"{machine()}; {options.rounds} rounds of {options.seconds} s.\n\n{table(rows, options.scenarios)}")


if __name__ == "__main__":
    main()
