#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What waiting for a replica costs: waiting.py SLUICE [--wakes N] [--parked N]. Prints a Markdown table.

Wakes: a model sleeps, a request comes, its replica starts. The replica itself (this file, run with --replica) notes when it could
first have said that it is ready, when it said so, and when the request arrived; all on one clock. Parked: requests of 2 KiB wait for
a replica that never comes, and the resident memory of Sluice is read twice, so that what it needs anyway does not count.
"""

import argparse
import http.server
import json
import math
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

CONFIG = """
listen: 127.0.0.1:{data}
admin: 127.0.0.1:{admin}
threads: 1
limits: {{connections: 100000}}
models:
  - name: wakes
    command: ["{python}", "{this}", "--replica", "${{PORT}}", "{notes}"]
    readiness: {{path: /health}}
    idleAfter: 50ms
  - name: parks
    command: [sleep, "3600"]
    startDeadline: 1h
    queue: {{length: 100000, bytes: 1Gi}}
"""
BODY = 2 << 10
FEW = 500


class Replica(http.server.BaseHTTPRequestHandler):
    """A replica that writes down when it was asked."""

    protocol_version = "HTTP/1.1"
    notes, able, told = None, 0, 0

    def answer(self, text):
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        Replica.told = Replica.told or time.monotonic_ns()
        self.answer(b"ready")

    def do_POST(self):
        asked = time.monotonic_ns()
        self.rfile.read(int(self.headers["content-length"]))
        with open(Replica.notes, "a", encoding="utf-8") as file:
            file.write(json.dumps([Replica.able, Replica.told, asked]) + "\n")
        self.answer(b"{}")

    def log_message(self, *_):
        pass


def replica(port, notes):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Replica)
    Replica.notes, Replica.able = notes, time.monotonic_ns()
    server.serve_forever()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def body(model):
    head = f'{{"model": "{model}", "prompt": "'
    return (head + "x" * (BODY - len(head) - 2) + '"}').encode()


def ask(port, path, data=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def wait_until(what, true, limit=60):
    deadline = time.monotonic() + limit
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"waited {limit} s in vain until {what}")
        time.sleep(0.02)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def gauge(admin, line):
    found = re.search(rf"^{re.escape(line)} (\S+)$", ask(admin, "/metrics"), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def wakes(ports, notes, count):
    """Milliseconds of each wake: from able to asked, and from told to asked."""
    for _ in range(count):
        state = lambda: json.loads(ask(ports["admin"], "/api/v1/models/wakes"))
        wait_until("the model sleeps", lambda: state()["state"] == "cold")
        ask(ports["data"], "/v1/completions", body("wakes"))
    lines = [json.loads(line) for line in Path(notes).read_text().splitlines()]
    if len(lines) != count:
        sys.exit(f"{len(lines)} of {count} requests came to a replica")
    return [(asked - able) / 1e6 for able, _, asked in lines], [(asked - told) / 1e6 for _, told, asked in lines]


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()).group(1))


def park(ports, pid, count):
    """KiB of resident memory per parked request."""
    text = body("parks")
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    clients, seen = [], []
    for target in (FEW, FEW + count):
        while len(clients) < target:
            clients.append(socket.create_connection(("127.0.0.1", ports["data"])))
            clients[-1].sendall(head.encode() + text)
        depth = 'sluice_queue_depth{model="parks",class="standard"}'
        wait_until(f"{target} requests wait", lambda: gauge(ports["admin"], depth) == target)
        seen.append(resident(pid))
    for client in clients:
        client.close()
    return (seen[1] - seen[0]) / count


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def measure(options, directory):
    ports = {"data": free_port(), "admin": free_port()}
    notes = os.path.join(directory, "notes")
    config = Path(directory, "sluice.yaml")
    config.write_text(CONFIG.format(python=sys.executable, this=os.path.abspath(__file__), notes=notes, **ports))
    with open(os.path.join(directory, "log"), "w+", encoding="utf-8") as log:
        sluice = subprocess.Popen([options.sluice, "run", "--config", config], stdout=log, stderr=log)
        try:
            wait_until("sluice listens", lambda: sluice.poll() is not None or (listens(ports["data"]) and listens(ports["admin"])))
            if sluice.poll() is not None:
                log.seek(0)
                sys.exit(f"sluice ended at once:\n{log.read()[-4000:]}")
            able, told = wakes(ports, notes, options.wakes)
            return able, told, park(ports, sluice.pid, options.parked)
        finally:
            sluice.terminate()
            sluice.wait(60)


def main():
    if sys.argv[1:2] == ["--replica"]:
        return replica(int(sys.argv[2]), sys.argv[3])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", help="a release build")
    parser.add_argument("--wakes", type=int, default=200)
    parser.add_argument("--parked", type=int, default=5_000)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="sluice-waiting-") as directory:
        able, told, parked = measure(options, directory)
    print("| what | median | p99 | goal |\n|---|---|---|---|")
    for what, values, goal in (
        ("wake: the replica said ready → the request arrived, ms", told, "p99 ≤ 20"),
        ("wake: the replica could say ready → the request arrived, ms", able, "as above and `readiness.period`"),
    ):
        print(f"| {what} | {percentile(values, 0.5):.2f} | {percentile(values, 0.99):.2f} | {goal} |")
    print(f"| parked request of 2 KiB, KiB resident | {parked:.1f} | | ≤ 24 |")
    return None


if __name__ == "__main__":
    main()
