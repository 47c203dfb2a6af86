// SPDX-License-Identifier: Apache-2.0
//! The chunked transfer coding, checked byte by byte and passed through as it came.
//!
//! Owns how a chunked body is framed and which trailers survive. Must not know what the data means. Chunk
//! extensions are passed through with the framing they stand in: taking them out would mean to write every
//! chunk anew.

use crate::fields;

/// Bytes of chunk extensions in one message at most.
pub const EXTENSIONS_MAX: usize = 8 << 10;

/// Bytes of trailers in one message at most.
pub const TRAILERS_MAX: usize = 8 << 10;

const TRAILER_FIELDS_MAX: usize = 32;

/// Why a body is not chunked data. Nothing behind this point can be trusted: both connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadChunk {
    /// Lower-case words.
    pub reason: &'static str,
}

const fn bad(reason: &'static str) -> BadChunk {
    BadChunk { reason }
}

/// What one [`Chunked::feed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes taken; fewer than given only when the body has ended.
    pub taken: usize,
    /// How many of them, from the first, may be passed on as they are.
    pub pass: usize,
    /// The body has ended and its last line is not among the passed bytes: whoever passes them writes
    /// [`Chunked::trailers`], or nothing, and then CRLF.
    pub crlf: bool,
}

/// Reads one chunked body, however it is cut.
#[derive(Debug, Default)]
pub struct Chunked {
    state: State,
    /// Bytes left of the current chunk.
    left: u64,
    digits: u8,
    extension_bytes: usize,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line or of the last, empty line.
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
    Done,
}

impl Chunked {
    /// Whether the body has ended.
    pub fn done(&self) -> bool {
        self.state == State::Done
    }

    /// Once done, the trailers that may be passed on, as lines `name: value CRLF`.
    pub fn trailers(&self) -> &[u8] {
        if self.done() { &self.trailers } else { b"" }
    }

    /// Takes the next bytes and calls `data` with every piece of content in them, in order. After an error
    /// the decoder is of no further use.
    pub fn feed(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<Fed, BadChunk> {
        let (mut taken, mut pass) = (0, 0);
        while self.state != State::Done {
            let Some((byte, rest)) = bytes.get(taken..).and_then(<[u8]>::split_first) else { break };
            if self.state == State::Data {
                let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len() + 1);
                data(bytes.get(taken..taken + here).unwrap_or_default());
                self.left -= here as u64;
                taken += here;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
            } else {
                self.framing(*byte)?;
                taken += 1;
            }
            if !self.withheld() {
                pass = taken;
            }
        }
        // The end is passed on only when nothing was held back before it.
        if self.done() && self.trailers.is_empty() && pass + 2 == taken {
            pass = taken;
        }
        if self.done() && pass != taken {
            self.finish_trailers()?;
            return Ok(Fed { taken, pass, crlf: true });
        }
        Ok(Fed { taken, pass, crlf: false })
    }

    /// Whether what was just taken may turn out to be a trailer or what stands behind one.
    fn withheld(&self) -> bool {
        match self.state {
            State::TrailerStart => !self.trailers.is_empty(),
            State::Trailer | State::TrailerLf | State::LastLf | State::Done => true,
            _ => false,
        }
    }

    fn framing(&mut self, byte: u8) -> Result<(), BadChunk> {
        self.state = match (self.state, byte) {
            (State::Size, b'\r') if self.digits > 0 => State::SizeLf,
            (State::Size, b';') if self.digits > 0 => State::Extension,
            (State::Size, _) => self.size_digit(byte)?,
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.extension_byte()?,
            (State::Extension, _) => return Err(bad("control character in a chunk extension")),
            (State::SizeLf, b'\n') => {
                self.digits = 0;
                if self.left == 0 { State::TrailerStart } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::DataCr | State::DataLf, _) => return Err(bad("chunk is longer than its size")),
            (State::TrailerStart, b'\r') => State::LastLf,
            (State::TrailerStart | State::Trailer, b'\n') => {
                return Err(bad("line feed without carriage return in a trailer"));
            }
            (State::Trailer, b'\r') => {
                self.trailer_byte(byte)?;
                State::TrailerLf
            }
            (State::TrailerStart | State::Trailer, _) => {
                self.trailer_byte(byte)?;
                State::Trailer
            }
            (State::TrailerLf, b'\n') => {
                self.trailer_byte(byte)?;
                State::TrailerStart
            }
            (State::LastLf, b'\n') => State::Done,
            (State::SizeLf | State::TrailerLf | State::LastLf, _) => {
                return Err(bad("carriage return without line feed in chunk framing"));
            }
            (State::Data | State::Done, _) => self.state,
        };
        Ok(())
    }

    fn size_digit(&mut self, byte: u8) -> Result<State, BadChunk> {
        let digit = char::from(byte).to_digit(16).ok_or(bad("chunk size is not hexadecimal"))?;
        if self.digits == 15 {
            return Err(bad("chunk size has more than 15 digits"));
        }
        self.digits += 1;
        self.left = self.left << 4 | u64::from(digit);
        Ok(State::Size)
    }

    fn extension_byte(&mut self) -> Result<State, BadChunk> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSIONS_MAX {
            return Err(bad("chunk extensions are too long"));
        }
        Ok(State::Extension)
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<(), BadChunk> {
        if self.trailers.len() == TRAILERS_MAX {
            return Err(bad("trailers are too long"));
        }
        self.trailers.push(byte);
        Ok(())
    }

    /// Checks the collected lines and leaves only the fields that may come behind a body.
    fn finish_trailers(&mut self) -> Result<(), BadChunk> {
        if self.trailers.is_empty() {
            return Ok(());
        }
        self.trailers.extend_from_slice(b"\r\n");
        let mut room = [httparse::EMPTY_HEADER; TRAILER_FIELDS_MAX];
        let whole = self.trailers.len();
        let parsed = match httparse::parse_headers(&self.trailers, &mut room) {
            Ok(httparse::Status::Complete((taken, parsed))) if taken == whole => parsed,
            Err(httparse::Error::TooManyHeaders) => return Err(bad("too many trailers")),
            _ => return Err(bad("malformed trailer")),
        };
        let mut kept = Vec::with_capacity(whole);
        for field in parsed.iter().filter(|f| fields::is_allowed_trailer(f.name.as_bytes())) {
            kept.extend_from_slice(field.name.as_bytes());
            kept.extend_from_slice(b": ");
            kept.extend_from_slice(field.value);
            kept.extend_from_slice(b"\r\n");
        }
        self.trailers = kept;
        Ok(())
    }
}

/// Writes the line before a chunk of `len` bytes, `len` > 0, into `room` and gives its bytes.
pub fn chunk_head(len: u64, room: &mut [u8; 18]) -> &[u8] {
    let digits = (16 - len.leading_zeros() as usize / 4).max(1);
    for (at, slot) in room.iter_mut().enumerate() {
        *slot = match at {
            _ if at < digits => {
                let nibble = len >> (4 * (digits - 1 - at)) & 0xf;
                char::from_digit(nibble as u32, 16).map_or(b'0', |c| c as u8)
            }
            _ if at == digits => b'\r',
            _ => b'\n',
        };
    }
    room.get(..digits + 2).unwrap_or_default()
}

#[cfg(test)]
mod tests;
