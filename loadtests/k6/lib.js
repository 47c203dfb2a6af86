// SPDX-License-Identifier: Apache-2.0
// What all scenarios share: options from the environment, one request, its checks, and the summary.

import http from 'k6/http';
import { check } from 'k6';
import { Counter, Trend } from 'k6/metrics';

export const url = (__ENV.SLUICE_URL || 'http://127.0.0.1:8080').replace(/\/$/, '');
export const model = __ENV.MODEL || 'chat';

// Answers that came after the model had to start, by the gateway's own word (time to first byte over COLD_MS).
export const cold = new Trend('cold_start_ms', true);
// Answers that say why they refuse and when to come back, as opposed to failures.
export const refused = new Counter('refused');

const COLD_MS = number('COLD_MS', 300);
const refusals = new Set([429, 503, 504]);

/** A number from the environment. */
export function number(name, otherwise) {
  const text = __ENV[name];
  if (text === undefined || text === '') return otherwise;
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Error(`${name} is ${text}, which is not a number`);
  return value;
}

/** A text from the environment. */
export function text(name, otherwise) {
  return __ENV[name] || otherwise;
}

/** Sends one chat request and checks its answer. Returns the response. */
export function chat(name = model) {
  const body = JSON.stringify({
    model: name,
    max_tokens: number('TOKENS', 8),
    messages: [{ role: 'user', content: 'Say something short.' }],
  });
  const params = {
    headers: { 'content-type': 'application/json' },
    timeout: text('TIMEOUT', '120s'),
    tags: { model: name, name: 'chat' },
  };
  const response = http.post(`${url}/v1/chat/completions`, body, params);
  if (refusals.has(response.status)) {
    refused.add(1);
    check(response, { 'a refusal says why': (r) => Boolean(r.json('error.code')) });
    return response;
  }
  check(response, {
    'status is 200': (r) => r.status === 200,
    'the answer is whole': (r) => r.status === 200 && Boolean(r.json('choices.0.message.content')),
    'the right model answered': (r) => r.status === 200 && r.json('model') === name,
  });
  if (response.timings.waiting > COLD_MS) cold.add(response.timings.waiting);
  return response;
}

/** Thresholds that every scenario has; `extra` adds to them. */
export function thresholds(extra = {}) {
  return { checks: ['rate==1'], http_req_failed: [`rate<=${number('MAX_FAILED', 0)}`], ...extra };
}

/** The end-of-test summary: k6's figures as JSON in SUMMARY, a few lines for people on stdout. */
export function summary(data) {
  const value = (metric, what) => {
    const found = data.metrics[metric];
    return found === undefined ? undefined : found.values[what];
  };
  const ms = (metric, what) => {
    const found = value(metric, what);
    return found === undefined ? '-' : `${found.toFixed(1)} ms`;
  };
  const failed = Object.entries(data.metrics).flatMap(([name, metric]) =>
    Object.entries(metric.thresholds || {}).filter(([, result]) => !result.ok).map(([rule]) => `${name}: ${rule}`));
  const lines = [
    `k6: ${value('http_reqs', 'count') || 0} requests, ${(value('http_reqs', 'rate') || 0).toFixed(1)} a second, ` +
      `${((value('http_req_failed', 'rate') || 0) * 100).toFixed(2)} % failed, ${value('refused', 'count') || 0} refused, ` +
      `${value('dropped_iterations', 'count') || 0} not begun`,
    `k6: duration p50 ${ms('http_req_duration', 'med')}, p95 ${ms('http_req_duration', 'p(95)')}, ` +
      `max ${ms('http_req_duration', 'max')}; cold answers: longest ${ms('cold_start_ms', 'max')}`,
    ...failed.map((rule) => `k6: threshold crossed: ${rule}`),
  ];
  const out = { stdout: `${lines.join('\n')}\n` };
  if (__ENV.SUMMARY) out[__ENV.SUMMARY] = JSON.stringify(data, null, 1);
  return out;
}
