// SPDX-License-Identifier: Apache-2.0
//! Numbers that look random and come again with the same seed; and what is done with many measurements.

/// A generator (xorshift64*); tests print or fix its seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low + 1)
    }

    /// One of several.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[(self.number() % of.len() as u64) as usize]
    }
}

/// The value that `percent` of the values do not exceed. Not of an empty list.
pub fn percentile<T: PartialOrd + Copy>(values: &[T], percent: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("measurements are comparable"));
    sorted[((sorted.len() * percent).div_ceil(100)).clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Chance::new(7), Chance::new(7));
        let numbers: Vec<_> = (0..100).map(|_| a.between(3, 9)).collect();
        assert!(numbers.iter().all(|n| *n == b.between(3, 9) && (3..=9).contains(n)));
        assert!((3..=9).all(|n| numbers.contains(&n)));
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values = [5, 1, 4, 2, 3];
        assert_eq!((percentile(&values, 50), percentile(&values, 99), percentile(&values, 1)), (3, 5, 1));
    }
}
