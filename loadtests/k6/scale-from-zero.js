// SPDX-License-Identifier: Apache-2.0
// One request, then a pause longer than the model's `idleAfter`, again and again: what does each wake cost a client?

import { sleep } from 'k6';
import { chat, cold, number, summary, thresholds } from './lib.js';

export const options = {
  scenarios: {
    wakes: { executor: 'per-vu-iterations', vus: 1, iterations: number('WAKES', 3), maxDuration: '30m' },
  },
  thresholds: thresholds({
    // A wake that was none says that the pause is too short for the model.
    cold_start_ms: [`max<${number('COLD_MAX_MS', 30000)}`, `min>${number('COLD_MS', 300)}`],
  }),
};

export default function () {
  const began = Date.now();
  const response = chat();
  if (response.timings.waiting <= number('COLD_MS', 300)) cold.add(0);
  console.debug(`answered after ${Date.now() - began} ms`);
  sleep(number('IDLE_S', 8));
}

export const handleSummary = summary;
