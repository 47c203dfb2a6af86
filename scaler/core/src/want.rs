// SPDX-License-Identifier: Apache-2.0
//! From load to wanted replicas. Must not know bounds, time or what exists.

use crate::spec::ScaleSpec;

/// `ceil(requests / target)`: replicas needed so that each has at most its target of these requests.
pub(crate) fn wanted(requests: u32, scale: &ScaleSpec) -> u32 {
    let replicas = (u64::from(requests) * 1_000).div_ceil(scale.target_milli.max(1));
    u32::try_from(replicas).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::scale;

    #[test]
    fn want_is_the_load_over_the_target_rounded_up() {
        let five = ScaleSpec { target_milli: 5_000, ..scale() };
        let cases = [(0, 0), (1, 1), (5, 1), (6, 2), (10, 2), (50, 10), (60, 12), (u32::MAX, 858_993_459)];
        for (requests, replicas) in cases {
            assert_eq!(wanted(requests, &five), replicas, "{requests} requests");
        }
    }

    #[test]
    fn a_fractional_target_counts_in_thousandths_and_zero_does_not_divide() {
        assert_eq!(wanted(3, &ScaleSpec { target_milli: 1_500, ..scale() }), 2);
        assert_eq!(wanted(3, &ScaleSpec { target_milli: 500, ..scale() }), 6);
        assert_eq!(wanted(3, &ScaleSpec { target_milli: 0, ..scale() }), 3_000);
        assert_eq!(wanted(u32::MAX, &ScaleSpec { target_milli: 1, ..scale() }), u32::MAX);
    }
}
