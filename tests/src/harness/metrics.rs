// SPDX-License-Identifier: Apache-2.0
//! A strict reader of the Prometheus text format.

use std::collections::BTreeMap;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Metric name.
    pub name: String,
    /// Label values by name.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

/// A scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// All samples in order.
    pub samples: Vec<Sample>,
}

impl Metrics {
    /// Parses; an error names the line.
    pub fn parse(text: &str) -> Result<Metrics, String> {
        let mut metrics = Metrics::default();
        let mut kinds = BTreeMap::new();
        for line in text.split('\n').filter(|l| !l.is_empty()) {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').ok_or_else(|| format!("no type: {line}"))?;
                if kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                    return Err(format!("type given twice: {line}"));
                }
            } else if !line.starts_with('#') {
                metrics.samples.push(sample(line).ok_or_else(|| format!("not a sample: {line}"))?);
            }
        }
        match metrics.duplicate() {
            Some(twice) => Err(format!("series given twice: {twice:?}")),
            None => Ok(metrics),
        }
    }

    fn duplicate(&self) -> Option<&Sample> {
        let mut seen = std::collections::BTreeSet::new();
        self.samples.iter().find(|s| !seen.insert((&s.name, &s.labels)))
    }

    /// Samples of that name with those labels.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Sample> {
        let fits = |s: &&Sample| {
            s.name == name && labels.iter().all(|(k, v)| s.labels.get(*k).is_some_and(|have| have == v))
        };
        self.samples.iter().filter(fits).collect()
    }

    /// Their sum; 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).iter().map(|s| s.value).sum()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':') {
        return None;
    }
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = parse_labels(inner, &mut labels)?;
    }
    let mut words = rest.strip_prefix(' ')?.split(' ');
    let value = match words.next()? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().ok()?,
    };
    (words.count() <= 1).then_some(Sample { name: name.to_owned(), labels, value })
}

fn parse_labels<'a>(mut rest: &'a str, labels: &mut BTreeMap<String, String>) -> Option<&'a str> {
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, after) = unquote(quoted)?;
        if labels.insert(name.to_owned(), value).is_some() {
            return None;
        }
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_summed() {
        let text = "# HELP a_total help\n# TYPE a_total counter\na_total{model=\"x\",code=\"200\"} 3\na_total{model=\"y\\\"\\n\"} 4\nb 1.5 99\nc{le=\"+Inf\"} +Inf\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.sum("a_total", &[]), 7.0);
        assert_eq!(metrics.sum("a_total", &[("model", "x")]), 3.0);
        assert_eq!(metrics.find("a_total", &[("model", "y\"\n")]).len(), 1);
        assert_eq!(metrics.sum("none", &[]), 0.0);
    }

    #[test]
    fn broken_expositions_are_refused() {
        for text in [
            "a{b=\"c} 1",
            "a{b=\"\\x\"} 1",
            "a",
            "a 1\na 1",
            "# TYPE a gauge\n# TYPE a gauge",
            "a{b=\"1\",b=\"2\"} 1",
        ] {
            assert!(Metrics::parse(text).is_err(), "{text}");
        }
    }
}
