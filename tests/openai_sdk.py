# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI SDK against Sluice: chat, streams, embeddings, model lists, and errors as its exceptions.

openai_sdk.py SLUICE: exits 77 when the `openai` package is not installed for this Python.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

try:
    import openai
except ImportError:
    print("the openai package is not installed: pip install openai")
    sys.exit(77)

PATIENCE = 60  # seconds; reached only when something never happens


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def configuration(sluice, data, admin):
    model = """
  - name: {name}
    command: ["{sluice}", demo-engine, "--model={name}", "--port=${{PORT}}", --load-time=500ms, --token-rate=100]
    {more}"""
    models = [
        ("chat-demo", "idleAfter: 1m"),
        ("embed-demo", "idleAfter: 1m"),
        ("full", "containerConcurrency: 1\n    queue: {length: 1}"),
    ]
    text = "".join(model.format(name=name, sluice=sluice, more=more) for name, more in models)
    return f"listen: 127.0.0.1:{data}\nadmin: 127.0.0.1:{admin}\nmodels:{text}\n"


def chat(client, model, **more):
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello"}], **more)


def successes(client):
    assert {m.id for m in client.models.list()} == {"chat-demo", "embed-demo", "full"}
    assert client.models.retrieve("chat-demo").id == "chat-demo"
    assert chat(client, "chat-demo", max_tokens=8).choices[0].message.content
    chunks = list(chat(client, "chat-demo", max_tokens=8, stream=True))
    words = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert len(words) > 1, chunks
    embedding = client.embeddings.create(model="embed-demo", input="Hello").data[0].embedding
    assert embedding and all(isinstance(x, float) for x in embedding)


def errors(client):
    try:
        chat(client, "nope")
        raise AssertionError("an unknown model is an error")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
    try:
        client.post("/chat/completions", body={"messages": []}, cast_to=object)
        raise AssertionError("a missing model is an error")
    except openai.BadRequestError as error:
        assert error.type == "invalid_request_error", error


def retries(client):
    """What is refused for want of room says when to come back, and the SDK's own retries get through."""
    clients = [client.with_options(max_retries=0) for _ in range(6)]
    results = at_once(lambda n: chat(clients[n], "full", max_tokens=40), 6)
    refused = [r for r in results if isinstance(r, openai.RateLimitError)]
    assert refused, results
    assert all(float(r.response.headers["retry-after"]) > 0 for r in refused)
    patient = client.with_options(max_retries=10)
    results = at_once(lambda _: chat(patient, "full", max_tokens=4), 3)
    assert not [r for r in results if isinstance(r, Exception)], results


def at_once(call, count):
    from concurrent.futures import ThreadPoolExecutor

    def caught(n):
        try:
            return call(n)
        except openai.APIError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(caught, range(count)))


def main(sluice):
    data, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory() as home:
        file = os.path.join(home, "sluice.yaml")
        with open(file, "w", encoding="utf-8") as out:
            out.write(configuration(os.path.abspath(sluice), data, admin))
        environment = dict(os.environ, XDG_STATE_HOME=home, XDG_RUNTIME_DIR=home)
        process = subprocess.Popen([sluice, "run", "--config", file], env=environment)
        try:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{data}/v1", api_key="none", timeout=PATIENCE)
            ready(client, process)
            successes(client)
            errors(client)
            retries(client)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    print("the OpenAI SDK works against Sluice")


def ready(client, process):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return client.with_options(max_retries=0).models.list()
        except openai.APIConnectionError:
            assert process.poll() is None and time.monotonic() < deadline, "the gateway does not come up"
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
