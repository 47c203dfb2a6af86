// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

fn after(stream: &str) -> (bool, u64) {
    let mut watch = EventBoundary::default();
    watch.feed(stream.as_bytes());
    (watch.at_boundary(), watch.events())
}

#[test]
fn a_stream_may_be_cut_at_its_start_and_behind_empty_lines_only() {
    for (stream, outcome) in [
        ("", (true, 0)),
        ("d", (false, 0)),
        ("data: a", (false, 0)),
        ("data: a\n", (false, 0)),
        ("data: a\n\n", (true, 1)),
        ("data: a\r\n\r\n", (true, 1)),
        ("data: a\r\r", (true, 1)),
        ("data: a\r\n\r", (true, 1)),
        ("data: a\r\n", (false, 0)),
        ("data: a\r\n\n", (true, 1)),
        ("data: a\n\r\n", (true, 1)),
        ("data: a\r", (false, 0)),
        ("data: a\n\ndata: b", (false, 1)),
        ("data: a\ndata: b\n\n", (true, 1)),
        ("event: x\ndata: a\n\ndata: [DONE]\n\n", (true, 2)),
        ("\n\n\r\n\r\r", (true, 0)),
    ] {
        assert_eq!(after(stream), outcome, "{stream:?}");
    }
}

#[test]
fn only_events_with_data_count() {
    for (stream, events) in [
        (": keep-alive\n\n", 0),
        ("event: ping\n\n", 0),
        ("data\n\n", 1),
        ("data:\n\n", 1),
        ("dat: a\n\n", 0),
        ("database: a\n\n", 0),
        (" data: a\n\n", 0),
        ("id: 1\ndata: a\nretry: 5\n\n", 1),
        (": data: a\n\n", 0),
    ] {
        assert_eq!(after(stream).1, events, "{stream:?}");
    }
}

/// Reads line by line, as the format's definition does.
fn oracle(stream: &str) -> (bool, u64) {
    let text = stream.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<_> = text.split('\n').collect();
    let (open, ended) = lines.split_last().map_or(("", &[][..]), |(open, ended)| (*open, ended));
    let (mut events, mut data) = (0, false);
    for line in ended {
        data |= *line == "data" || line.starts_with("data:");
        if line.is_empty() && std::mem::take(&mut data) {
            events += 1;
        }
    }
    (open.is_empty() && ended.last().is_none_or(|line| line.is_empty()), events)
}

proptest! {
    #[test]
    fn splitting_changes_nothing(
        stream in "(data|: c|event|d|da|x|:| |\r|\n|\r\n){0,24}",
        cuts in proptest::collection::vec(0usize..64, 0..6),
    ) {
        let mut watch = EventBoundary::default();
        let mut cuts: Vec<_> = cuts.iter().map(|c| c % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            watch.feed(&stream.as_bytes()[pair[0]..pair[1]]);
        }
        prop_assert_eq!((watch.at_boundary(), watch.events()), oracle(&stream));
    }
}
