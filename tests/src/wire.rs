// SPDX-License-Identifier: Apache-2.0
//! Reading HTTP/1 messages off a socket, for the engine and for the client: lenient, and exact about what came when.
//!
//! Owns heads, framings and chunk decoding. Must not judge: whatever arrives is handed on as it is.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::engine::journal::Fields;

/// The largest head that is waited for.
const HEAD_LIMIT: usize = 4 << 20;

/// The start line and the header of a message.
#[derive(Clone, Debug, Default)]
pub struct RawHead {
    /// Without its line end.
    pub line: String,
    /// As received, values trimmed.
    pub fields: Fields,
    /// Every byte, with the blank line.
    pub bytes: Vec<u8>,
}

impl RawHead {
    /// The first field of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The part of the start line with that index.
    pub fn word(&self, n: usize) -> &str {
        self.line.splitn(3, ' ').nth(n).unwrap_or_default()
    }

    fn parse(bytes: Vec<u8>) -> RawHead {
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        let line = lines.next().unwrap_or_default().to_owned();
        let field = |l: &str| l.split_once(':').map(|(n, v)| (n.to_owned(), v.trim().to_owned()));
        let fields = lines.filter_map(field).collect();
        RawHead { line, fields, bytes }
    }
}

/// How a body's end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// After so many bytes.
    Length(usize),
    /// After the last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// How reading a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As announced.
    Whole,
    /// The peer closed too early, or its framing was broken.
    Cut,
    /// The connection was reset.
    Reset,
    /// An HTTP/2 stream was reset with this code.
    StreamReset(u32),
    /// The limit of the reader passed.
    TimedOut,
    /// The reader had enough.
    Left,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Ended::Cut,
            io::ErrorKind::TimedOut => Ended::TimedOut,
            io::ErrorKind::Interrupted => Ended::Left,
            _ => Ended::Reset,
        }
    }
}

/// Whether a reader of pieces wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Yes.
    More,
    /// No.
    Enough,
}

impl Want {
    fn checked(self) -> io::Result<()> {
        if self == Want::More { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    }
}

/// The reading half of a connection with what was read ahead.
pub struct Reader<R> {
    io: R,
    ahead: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Nothing read yet.
    pub fn new(io: R) -> Reader<R> {
        Reader { io, ahead: Vec::new() }
    }

    /// The half that is read from.
    pub fn get_ref(&self) -> &R {
        &self.io
    }

    /// Bytes read and not consumed.
    pub fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Reads once; 0 is the end of the connection.
    pub async fn fill(&mut self) -> io::Result<usize> {
        self.ahead.reserve(64 << 10);
        self.io.read_buf(&mut self.ahead).await
    }

    async fn need(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let rest = self.ahead.split_off(n);
        std::mem::replace(&mut self.ahead, rest)
    }

    /// The next head; `None` when the connection ended before its first byte. Cancel safe.
    pub async fn head(&mut self) -> io::Result<Option<RawHead>> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n\r\n") {
                return Ok(Some(RawHead::parse(self.take(at + 4))));
            }
            if self.ahead.len() > HEAD_LIMIT {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.fill().await? == 0 {
                return if self.ahead.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Reads a body, hands on each piece as it comes, and returns the trailer fields. Ends with `Interrupted` when
    /// `piece` has had enough.
    pub async fn body(&mut self, end: BodyEnd, mut piece: impl FnMut(&[u8]) -> Want) -> io::Result<Fields> {
        match end {
            BodyEnd::Length(n) => self.exactly(n, &mut piece).await.map(|()| Fields::new()),
            BodyEnd::Chunked => self.chunks(&mut piece).await,
            BodyEnd::Close => loop {
                let got = self.take(self.ahead.len());
                piece(&got).checked()?;
                if self.fill().await? == 0 {
                    return Ok(Fields::new());
                }
            },
        }
    }

    async fn exactly(&mut self, mut left: usize, piece: &mut impl FnMut(&[u8]) -> Want) -> io::Result<()> {
        while left > 0 {
            if self.ahead.is_empty() {
                self.need().await?;
            }
            let got = self.take(left.min(self.ahead.len()));
            left -= got.len();
            piece(&got).checked()?;
        }
        Ok(())
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n") {
                let line = self.take(at + 2);
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.need().await?;
        }
    }

    async fn chunks(&mut self, piece: &mut impl FnMut(&[u8]) -> Want) -> io::Result<Fields> {
        loop {
            let line = self.line().await?;
            let digits = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
            if size == 0 {
                return self.trailers().await;
            }
            self.exactly(size, piece).await?;
            if !self.line().await?.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    async fn trailers(&mut self) -> io::Result<Fields> {
        let mut fields = Fields::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else {
                return if line.is_empty() { Ok(fields) } else { Err(io::ErrorKind::InvalidData.into()) };
            };
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }
}

/// Keeps a piece and wants more.
pub fn keep(into: &mut Vec<u8>, piece: &[u8]) -> Want {
    into.extend_from_slice(piece);
    Want::More
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|w| w == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8], end: BodyEnd) -> (Vec<u8>, Result<Fields, Ended>) {
        let mut got = Vec::new();
        let mut reader = Reader::new(bytes);
        let result = reader.body(end, |p| keep(&mut got, p)).await.map_err(Ended::from);
        (got, result)
    }

    #[tokio::test]
    async fn heads_keep_every_byte_and_what_follows() {
        let mut reader = Reader::new(&b"GET /a?b HTTP/1.1\r\nHost: x\r\nX-Y:  z \r\n\r\nrest"[..]);
        let head = reader.head().await.unwrap().unwrap();
        assert_eq!((head.word(0), head.word(1), head.word(2)), ("GET", "/a?b", "HTTP/1.1"));
        assert_eq!((head.get("host"), head.get("x-y"), head.get("none")), (Some("x"), Some("z"), None));
        assert_eq!(reader.ahead(), b"rest");
    }

    #[tokio::test]
    async fn chunks_are_decoded_and_trailers_kept() {
        let (got, fields) = read(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n", BodyEnd::Chunked).await;
        assert_eq!((got.as_slice(), fields.unwrap()), (&b"abcde"[..], vec![("T".into(), "v".into())]));
    }

    #[tokio::test]
    async fn a_short_body_is_cut() {
        assert_eq!(read(b"abc", BodyEnd::Length(4)).await, (b"abc".to_vec(), Err(Ended::Cut)));
        assert_eq!(read(b"3\r\nabc\r\n", BodyEnd::Chunked).await, (b"abc".to_vec(), Err(Ended::Cut)));
        assert_eq!(read(b"3\r\nabcd\r\n0\r\n\r\n", BodyEnd::Chunked).await.1, Err(Ended::Cut));
        assert_eq!(read(b"abc", BodyEnd::Close).await, (b"abc".to_vec(), Ok(vec![])));
    }
}
