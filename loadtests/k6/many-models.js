// SPDX-License-Identifier: Apache-2.0
// A long tail of models: a few get most of the requests, most get one now and then. Who is up when, and who waits?

import { chat, number, summary, text, thresholds } from './lib.js';

const count = number('MODELS', 20);
const exponent = number('ZIPF', 1.1);
const prefix = text('MODEL_PREFIX', 'tail-');

// Zipf's law: the n-th most popular model gets a share of 1 / n^exponent.
const weights = Array.from({ length: count }, (_, n) => 1 / Math.pow(n + 1, exponent));
const whole = weights.reduce((sum, weight) => sum + weight, 0);

function pick() {
  let left = Math.random() * whole;
  const at = weights.findIndex((weight) => (left -= weight) <= 0);
  return `${prefix}${at < 0 ? count - 1 : at}`;
}

export const options = {
  scenarios: {
    tail: {
      executor: 'constant-arrival-rate',
      rate: number('RATE', 10),
      timeUnit: '1s',
      duration: text('DURATION', '1m'),
      preAllocatedVUs: number('VUS', 100),
      maxVUs: number('MAX_VUS', 1000),
    },
  },
  thresholds: thresholds({ http_req_duration: [`p(95)<${number('P95_MS', 10000)}`] }),
};

export default () => chat(pick());
export const handleSummary = summary;
