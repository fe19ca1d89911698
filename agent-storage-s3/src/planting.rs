//! Where mistakes are made on purpose: nowhere, but with the feature `planted`.

#[cfg(not(feature = "planted"))]
pub(crate) use none::{plant_before, plant_blind, plant_doubt};
#[cfg(feature = "planted")]
pub(crate) use some::{plant_before, plant_blind, plant_doubt};

#[cfg(not(feature = "planted"))]
mod none {
    use agent_core::commit::Commit;
    use agent_core::{Error, Result, SessionId};

    use crate::object::Bucket;

    pub(crate) fn plant_before(_: &Bucket, _: &mut Commit) {}

    pub(crate) fn plant_doubt(_: &Bucket, _: &mut Commit, _: &Error) -> bool {
        false
    }

    pub(crate) fn plant_blind(_: &Bucket, _: SessionId, _: bool) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "planted")]
mod some {
    use agent_core::commit::Commit;
    use agent_core::{Error, ErrorKind, Result, SessionId, WriteOutcome};

    use crate::object::Bucket;
    use crate::planted::Planted;

    pub(crate) fn plant_before(bucket: &Bucket, commit: &mut Commit) {
        if bucket.planted == Some(Planted::ForgottenFence) {
            commit.fence = None;
        }
    }

    /// Whether a commit in doubt is to be tried again, as another one.
    pub(crate) fn plant_doubt(bucket: &Bucket, commit: &mut Commit, error: &Error) -> bool {
        let planted =
            bucket.planted == Some(Planted::NewIdOnRetry) && error.write_outcome() == WriteOutcome::Unknown;
        if planted {
            commit.id = bucket.effects.new_commit_id();
        }
        planted
    }

    pub(crate) fn plant_blind(bucket: &Bucket, id: SessionId, seen: bool) -> Result<()> {
        let blind = match bucket.planted {
            Some(Planted::ConflictWithoutProvenance) => true,
            Some(Planted::ConflictAsExists) => !seen,
            _ => false,
        };
        if blind {
            return Err(Error::new(
                ErrorKind::Conflict { head: None },
                format!("session {id}: the slot exists (planted)"),
            ));
        }
        Ok(())
    }
}
