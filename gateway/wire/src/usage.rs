// SPDX-License-Identifier: Apache-2.0
//! How many tokens an answer says it cost, read from its end (pure).
//!
//! OpenAI's and Anthropic's APIs state it as the member `usage` near the end of an answer or of its last event with
//! content. Only a bounded end is kept, and it is looked at once. Must not know what else answers say.

use memchr::memmem;
use serde::Deserialize;

/// Bytes of an answer's end that are kept at least; engines put up to a few hundred behind `usage`.
const KEPT: usize = 1024;

/// What an answer states; what it does not state is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the prompt.
    #[serde(rename = "prompt_tokens", alias = "input_tokens")]
    pub input: u64,
    /// Tokens of the answer.
    #[serde(rename = "completion_tokens", alias = "output_tokens")]
    pub output: u64,
}

/// Keeps the end of an answer that goes by.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    kept: Vec<u8>,
}

impl Tail {
    /// Takes the next bytes of the answer.
    pub fn feed(&mut self, bytes: &[u8]) {
        let bytes = bytes.get(bytes.len().saturating_sub(KEPT)..).unwrap_or_default();
        if self.kept.len() + bytes.len() > 2 * KEPT {
            self.kept.drain(..self.kept.len().saturating_sub(KEPT));
        }
        self.kept.extend_from_slice(bytes);
    }

    /// The last usage that is stated. Text that a model writes cannot forge it: quotes within strings are escaped.
    pub fn usage(&self) -> Option<Usage> {
        memmem::rfind_iter(&self.kept, b"\"usage\"").find_map(|at| {
            let value = self.kept.get(at + b"\"usage\"".len()..)?.trim_ascii_start().strip_prefix(b":")?;
            // What follows the value is of no interest.
            serde_json::Deserializer::from_slice(value).into_iter::<Option<Usage>>().next()?.ok()?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(pieces: &[&str]) -> Option<(u64, u64)> {
        let mut tail = Tail::default();
        pieces.iter().for_each(|piece| tail.feed(piece.as_bytes()));
        assert!(tail.kept.len() <= 2 * KEPT);
        tail.usage().map(|usage| (usage.input, usage.output))
    }

    #[test]
    fn whole_answers_and_streams_state_it_near_their_end() {
        let long = "x".repeat(5_000);
        let details = r#""prompt_tokens_details":{"cached_tokens":3}"#;
        let openai = format!(
            r#"{{"choices":[{{"text":"{long}"}}],"usage":{{"prompt_tokens":7,{details},"completion_tokens":21}},"id":"a"}}"#
        );
        assert_eq!(usage(&[&openai]), Some((7, 21)));
        let pieces: Vec<&str> =
            openai.as_bytes().chunks(3).map(|piece| std::str::from_utf8(piece).unwrap_or("")).collect();
        assert_eq!(usage(&pieces), Some((7, 21)));
        let last = format!(
            r#"{{"choices":[{{"text":"{long}"}}],"usage":{{"completion_tokens":20,"prompt_tokens":7}}}}"#
        );
        assert_eq!(usage(&[&last]), Some((7, 20)));
        let stream = [
            "data: {\"usage\":null}\n\n",
            "data: {\"choices\":[],\"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 2}}\n\n",
            "data: {\"usage\":null}\n\ndata: [DONE]\n\n",
        ];
        assert_eq!(usage(&stream), Some((7, 2)));
        assert_eq!(usage(&[r#"{"usage":{"input_tokens":4,"output_tokens":5}}"#]), Some((4, 5)));
        assert_eq!(usage(&[r#"{"data":[],"usage":{"prompt_tokens":9,"total_tokens":9}}"#]), Some((9, 0)));
    }

    #[test]
    fn what_states_none_has_none() {
        let forged = r#"{"content":"\"usage\":{\"completion_tokens\":9}"}"#;
        for text in [
            "",
            "data: [DONE]\n\n",
            forged,
            r#"{"usage":{"completion_tokens":-1}}"#,
            r#"{"usage":{"compl"#,
            r#"{"usage""#,
        ] {
            assert_eq!(usage(&[text]), None, "{text}");
        }
    }
}
