// SPDX-License-Identifier: Apache-2.0
// The rate rises in steps and falls again: do replicas follow, and do waits stay short while they come up?

import { chat, number, summary, text, thresholds } from './lib.js';

const top = number('RATE', 40);
const step = text('STEP', '20s');
const stages = [0.25, 0.5, 0.75, 1, 0.5, 0.25].flatMap((share) => [
  { target: Math.max(1, Math.round(top * share)), duration: '0s' },
  { target: Math.max(1, Math.round(top * share)), duration: step },
]);

export const options = {
  scenarios: {
    step: {
      executor: 'ramping-arrival-rate',
      startRate: 1,
      timeUnit: '1s',
      stages,
      preAllocatedVUs: number('VUS', 100),
      maxVUs: number('MAX_VUS', 1000),
    },
  },
  thresholds: thresholds({ http_req_duration: [`p(95)<${number('P95_MS', 5000)}`] }),
};

export default () => chat();
export const handleSummary = summary;
