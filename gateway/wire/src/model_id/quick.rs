// SPDX-License-Identifier: Apache-2.0
//! One pass over an ordinary JSON body, many bytes of a string at a time.
//!
//! Owns nothing but speed: what it finds, the reader in the parent module finds as well, and whatever is wrong,
//! unusual or ambiguous it leaves to that one. Prompts are long strings, and these are what it is quick at.

use super::DEPTH_MAX;

/// The `model` of an object that is sound, names exactly one, and has no escapes in its own keys and in that name.
pub(super) fn model(json: &str) -> Option<&str> {
    let mut scan = Scan { json, at: 0 };
    scan.space();
    scan.expect(b'{')?;
    let mut model = None;
    loop {
        scan.space();
        let key = scan.plain_string()?;
        scan.colon()?;
        if !key.eq_ignore_ascii_case("model") {
            scan.value()?;
        } else if key == "model" && model.is_none() {
            model = Some(scan.plain_string()?);
        } else {
            return None;
        }
        scan.space();
        match scan.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    scan.space();
    model.filter(|name| !name.is_empty() && scan.at == json.len())
}

/// A place in the text. Every method steps over what it names, or says that something else is there.
struct Scan<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a [u8] {
        self.json.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.rest().first().copied()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.rest().first() == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.rest().first() {
            self.at += 1;
        }
    }

    fn colon(&mut self) -> Option<()> {
        self.space();
        self.expect(b':')?;
        self.space();
        Some(())
    }

    fn key(&mut self) -> Option<()> {
        self.space();
        self.string()?;
        self.colon()
    }

    /// A string without escapes, and its content.
    fn plain_string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let end = start + self.run()?;
        self.expect(b'"')?;
        self.json.get(start..end)
    }

    /// Everything up to a quote or a backslash; control characters have no place there.
    fn run(&mut self) -> Option<usize> {
        let rest = self.rest();
        let end = memchr::memchr2(b'"', b'\\', rest)?;
        // Without early end, so that the compiler compares many bytes at once.
        let bad = rest.get(..end)?.iter().fold(false, |bad, &byte| bad | (byte < 0x20));
        self.at += end;
        (!bad).then_some(end)
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            self.run()?;
            if self.next()? == b'"' {
                return Some(());
            }
            match self.next()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' => {
                    let digits = self.rest().get(..4)?;
                    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                    self.at += 4;
                }
                _ => return None,
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest().starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    /// A member's value, however deep: of what is open, `kinds` keeps a bit each, the innermost lowest, 1 for objects.
    fn value(&mut self) -> Option<()> {
        let (mut depth, mut kinds) = (1, 0u64);
        loop {
            match self.rest().first()? {
                b'"' => self.string()?,
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                b'-' | b'0'..=b'9' => self.number()?,
                open @ (b'{' | b'[') => {
                    let is_object = *open == b'{';
                    self.at += 1;
                    self.space();
                    (depth < DEPTH_MAX).then_some(())?;
                    if !self.take(if is_object { b'}' } else { b']' }) {
                        (depth, kinds) = (depth + 1, kinds << 1 | u64::from(is_object));
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => return None,
            }
            if self.close(&mut depth, &mut kinds)? {
                return Some(());
            }
        }
    }

    /// Behind a value: closes what ends here. `true` if that was everything, `false` if another value follows.
    fn close(&mut self, depth: &mut usize, kinds: &mut u64) -> Option<bool> {
        while *depth > 1 {
            let is_object = *kinds & 1 == 1;
            self.space();
            match self.next()? {
                b',' if is_object => return self.key().map(|()| false),
                b',' => {
                    self.space();
                    return Some(false);
                }
                b'}' if is_object => {}
                b']' if !is_object => {}
                _ => return None,
            }
            (*depth, *kinds) = (*depth - 1, *kinds >> 1);
        }
        Some(true)
    }
}
