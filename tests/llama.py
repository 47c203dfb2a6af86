# SPDX-License-Identifier: Apache-2.0
"""Runs deploy/local/llama.yaml for real: Sluice, llama.cpp and a 270M model, from zero to an answer and back to zero.

llama.py SLUICE: needs the virtual environment that deploy/local/llama_wheels.sh makes, and nothing else.
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATIENCE = 90  # seconds for anything that must happen; reached only when it does not
IDLE = 6  # seconds of idleAfter here
COUNTING = {"model": "gemma", "temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": "One, two, three,"}]}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, holds):
    """Polls until it holds and returns what it said; fails with `what` when it never does."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.05)
    return found


def configuration(listen, admin):
    """The shipped file, with other ports and a short idle time."""
    with open(os.path.join(ROOT, "deploy/local/llama.yaml"), encoding="utf-8") as file:
        text = file.read()
    for key, value in (("listen", f"127.0.0.1:{listen}"), ("admin", f"127.0.0.1:{admin}"), ("idleAfter", f"{IDLE}s")):
        text, changed = re.subn(rf"^(\s*{key}:) \S+", rf"\1 {value}", text, flags=re.MULTILINE)
        assert changed == 1, f"{key} stands {changed} times in llama.yaml"
    return text


class Sluice:
    """A running Sluice and what can be seen of it from outside."""

    def __init__(self, binary, directory):
        self.port, admin = free_port(), free_port()
        path = os.path.join(directory, "llama.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(configuration(self.port, admin))
        self.log = open(os.path.join(directory, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([binary, "run", "--config", path], cwd=ROOT, stdout=self.log, stderr=self.log)
        until("sluice listens", self.listens)

    def listens(self):
        assert self.process.poll() is None, f"sluice ended with {self.process.returncode}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def replicas(self):
        """Process id and port of each llama.cpp below Sluice."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    words = file.read().split("\0")
            except OSError:
                continue
            if parent == self.process.pid and "deploy/local/llama_server.py" in words:
                found.append((int(pid), int(words[words.index("--port") + 1])))
        return found

    def request(self, method, path, body=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"content-type": "application/json"} if text else {})
        return connection, connection.getresponse()

    def json(self, method, path, body=None):
        connection, response = self.request(method, path, body)
        text = response.read()
        connection.close()
        assert response.status == 200, f"{path}: {response.status} {text[:500]}"
        return json.loads(text)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def content(answer):
    return answer["choices"][0]["message"]["content"]


def lists_without_starting(sluice):
    models = sluice.json("GET", "/v1/models")
    assert [model["id"] for model in models["data"]] == ["gemma"], models
    assert sluice.replicas() == []


def answers_from_zero(sluice):
    began = time.monotonic()
    answer = sluice.json("POST", "/v1/chat/completions", COUNTING)
    print(f"     first answer from zero after {time.monotonic() - began:.1f} s: {content(answer)!r}")
    assert "four, five, six" in content(answer), answer
    assert answer["usage"]["completion_tokens"] == 12, answer
    assert len(sluice.replicas()) == 1


def streams_event_by_event(sluice):
    body = COUNTING | {"stream": True, "stream_options": {"include_usage": True}}
    connection, response = sluice.request("POST", "/v1/chat/completions", body)
    assert response.status == 200 and response.headers["content-type"].startswith("text/event-stream"), response.headers
    pieces = []
    while piece := response.read1():
        pieces.append(piece)
    connection.close()
    stream = b"".join(pieces)
    assert stream.endswith(b"data: [DONE]\n\n"), stream[-200:]
    events = [event.removeprefix(b"data: ") for event in stream.removesuffix(b"\n\n").split(b"\n\n")]
    chunks = [json.loads(event) for event in events[:-1]]
    told = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    assert told == content(sluice.json("POST", "/v1/chat/completions", COUNTING)), told
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 12, chunks[-1]
    assert len(pieces) > 4, f"{len(events)} events came in {len(pieces)} pieces: they were held back"


def hands_on_the_replicas_own_bytes(sluice):
    """An error of llama.cpp has neither time nor id in it, so it must be the same from both addresses."""
    (_, port), = sluice.replicas()
    said = []
    for target in (port, sluice.port):
        connection, response = sluice.request("POST", "/v1/chat/completions", {"model": "gemma", "messages": "none"}, target)
        said.append((response.status, response.read()))
        connection.close()
    assert said[0] == said[1] and b"error" in said[0][1], said


def ends_what_a_client_left(sluice):
    (_, port), = sluice.replicas()
    endless = COUNTING | {"stream": True, "max_tokens": 1900, "ignore_eos": True}
    connection, response = sluice.request("POST", "/v1/chat/completions", endless)
    response.read1()

    def processing(count):
        probe, metrics = sluice.request("GET", "/metrics", port=port)
        text = metrics.read().decode()
        probe.close()
        return f"llamacpp:requests_processing {count}" in text.splitlines()

    until("llama.cpp works on the request", lambda: processing(1))
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    until("llama.cpp gives the request up", lambda: processing(0))


def serves_several_at_once(sluice):
    answers = []
    ask = lambda: answers.append(content(sluice.json("POST", "/v1/chat/completions", COUNTING)))
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(answers) == 8 and all("four" in answer for answer in answers), answers
    assert len(sluice.replicas()) == 1


def goes_away_and_comes_back(sluice):
    (first, _), = sluice.replicas()
    # A process that is ending has no command line any more, so it is gone only when its id is.
    until("the idle replica's process is gone", lambda: not os.path.exists(f"/proc/{first}"))
    assert sluice.replicas() == []
    answers_from_zero(sluice)


def takes_its_replica_along(sluice):
    (replica, _), = sluice.replicas()
    status = sluice.stop()
    assert status == 0, f"sluice ended with {status}"
    assert not os.path.exists(f"/proc/{replica}"), "the replica outlived sluice"


TESTS = [
    lists_without_starting,
    answers_from_zero,
    streams_event_by_event,
    hands_on_the_replicas_own_bytes,
    ends_what_a_client_left,
    serves_several_at_once,
    goes_away_and_comes_back,
    takes_its_replica_along,
]


def main():
    with tempfile.TemporaryDirectory() as directory:
        sluice = Sluice(os.path.abspath(sys.argv[1]), directory)
        try:
            for test in TESTS:
                test(sluice)
                print(f"ok   {test.__name__}", flush=True)
        except BaseException:
            sluice.stop()
            sluice.log.seek(0)
            print(f"FAILED {test.__name__}; sluice said:\n{sluice.log.read()[-8000:]}", flush=True)
            raise
        finally:
            sluice.stop()


if __name__ == "__main__":
    main()
