// SPDX-License-Identifier: Apache-2.0
// Requests at a constant rate, whatever becomes of them: what does a user see in ordinary operation?

import { chat, number, summary, text, thresholds } from './lib.js';

export const options = {
  scenarios: {
    steady: {
      executor: 'constant-arrival-rate',
      rate: number('RATE', 20),
      timeUnit: '1s',
      duration: text('DURATION', '1m'),
      preAllocatedVUs: number('VUS', 100),
      maxVUs: number('MAX_VUS', 1000),
    },
  },
  thresholds: thresholds({
    dropped_iterations: ['count==0'],
    http_req_duration: [`p(95)<${number('P95_MS', 2000)}`],
  }),
};

export default () => chat();
export const handleSummary = summary;
