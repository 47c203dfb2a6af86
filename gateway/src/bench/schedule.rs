// SPDX-License-Identifier: Apache-2.0
//! When requests begin: offsets from the start of the load, decided by the rates and a seed alone.

use std::time::Duration;

/// Distances between arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// All the same.
    Constant,
    /// Exponential, as those of many independent users.
    Poisson,
}

/// A rate for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Requests per second, finite and not negative.
    pub rate: f64,
    /// How long.
    pub duration: Duration,
}

/// Sums of seconds are this exact: a request at the very end of a stage belongs to the next one.
const ROUNDING: f64 = 1e-9;

/// The offsets, in order.
pub struct Schedule {
    stages: std::vec::IntoIter<Stage>,
    stage: Option<Stage>,
    /// Begin of the stage, in seconds.
    base: f64,
    /// Requests that must still pass before the next one begins: 0 begins one now.
    missing: f64,
    /// Within the stage, in seconds.
    at: f64,
    arrivals: Arrivals,
    random: fastrand::Rng,
}

impl Schedule {
    /// The schedule of these stages. The first request begins at once if arrivals are constant.
    pub fn new(stages: Vec<Stage>, arrivals: Arrivals, seed: u64) -> Schedule {
        let mut stages = stages.into_iter();
        let stage = stages.next();
        let mut schedule = Schedule {
            stages,
            stage,
            base: 0.0,
            missing: 0.0,
            at: 0.0,
            arrivals,
            random: fastrand::Rng::with_seed(seed),
        };
        if arrivals == Arrivals::Poisson {
            schedule.missing = schedule.distance();
        }
        schedule
    }

    /// Requests until the next one, at rate 1.
    fn distance(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Constant => 1.0,
            // The inverse of the exponential distribution; 1 - f64() is never 0.
            Arrivals::Poisson => -(1.0 - self.random.f64()).ln(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        loop {
            let stage = self.stage?;
            let length = stage.duration.as_secs_f64();
            let wait = if self.missing == 0.0 { 0.0 } else { self.missing / stage.rate };
            if stage.rate > 0.0 && self.at + wait < length - ROUNDING {
                self.at += wait;
                self.missing = self.distance();
                return Some(Duration::from_secs_f64(self.base + self.at));
            }
            // What passes of the distance in this stage counts in the next one.
            self.missing = (self.missing - (length - self.at) * stage.rate).max(0.0);
            self.base += length;
            self.at = 0.0;
            self.stage = self.stages.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(stages: &[(f64, u64)], arrivals: Arrivals, seed: u64) -> Vec<f64> {
        let stages = stages
            .iter()
            .map(|&(rate, seconds)| Stage { rate, duration: Duration::from_secs(seconds) })
            .collect();
        Schedule::new(stages, arrivals, seed).map(|offset| offset.as_secs_f64()).collect()
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced_and_end_with_the_stage() {
        assert_eq!(schedule(&[(2.0, 2)], Arrivals::Constant, 1), [0.0, 0.5, 1.0, 1.5]);
        assert_eq!(schedule(&[(50.0, 2)], Arrivals::Constant, 1).len(), 100);
        assert_eq!(schedule(&[(0.0, 5)], Arrivals::Constant, 1), [0.0; 0]);
        assert_eq!(schedule(&[], Arrivals::Constant, 1), [0.0; 0]);
    }

    #[test]
    fn a_change_of_rate_keeps_what_has_passed_of_a_distance() {
        let times = schedule(&[(0.5, 3), (2.0, 1)], Arrivals::Constant, 1);
        assert_eq!(
            times,
            [0.0, 2.0, 3.25, 3.75],
            "half of the distance passed before the faster stage began"
        );
        assert_eq!(schedule(&[(1.0, 2), (0.0, 10), (1.0, 2)], Arrivals::Constant, 1), [0.0, 1.0, 12.0, 13.0]);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_the_distribution_and_repeat_with_the_seed() {
        let times = schedule(&[(50.0, 1_000)], Arrivals::Poisson, 7);
        assert!((times.len() as f64 - 50_000.0).abs() < 1_000.0, "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "an exponential spreads as wide as its mean");
        assert_eq!(times, schedule(&[(50.0, 1_000)], Arrivals::Poisson, 7));
        assert_ne!(times, schedule(&[(50.0, 1_000)], Arrivals::Poisson, 8));
    }
}
