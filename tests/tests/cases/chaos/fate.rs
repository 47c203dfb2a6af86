// SPDX-License-Identifier: Apache-2.0
//! What became of each request, by its client's answer and the engines' journal together; a request without exactly one
//! fate, or with two sides that disagree, fails the test.

use std::collections::BTreeMap;

use sluice_tests::client::Answer;
use sluice_tests::engine::journal::Outcome;
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Engines, Seen};
use sluice_tests::wire::Ended;

use super::crowd::{EVENTS, MARK, Sent};

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Everything that an engine sent.
    Answered,
    /// A whole answer that says why there is no other: status and code.
    Told(u16, String),
    /// Broken off, so that the client can tell.
    Cut,
    /// No answer, and no engine saw it: to be sent again without harm.
    Unsent,
}

/// How often each fate came, and the attempts of those that were not answered.
#[derive(Debug, Default)]
pub struct Fates {
    /// Requests by fate.
    pub count: BTreeMap<Fate, usize>,
    /// Every request that was told or cut.
    pub lost: Vec<Lost>,
}

/// A request that was told or cut.
#[derive(Debug)]
pub struct Lost {
    /// Its mark.
    pub mark: String,
    /// What became of it.
    pub fate: Fate,
    /// When it was sent (shared clock).
    pub begun: u64,
    /// When its client knew.
    pub known: u64,
    /// What engines saw of it.
    pub attempts: Vec<Seen>,
}

impl Fates {
    /// Requests of that fate.
    pub fn of(&self, fate: &Fate) -> usize {
        self.count.get(fate).copied().unwrap_or(0)
    }

    /// All requests.
    pub fn total(&self) -> usize {
        self.count.values().sum()
    }

    /// Fails unless `excuse` holds for every request that was told or cut.
    pub fn lost_only(&self, excuse: impl Fn(&Lost) -> bool) {
        for lost in &self.lost {
            assert!(excuse(lost), "{} is lost without need: {lost:?}", lost.mark);
        }
    }
}

/// Judges all. A request may have been tried at a process of `dead` besides; all other engines saw it at most once, and
/// exactly once if it was answered.
pub fn judge(sent: &[Sent], engines: &Engines, dead: &[u32]) -> Fates {
    let mut attempts: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for seen in engines.requests() {
        if let Some(mark) = seen.get(MARK) {
            attempts.entry(mark.to_owned()).or_default().push(seen.clone());
        }
    }
    let mut fates = Fates::default();
    for one in sent {
        let attempts = attempts.remove(&one.mark).unwrap_or_default();
        let fate = fate(one, &attempts);
        let living = attempts.iter().filter(|s| !dead.contains(&s.pid)).count();
        assert!(living <= 1, "{} was with {living} living engines: {attempts:?}", one.mark);
        if fate == Fate::Answered {
            answered(one, &attempts, dead);
        }
        *fates.count.entry(fate.clone()).or_default() += 1;
        if !matches!(fate, Fate::Answered | Fate::Unsent) {
            let (begun, known) = (one.answer.begun, one.answer.end_at);
            fates.lost.push(Lost { mark: one.mark.clone(), fate, begun, known, attempts });
        }
    }
    let stray: Vec<_> = attempts.keys().collect();
    assert!(stray.is_empty(), "engines saw requests that nobody sent: {stray:?}");
    fates
}

fn fate(one: &Sent, attempts: &[Seen]) -> Fate {
    let answer = &one.answer;
    match (answer.ended, answer.status) {
        (Ended::Whole, 200) => Fate::Answered,
        (Ended::Whole, status) => {
            let code = answer.error_code();
            assert!(
                status >= 400 && !code.is_empty(),
                "{} is refused without a reason: {}",
                one.mark,
                answer.brief()
            );
            Fate::Told(status, code)
        }
        (Ended::TimedOut | Ended::Left, _) => panic!("{} hangs: {}", one.mark, answer.brief()),
        (_, 0) if attempts.is_empty() => Fate::Unsent,
        _ => Fate::Cut,
    }
}

/// Everything came, and it came from the engine that wrote it down.
#[track_caller]
fn answered(one: &Sent, attempts: &[Seen], dead: &[u32]) {
    let (mark, answer) = (&one.mark, &one.answer);
    match &one.echo {
        Some(body) => assert_eq!(&answer.body, body, "{mark} got another request's answer, or a part"),
        None => assert!(whole_stream(answer), "{mark} ends without all its events: {}", answer.text()),
    }
    let hash = sha256(&answer.body);
    let noted = |s: &&Seen| {
        s.ended.is_some_and(|(_, o)| o == Outcome::Answered) && s.sent == (answer.body.len(), hash.clone())
    };
    // A process may be killed between the last byte and its note.
    let unsaid = |s: &Seen| s.ended.is_none() && dead.contains(&s.pid);
    let sources = attempts.iter().filter(noted).count();
    let told = sources == 1 || (sources == 0 && attempts.iter().any(unsaid));
    assert!(told, "{mark} is answered, by {sources} engines: {attempts:?}");
}

fn whole_stream(answer: &Answer) -> bool {
    let numbers: Vec<_> = answer.engine_events().iter().map(|(n, _)| *n).collect();
    numbers == (0..EVENTS).collect::<Vec<_>>() && answer.text().ends_with("data: [DONE]\n\n")
}
