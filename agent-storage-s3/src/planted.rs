//! Ways to get the protocol wrong, for the tests that must notice. Compiled only with the feature `planted`.

/// A mistake that is made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Planted {
    /// A slot that exists is reported as a conflict, without looking whose it is.
    ConflictWithoutProvenance,
    /// A 409, which stored nothing, is taken for "another's commit is there".
    ConflictAsExists,
    /// A commit in doubt is sent again under a new id, on the head as it is then.
    NewIdOnRetry,
    /// Objects that are replaced say nothing of who wrote them, so that equal ones are equal byte for byte.
    EqualBodies,
    /// The epoch of a run's writes is not compared.
    ForgottenFence,
    /// A purge deletes slots instead of emptying them.
    CollectedSlotReused,
    /// A cached head is served without asking whether it is still the newest.
    StaleHead,
}

impl Planted {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ConflictWithoutProvenance,
        Self::ConflictAsExists,
        Self::NewIdOnRetry,
        Self::EqualBodies,
        Self::ForgottenFence,
        Self::CollectedSlotReused,
        Self::StaleHead,
    ];
}
