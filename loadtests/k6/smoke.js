// SPDX-License-Identifier: Apache-2.0
// A few requests one after another, and the lists: does everything answer at all?

import http from 'k6/http';
import { check } from 'k6';
import { chat, model, number, summary, thresholds, url } from './lib.js';

export const options = {
  scenarios: {
    smoke: { executor: 'shared-iterations', vus: number('VUS', 2), iterations: number('ITERATIONS', 10), maxDuration: '60s' },
  },
  thresholds: thresholds(),
};

export default function () {
  const models = http.get(`${url}/v1/models`);
  check(models, { 'the model is listed': (r) => r.json('data').some((one) => one.id === model) });
  chat();
}

export const handleSummary = summary;
