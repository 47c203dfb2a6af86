// SPDX-License-Identifier: Apache-2.0
//! flate2, built on this crate, reads back what it wrote, in one piece and in small ones.
use std::io::{Read, Write};

#[test]
fn gzip_and_zlib_round_trips_are_exact() {
    let text: Vec<u8> = (0..200_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    for level in [0, 1, 6, 9] {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
        text.chunks(999).for_each(|part| gz.write_all(part).unwrap());
        let packed = gz.finish().unwrap();
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut back).unwrap();
        assert!(back == text, "gzip level {level}");
        assert!(level == 0 || packed.len() < text.len() / 2);

        let mut z = flate2::read::ZlibEncoder::new(&text[..], flate2::Compression::new(level));
        let mut packed = Vec::new();
        z.read_to_end(&mut packed).unwrap();
        let mut back = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut back).unwrap();
        assert!(back == text, "zlib level {level}");
    }
}

#[test]
fn damage_is_an_error() {
    let mut bad = &b"\x1f\x8b\x08\x00 this is not deflate data at all"[..];
    assert!(flate2::read::GzDecoder::new(&mut bad).read_to_end(&mut Vec::new()).is_err());
}
