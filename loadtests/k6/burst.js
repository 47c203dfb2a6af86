// SPDX-License-Identifier: Apache-2.0
// Many clients at the same moment, on a model that is up or at zero: is every one of them answered, and how fast does it drain?

import { chat, number, summary, thresholds } from './lib.js';

const clients = number('VUS', 100);

export const options = {
  scenarios: {
    burst: { executor: 'per-vu-iterations', vus: clients, iterations: number('ITERATIONS', 1), maxDuration: '5m' },
  },
  thresholds: thresholds({ http_req_duration: [`max<${number('MAX_MS', 60000)}`] }),
};

export default () => chat();
export const handleSummary = summary;
