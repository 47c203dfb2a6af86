// SPDX-License-Identifier: Apache-2.0
//! What the demo engine says (pure): text about the request, counts of words, embeddings that depend on the text alone.

use std::time::Duration;

/// What is known of a request when its turn comes.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    pub(super) model: &'a str,
    pub(super) messages: usize,
    pub(super) words: usize,
    /// Which request this is since the start, counted from 1.
    pub(super) nth: u64,
    pub(super) uptime: Duration,
    pub(super) waited: Duration,
}

/// Words between white space: what the demo engine counts as tokens.
pub(super) fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// An answer of exactly `length` tokens; joined together they are its text.
pub(super) fn answer(facts: &Facts<'_>, length: usize) -> Vec<String> {
    let Facts { model, messages, words, nth, uptime, waited } = facts;
    let said = format!(
        "This is the demo engine named {model}, not a language model. Your request had {messages} message(s) with {words} \
         word(s). It is number {nth} since this process started {:.1} s ago, and it waited {} ms for its turn. Counting on:",
        uptime.as_secs_f64(),
        waited.as_millis(),
    );
    let counted = (1_u64..).map(|number| number.to_string());
    let tokens = said.split(' ').map(str::to_owned).chain(counted).take(length);
    tokens.enumerate().map(|(index, token)| if index == 0 { token } else { format!(" {token}") }).collect()
}

/// A vector of length 1 with `dim` numbers; the same text gives the same vector, another text another one.
pub(super) fn embedding(text: &[u8], dim: usize) -> Vec<f32> {
    let mut state = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    let raw: Vec<f32> = (0..dim).map(|_| next()).collect();
    let norm = raw.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.iter().map(|x| x / norm).collect()
}
