// SPDX-License-Identifier: Apache-2.0
// A moderate rate that swells and ebbs for a long time: does anything grow that should not, does anybody fail?

import { chat, number, summary, text, thresholds } from './lib.js';

const rate = number('RATE', 10);
const swell = text('SWELL', '5m');
const stages = Array.from({ length: number('SWELLS', 12) }, (_, n) => ({
  target: n % 2 === 0 ? rate * 2 : Math.max(1, Math.round(rate / 4)),
  duration: swell,
}));

export const options = {
  scenarios: {
    soak: {
      executor: 'ramping-arrival-rate',
      startRate: rate,
      timeUnit: '1s',
      stages,
      preAllocatedVUs: number('VUS', 100),
      maxVUs: number('MAX_VUS', 1000),
    },
  },
  thresholds: thresholds({ http_req_duration: [`p(99)<${number('P99_MS', 10000)}`] }),
};

export default () => chat();
export const handleSummary = summary;
