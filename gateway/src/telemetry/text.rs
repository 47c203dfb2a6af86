// SPDX-License-Identifier: Apache-2.0
//! The exposition (pure): Prometheus' text format 0.0.4 and OpenMetrics 1.0, from the same samples.
//!
//! Owns names, order, escaping and the differences of the two formats. Must not know where numbers come from.

use std::fmt::Write;

use super::table::{Kind, METRICS, Metric, Name};
use super::value::Histogram;

/// A form of the exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `text/plain; version=0.0.4`
    Text,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl Format {
    /// What a scraper that sent this `accept` gets: OpenMetrics if it names it, at least as gladly as plain text.
    pub fn accepted(accept: &str) -> Format {
        let weight = |kind: &str| {
            let range = accept.split(',').find(|range| range.trim_start().starts_with(kind))?;
            let q = range.split(';').find_map(|parameter| parameter.trim().strip_prefix("q="));
            Some(q.map_or(1.0, |q| q.trim().parse().unwrap_or(0.0)))
        };
        let (open, plain): (f32, f32) =
            (weight("application/openmetrics-text").unwrap_or(0.0), weight("text/plain").unwrap_or(0.0));
        if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Text }
    }

    /// The media type to answer with.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Samples on their way into one text.
pub(crate) struct Exposition {
    format: Format,
    /// The samples of each metric, in the order of the table.
    samples: Vec<String>,
}

impl Exposition {
    pub(crate) fn new(format: Format) -> Exposition {
        Exposition { format, samples: vec![String::new(); METRICS.len()] }
    }

    /// One sample; `labels` are the values of the metric's labels, in its order.
    pub(crate) fn value(&mut self, name: Name, labels: &[&str], value: f64) {
        self.line(name, "", labels, None, value);
    }

    /// A count; exact up to 2⁵³.
    pub(crate) fn count(&mut self, name: Name, labels: &[&str], count: u64) {
        self.value(name, labels, count as f64);
    }

    pub(crate) fn histogram(&mut self, name: Name, labels: &[&str], histogram: &Histogram) {
        let seen = histogram.snapshot();
        for (bound, count) in seen.buckets {
            let bound = match self.format {
                Format::Text => format!("{bound}"),
                Format::OpenMetrics => format!("{bound:?}"),
            };
            self.line(name, "_bucket", labels, Some(&bound), count as f64);
        }
        self.line(name, "_bucket", labels, Some("+Inf"), seen.count as f64);
        self.line(name, "_sum", labels, None, seen.sum);
        self.line(name, "_count", labels, None, seen.count as f64);
    }

    /// The whole text.
    pub(crate) fn finish(self) -> String {
        let mut text = String::with_capacity(self.samples.iter().map(|s| s.len() + 200).sum());
        for (metric, samples) in METRICS.iter().zip(&self.samples) {
            head(&mut text, metric, self.format);
            text.push_str(samples);
        }
        if self.format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn line(&mut self, name: Name, suffix: &str, labels: &[&str], bound: Option<&str>, value: f64) {
        let metric = name.metric();
        debug_assert_eq!(metric.labels.len(), labels.len(), "labels of {}", metric.name);
        let Some(out) = self.samples.get_mut(name as usize) else { return };
        out.push_str(metric.name);
        out.push_str(suffix);
        let names = metric.labels.iter().map(|label| label.name).chain(bound.map(|_| "le"));
        for (at, (label, value)) in names.zip(labels.iter().copied().chain(bound)).enumerate() {
            out.push(if at == 0 { '{' } else { ',' });
            out.push_str(label);
            out.push_str("=\"");
            escape(out, value);
            out.push('"');
        }
        if !labels.is_empty() || bound.is_some() {
            out.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(out, " {value}");
    }
}

fn head(text: &mut String, metric: &Metric, format: Format) {
    let (name, kind) = match (format, metric.kind) {
        (Format::OpenMetrics, Kind::Counter) => {
            (metric.name.strip_suffix("_total").unwrap_or(metric.name), "counter")
        }
        (Format::OpenMetrics, Kind::Info) => {
            (metric.name.strip_suffix("_info").unwrap_or(metric.name), "info")
        }
        (Format::Text, Kind::Counter) => (metric.name, "counter"),
        (Format::Text, Kind::Info) | (_, Kind::Gauge) => (metric.name, "gauge"),
        (_, Kind::Histogram) => (metric.name, "histogram"),
    };
    let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help);
    if let (Format::OpenMetrics, Some(unit)) = (format, metric.unit()) {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
}

fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            plain => out.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: Format) -> String {
        let mut out = Exposition::new(format);
        let times = Histogram::seconds();
        times.time(std::time::Duration::from_millis(1500));
        out.histogram(Name::QueueWait, &["a\"b\\c\nd"], &times);
        out.count(Name::Retries, &["m"], 3);
        out.value(Name::Build, &["1", "linux", "x86_64"], 1.0);
        out.finish()
    }

    #[test]
    fn samples_stand_under_their_metric_with_labels_escaped() {
        let text = text(Format::Text);
        for line in [
            "# TYPE sluice_queue_wait_seconds histogram",
            r#"sluice_queue_wait_seconds_bucket{model="a\"b\\c\nd",le="1"} 0"#,
            r#"sluice_queue_wait_seconds_bucket{model="a\"b\\c\nd",le="2.5"} 1"#,
            r#"sluice_queue_wait_seconds_bucket{model="a\"b\\c\nd",le="+Inf"} 1"#,
            r#"sluice_queue_wait_seconds_sum{model="a\"b\\c\nd"} 1.5"#,
            r#"sluice_queue_wait_seconds_count{model="a\"b\\c\nd"} 1"#,
            "# TYPE sluice_retries_total counter",
            r#"sluice_retries_total{model="m"} 3"#,
            "# TYPE sluice_build_info gauge",
        ] {
            assert_eq!(text.lines().filter(|have| *have == line).count(), 1, "{line}\n{text}");
        }
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
    }

    #[test]
    fn openmetrics_names_families_and_units_and_ends() {
        let text = text(Format::OpenMetrics);
        for line in [
            "# TYPE sluice_retries counter",
            r#"sluice_retries_total{model="m"} 3"#,
            "# UNIT sluice_queue_wait_seconds seconds",
            "# UNIT process_cpu_seconds seconds",
            "# TYPE sluice_build info",
            r#"sluice_queue_wait_seconds_bucket{model="a\"b\\c\nd",le="1.0"} 0"#,
        ] {
            assert_eq!(text.lines().filter(|have| *have == line).count(), 1, "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_scraper_gets_openmetrics_only_if_it_asks_for_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for other in ["", "*/*", "text/plain", "application/openmetrics-text;q=0.2,text/plain;q=0.5", "a;q=x"]
        {
            assert_eq!(Format::accepted(other), Format::Text, "{other}");
        }
    }

    #[test]
    fn the_table_keeps_the_rules_of_names() {
        let mut seen = std::collections::BTreeSet::new();
        for metric in METRICS {
            let name = metric.name;
            assert!(seen.insert(name), "{name} stands twice");
            assert!(name.starts_with("sluice_") || name.starts_with("process_"), "{name}");
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert_eq!(metric.kind == Kind::Info, name.ends_with("_info"), "{name}");
            assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\']), "{name}");
            let dimensions = ["milli", "micro", "_ms", "_us", "kilo", "mega"];
            assert!(!dimensions.iter().any(|unit| name.contains(unit)), "{name} has no base unit");
        }
    }
}
