// SPDX-License-Identifier: Apache-2.0
//! What the kernel knows of this process, under the names that Prometheus' own client libraries use.
//!
//! What cannot be read is left out.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

use super::table::Name;
use super::text::Exposition;

/// Appends it.
pub(super) fn expose(out: &mut Exposition) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let page = constant(SysconfVar::PAGE_SIZE);
    if let (Some(ticks), Some(seen)) = (constant(SysconfVar::CLK_TCK), Stat::parse(&stat)) {
        out.value(Name::ProcessCpu, &[], seen.cpu / ticks);
        out.value(Name::ProcessVirtual, &[], seen.virtual_bytes);
        out.value(Name::ProcessThreads, &[], seen.threads);
        if let Some(page) = page {
            out.value(Name::ProcessResident, &[], seen.resident_pages * page);
        }
        if let Some(boot) = boot_time(&boot) {
            out.value(Name::ProcessStart, &[], boot + seen.started / ticks);
        }
    }
    if let Ok(list) = fs::read_dir("/proc/self/fd") {
        // The one that reads the list is in it.
        out.value(Name::ProcessFds, &[], list.count().saturating_sub(1) as f64);
    }
    if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        out.value(Name::ProcessFdsMax, &[], soft as f64);
    }
}

fn constant(name: SysconfVar) -> Option<f64> {
    sysconf(name).ok().flatten().filter(|value| *value > 0).map(|value| value as f64)
}

/// Of `/proc/self/stat`, see proc(5). Times are in ticks.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu: f64,
    threads: f64,
    started: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name in parentheses may hold anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first one after the name is number 3 of the manual.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Stat {
            cpu: field(14)? + field(15)?,
            threads: field(20)?,
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn boot_time(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_spaces_and_parentheses() {
        let text = "1 (a) b) S 2 3 4 5 6 7 8 9 10 11 200 50 14 15 16 17 9 19 7000 4096000 120 23";
        let wanted = Stat {
            cpu: 250.0,
            threads: 9.0,
            started: 7000.0,
            virtual_bytes: 4_096_000.0,
            resident_pages: 120.0,
        };
        assert_eq!(Stat::parse(text), Some(wanted));
        assert_eq!(Stat::parse("1 (a) S 2"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
    }
}
