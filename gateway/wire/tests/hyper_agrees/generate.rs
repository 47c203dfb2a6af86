// SPDX-License-Identifier: Apache-2.0
//! Messages from building blocks, the same ones in every run.

/// A small generator of numbers; what it gives depends on its seed alone.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % most
    }

    pub fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const FIELDS: [&str; 22] = [
    "Accept: */*",
    "User-Agent:curl/8",
    "X-A: 1",
    "x-a:\t2 \t",
    "X-B:",
    "X-C: a, b;q=\"1, 2\"",
    "Cookie: a=b",
    "Cookie: c=d",
    "Authorization: Bearer s",
    "x-api-key: k",
    "Content-Type: application/json",
    "X-Forwarded-For: 1.2.3.4",
    "x-sluice-model: m",
    "X-Request-Id: r",
    "Connection: keep-alive",
    "Connection: close, X-A",
    "connection: x-b",
    "Keep-Alive: timeout=5",
    "TE: trailers",
    "Proxy-Connection: close",
    "X-D: \u{e9}\u{ff}",
    "Via: 1.1 p",
];

fn fields(dice: &mut Dice) -> String {
    let count = dice.below(5);
    (0..count).map(|_| format!("{}\r\n", dice.one(&FIELDS))).collect()
}

/// The lines that frame a body, and the body.
fn body(dice: &mut Dice) -> (String, String) {
    let text = "data \r\n0\r\n\r\nGET / HTTP/1.1\r\n"[..dice.below(29)].to_owned();
    match dice.below(4) {
        0 => (String::new(), String::new()),
        1 => (format!("Content-Length: {}\r\n", text.len()), text),
        2 => (format!("content-length:00{}\r\n", text.len()), text),
        _ => {
            let mut body = String::new();
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(1 + dice.below(rest.len()));
                let extension = dice.one(&["", "", ";a", ";a=\"b;c\""]);
                body += &match dice.below(3) {
                    0 => format!("{:x}{extension}\r\n{chunk}\r\n", chunk.len()),
                    1 => format!("{:X}{extension}\r\n{chunk}\r\n", chunk.len()),
                    _ => format!("00{:x}{extension}\r\n{chunk}\r\n", chunk.len()),
                };
                rest = after;
            }
            let trailers =
                dice.one(&["", "", "X-T: 1\r\n", "content-length: 3\r\nx-sum: 2 \r\nX-Sum: 3\r\n"]);
            (
                format!("{}\r\n", dice.one(&["Transfer-Encoding: chunked", "transfer-encoding:Chunked"])),
                body + "0\r\n" + trailers + "\r\n",
            )
        }
    }
}

/// One to three requests on one connection.
pub fn requests(dice: &mut Dice) -> Vec<u8> {
    let mut out = String::new();
    for _ in 0..=dice.below(3) {
        let method = dice.one(&["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]);
        let target = dice.one(&[
            "/",
            "/v1/x?a=b&c",
            "/a%20b/../c",
            "http://a/x?y",
            "http://A:80",
            "*",
            "/{\"}[]|^?`\\^{}",
        ]);
        let version = dice.one(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]);
        let host = dice.one(&["Host: a\r\n", "host:a\r\n", "HOST: a \r\n", "", "Host: b\r\n"]);
        let upgrade =
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let special = dice.one(&["", "", "", "Expect: 100-continue\r\n", "Max-Forwards: 2\r\n", upgrade]);
        let (framing, body) = body(dice);
        let lead = dice.one(&["", "", "\r\n"]);
        out += &format!(
            "{lead}{method} {target} {version}\r\n{host}{}{framing}{special}{}\r\n{body}",
            fields(dice),
            fields(dice)
        );
    }
    damaged(latin1(&out), dice)
}

/// A response, perhaps behind an interim one.
pub fn response(dice: &mut Dice) -> Vec<u8> {
    let interim = dice.one(&[
        "",
        "",
        "",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    ]);
    let version = dice.one(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]);
    let status = dice.one(&[
        "200 OK",
        "200",
        "204 No Content",
        "304 Not Modified",
        "404 Not Found ",
        "500 \u{e9}",
        "429 \t",
    ]);
    let fold = dice.one(&["", "", "", "X-Fold: a\r\n b\r\n\tc\r\n"]);
    let again = dice.one(&["", "", "", "Content-Length: 4\r\n", "Trailer: x-t\r\n"]);
    let (framing, body) = body(dice);
    let out = format!(
        "{interim}{version} {status}\r\n{}{framing}{fold}{again}{}\r\n{body}",
        fields(dice),
        fields(dice)
    );
    damaged(latin1(&out), dice)
}

fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn damaged(mut bytes: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    const BYTES: &[u8] = b"\r\n \t:;,=0123456789abcfgxX/?#\0\x7f\xe9-_%*@[]\"";
    if dice.chance(50) {
        return bytes;
    }
    for _ in 0..=dice.below(3) {
        let (at, byte) = (dice.below(bytes.len()), BYTES[dice.below(BYTES.len())]);
        match dice.below(4) {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => {
                let lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|c| *c == b'\n').map(<[u8]>::to_vec).collect();
                let (from, to) = (dice.below(lines.len()), dice.below(lines.len()));
                bytes = [lines[..to].concat(), lines[from].clone(), lines[to..].concat()].concat();
            }
        }
    }
    bytes
}
