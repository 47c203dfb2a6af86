# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of the configuration against the parser, by readers that are not ours.

schema.py SLUICE: exits 77 when `jsonschema` or `PyYAML` is not installed for this Python.

The schema must take every file that `sluice check` takes: the shipped ones, those of the documentation, and thousands
of variations of them. It must refuse the files of a table, and so must `sluice check`.
"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import yaml
except ImportError:
    print("missing packages: pip install jsonschema PyYAML")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent
VARIATIONS = 3000
SEED = 20_24_12  # always the same files
VALUES = [
    "0", "1", "-1", "5", "100", "1e3", "0.5", "true", "yes", "none", "~", "''", "'7'", "30s", "1m30s", "500ms", "2Gi",
    "512k", "32MB", "http2", "concurrency", "rps", "a", "[]", "[a]", "[a, b]", "{}", "{a: b}", "127.0.0.1:9999",
    "[127.0.0.1:9998]", "http://127.0.0.1:1", "/x", "${env.HOME}", "'${env.NONE:-3}'",
]  # fmt: skip

MODEL = "models:\n  - name: m\n    command: [sh]\n"
REFUSED = [
    "models: 5\n",
    "models: []\nlisten: 5\n",
    "models: []\nlimits:\n",
    "models: []\nlimits: {connections: 0}\n",
    "models: []\nshutdown: {deadline: 5}\n",
    "models: []\nmodel: []\n",
    "models: []\nadmin: localhost\n",
    "models: []\ntls: {listen: 127.0.0.1:1}\n",
    "models: []\ngroups: [{name: g}]\n",
    "listen: 127.0.0.1:1\n",
    "models: [{name: m}]\n",
    "models: [{command: [a]}]\n",
    "models: [{name: m, command: []}]\n",
    "models: [{name: m, command: a}]\n",
    "models: [{name: m, command: [a], url: http://a}]\n",
    "models: [{name: m, url: 'ftp://a'}]\n",
    "models: [{name: m, url: 'http://a/v1'}]\n",
    "models: [{name: m, urls: []}]\n",
    MODEL + "    minReplicas: -1\n",
    MODEL + "    minReplicas: 1.5\n",
    MODEL + "    minReplicas: many\n",
    MODEL + "    minReplicas: 99999\n",
    MODEL + "    minReplicas:\n",
    MODEL + "    maxReplicas: -1\n",
    MODEL + "    minReplica: 1\n",
    MODEL + "    scaleTarget: 0\n",
    MODEL + "    scaleMetric: concurency\n",
    MODEL + "    timeout: 5 minutes\n",
    MODEL + "    timeout: 0.5\n",
    MODEL + "    idleAfter: 30\n",
    MODEL + "    idleAfter: 30sec\n",
    MODEL + "    bodyLimit: 32MB\n",
    MODEL + "    preload: maybe\n",
    MODEL + "    protocol: grpc\n",
    MODEL + "    queue: 5\n",
    MODEL + "    queue: {lenght: 1}\n",
    MODEL + "    env: [A=b]\n",
    MODEL + "    env: {A: }\n",
    MODEL + "    groups: g\n",
    MODEL + "    gpu: {memory: 2Gi}\n",
    MODEL + "    annotations: {autoscaling.knative.dev/min-scale: x}\n",
    MODEL + "    annotations: {autoscaling.knative.dev/min-scal: '1'}\n",
    MODEL + "    annotations: {autoscaling.knative.dev/metric: cpu}\n",
]


class Loader(yaml.SafeLoader):
    """YAML's JSON types only: a date is a text."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if not tag.endswith(":timestamp")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def known_files():
    files = [ROOT / "deploy/local/demo.yaml", ROOT / "deploy/local/llama.yaml"]
    texts = [file.read_text() for file in files]
    for page in sorted((ROOT / "docs").glob("*.md")):
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)
        texts += [block for block in blocks if re.search("^models:", block, re.M)]
    return texts


def paths(schema, prefix=()):
    """Every place in a file where a key may stand."""
    for name, key in schema.get("properties", {}).items():
        yield (*prefix, name)
        yield from paths(key, (*prefix, name))
        yield from paths(key.get("items", {}), (*prefix, name, 0))


def variations(schema, texts):
    """Files with a value of `VALUES` at one or two places."""
    chance = random.Random(SEED)
    places = [path for path in paths(schema)]
    for at in range(VARIATIONS):
        whole = yaml.load(texts[at % len(texts)], Loader)
        for path in [places[at % len(places)]] + chance.sample(places, at % 2):
            value = yaml.load(chance.choice(VALUES), Loader)
            put(whole, path, value)
        yield yaml.safe_dump(whole)


def put(whole, path, value):
    for name in path[:-1]:
        if isinstance(name, int):
            whole = whole[0] if whole else whole.append({}) or whole[0]
        elif isinstance(whole, dict):
            whole = whole.setdefault(name, {"models": [{}], "groups": [{}]}.get(name, {}))
        if not isinstance(whole, (dict, list)):
            return
    if isinstance(whole, dict):
        whole[path[-1]] = value


def verdicts(sluice, texts):
    """Whether `sluice check` takes each of the texts."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, f"{at}.yaml") for at in range(len(texts))]
        for file, text in zip(files, texts):
            file.write_text(text)
        answer = subprocess.run([sluice, "check", "--format", "json", *files], capture_output=True, timeout=120)
        return [item["valid"] for item in json.loads(answer.stdout)]


def main():
    sluice = sys.argv[1]
    schema = json.loads(subprocess.run([sluice, "check", "--schema"], capture_output=True, check=True).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    known = known_files()
    texts = known + list(variations(schema, known))
    taken = [text for text, valid in zip(texts, verdicts(sluice, texts)) if valid]
    assert taken[: len(known)] == known, "a shipped or documented file is wrong"
    assert len(taken) > len(texts) // 20, f"only {len(taken)} of {len(texts)} variations are right"
    assert len(taken) < len(texts), "every variation is right, so nothing was tried"
    for text in taken:
        faults = [fault.message for fault in validator.iter_errors(yaml.load(text, Loader))]
        assert not faults, f"the schema refuses what sluice takes: {faults}\n{text}"

    for text, valid in zip(REFUSED, verdicts(sluice, REFUSED)):
        assert not valid, f"sluice takes\n{text}"
        assert not validator.is_valid(yaml.load(text, Loader)), f"the schema takes\n{text}"
    print(f"the schema takes {len(taken)} right files and refuses {len(REFUSED)} wrong ones")


main()
