//! Where mistakes are made on purpose: nowhere, but with the feature `planted`.

#[cfg(not(feature = "planted"))]
mod none {
    use agent_core::commit::Commit;
    use agent_core::{Error, Result, SessionId};

    use crate::tenant::Tenant;

    impl Tenant {
        pub(crate) fn plant_before(&self, _: &mut Commit) {}

        pub(crate) fn plant_doubt(&self, _: &mut Commit, _: &Error) -> bool {
            false
        }

        pub(crate) fn plant_blind(&self, _: SessionId, _: bool) -> Result<()> {
            Ok(())
        }
    }
}

#[cfg(feature = "planted")]
mod some {
    use agent_core::commit::Commit;
    use agent_core::{Error, ErrorKind, Result, SessionId, WriteOutcome};

    use crate::planted::Planted;
    use crate::tenant::Tenant;

    impl Tenant {
        pub(crate) fn plant_before(&self, commit: &mut Commit) {
            if self.bucket.planted == Some(Planted::ForgottenFence) {
                commit.fence = None;
            }
        }

        /// Whether a commit in doubt is to be tried again, as another one.
        pub(crate) fn plant_doubt(&self, commit: &mut Commit, error: &Error) -> bool {
            let planted = self.bucket.planted == Some(Planted::NewIdOnRetry)
                && error.write_outcome() == WriteOutcome::Unknown;
            if planted {
                commit.id = self.bucket.effects.new_commit_id();
            }
            planted
        }

        pub(crate) fn plant_blind(&self, id: SessionId, seen: bool) -> Result<()> {
            let blind = match self.bucket.planted {
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
}
