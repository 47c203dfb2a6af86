// SPDX-License-Identifier: Apache-2.0
//! A client that can misbehave: exact bytes at exact times over HTTP/1, single streams over HTTP/2, and ordinary
//! requests, many at once.
//!
//! Nothing here fails a test by itself: what went wrong is part of the answer.

mod answer;
mod conn;
mod h2;
mod request;
mod tls;

pub use answer::{Answer, Arrived};
pub use conn::Conn;
pub use h2::{H2, Stream};
pub use request::Request;
pub use tls::{Alpn, Authority};

use std::future::Future;

/// Runs `n` futures at once and returns what they yield, in order.
pub async fn many<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    n: usize,
    mut make: impl FnMut(usize) -> F,
) -> Vec<T> {
    let tasks: Vec<_> = (0..n).map(|i| tokio::spawn(make(i))).collect();
    let mut all = Vec::with_capacity(n);
    for task in tasks {
        all.push(task.await.expect("a client task does not panic"));
    }
    all
}
