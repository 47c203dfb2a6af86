# SPDX-License-Identifier: Apache-2.0
"""A scripted replica: answers every request on 127.0.0.1:PORT with the status in a file.

Options: --status-file F, --answer-after S, --log F (one line per event), --ignore-term, --child (one that ignores
SIGTERM too), --key K (401 without it).
"""
import os
import signal
import socket
import sys
import threading
import time

PORT = int(sys.argv[1])
OPTIONS = sys.argv[2:]


def option(name, default=None):
    return OPTIONS[OPTIONS.index(name) + 1] if name in OPTIONS else default


LOCK = threading.Lock()
CONCURRENT = 0


def log(text):
    path = option("--log")
    if path:
        with LOCK, open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def status(head):
    key = option("--key")
    if key and f"authorization: bearer {key}".lower() not in head.lower():
        return "401"
    path = option("--status-file")
    if not path:
        return "200"
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip() or "200"
    except FileNotFoundError:
        return "200"


def serve(connection):
    global CONCURRENT
    with LOCK:
        CONCURRENT += 1
        concurrent = CONCURRENT
    head = connection.recv(65536).decode("latin-1")
    log(f"concurrent {concurrent}")
    log("path " + head.split(" ")[1] if " " in head else "empty")
    time.sleep(float(option("--answer-after", "0")))
    with LOCK:
        CONCURRENT -= 1
    code = status(head)
    location = "location: /elsewhere\r\n" if code.startswith("3") else ""
    try:
        connection.sendall(f"HTTP/1.1 {code} x\r\n{location}content-length: 2\r\n\r\nok".encode())
        connection.close()
    except OSError:
        pass


def main():
    if "--ignore-term" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--child" in OPTIONS and os.fork() == 0:
        log(f"child {os.getpid()}")
        while True:
            time.sleep(60)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(64)
    log(f"leader {os.getpid()}")
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


main()
