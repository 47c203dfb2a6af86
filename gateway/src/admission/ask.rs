// SPDX-License-Identifier: Apache-2.0
//! What a request says of itself when it asks for a replica.

use sluice_core::{Micros, ReplicaId};

/// Priority. A higher class is served first; inside one, who came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nobody waits for the answer.
    Batch,
    /// Everything else.
    #[default]
    Standard,
}

impl Class {
    /// Every class, lowest first.
    pub const ALL: [Class; 2] = [Class::Batch, Class::Standard];

    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Batch => "batch",
            Class::Standard => "standard",
        }
    }
}

/// A request's demand for a replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// Bytes of its body that are held while it waits.
    pub body_bytes: usize,
    /// Priority.
    pub class: Class,
    /// The client's own deadline, on `sluice_scaler::clock`'s time line.
    pub deadline: Option<Micros>,
    /// Wait for a slot if none is free; otherwise be refused at once.
    pub hold: bool,
}

/// Time a request has spent waiting, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// While the model had no ready replica.
    pub cold: Micros,
    /// While it had one.
    pub warm: Micros,
}

impl Spent {
    pub(crate) fn plus(self, other: Spent) -> Spent {
        Spent { cold: self.cold.after(other.cold), warm: self.warm.after(other.warm) }
    }

    pub(crate) fn since(self, earlier: Spent) -> Spent {
        Spent { cold: self.cold.since(earlier.cold), warm: self.warm.since(earlier.warm) }
    }
}

/// A request in the line or in flight: what stays with it from its arrival to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub place: Place,
    pub body_bytes: usize,
    pub deadline: Option<Micros>,
    /// Over all its waits so far.
    pub spent: Spent,
    /// Where it failed; it has been at a replica if set.
    pub avoid: Option<ReplicaId>,
}

/// Position in the line: by class, then by arrival. Kept over a retry, so a request never waits behind younger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    class: std::cmp::Reverse<Class>,
    arrival: u64,
}

impl Place {
    pub(crate) fn new(class: Class, arrival: u64) -> Place {
        Place { class: std::cmp::Reverse(class), arrival }
    }

    pub(crate) fn class(self) -> Class {
        self.class.0
    }
}
