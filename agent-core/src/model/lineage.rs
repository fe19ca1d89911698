//! Location of a session's history: in its ancestors up to the point of the fork, then in the session itself.

use serde::{Deserialize, Serialize};

use crate::base::{Seq, SessionId};

/// Part of a history that is stored in an ancestor: the ancestor's events up to and including `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Segment {
    /// Ancestor whose log holds the events.
    pub session: SessionId,
    /// Last event of the ancestor that belongs to the history.
    pub until: Seq,
}

/// Ancestors of a session, oldest first. Empty for a session that was not forked.
///
/// Segment `i` holds the events after the `until` of segment `i - 1`. A record keeps at most
/// [`Lineage::MAX_SEGMENTS`]. In a deeper chain of forks, the lineage of the oldest kept segment's session continues
/// the chain, so a fork of any depth never copies events.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lineage {
    /// Segments, oldest first, with growing `until`.
    pub segments: Vec<Segment>,
    /// True if the history before the first segment's own events continues in that session's lineage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deeper: bool,
}

impl Lineage {
    /// Maximum number of segments that a record keeps.
    pub const MAX_SEGMENTS: usize = 32;

    /// Returns the last event that is stored in an ancestor; the session's own events start after it.
    pub fn base(&self) -> Seq {
        self.segments.last().map_or(Seq::ZERO, |segment| segment.until)
    }

    /// Returns the lineage of a session forked from `parent` after its event `at`; `self` is the lineage of `parent`.
    ///
    /// Ancestors that contribute no events are left out.
    pub fn forked(&self, parent: SessionId, at: Seq) -> Self {
        let base = self.base();
        let mut segments: Vec<Segment> = Vec::with_capacity(self.segments.len() + 1);
        let mut below = Seq::ZERO;
        for segment in &self.segments {
            if below >= at {
                break;
            }
            segments.push(Segment { session: segment.session, until: segment.until.min(at) });
            below = segment.until;
        }
        if at > base {
            segments.push(Segment { session: parent, until: at });
        }
        let surplus = segments.len().saturating_sub(Self::MAX_SEGMENTS);
        segments.drain(..surplus);
        Self { deeper: (self.deeper || surplus > 0) && !segments.is_empty(), segments }
    }

    /// Returns the location of the event `seq` in the history of the session `own`, whose lineage this is.
    ///
    /// The result is the session whose log holds the event, and the last event of that log that belongs to this
    /// history; `None` if all of them do.
    ///
    /// ```
    /// use agent_core::Seq;
    /// use agent_core::clock::Effects;
    /// use agent_core::model::Lineage;
    ///
    /// let effects = Effects::default();
    /// let (parent, fork) = (effects.new_session_id(), effects.new_session_id());
    /// let lineage = Lineage::default().forked(parent, Seq::new(10));
    /// assert_eq!(lineage.base(), Seq::new(10));
    /// assert_eq!(lineage.locate(fork, Seq::new(7)), (parent, Some(Seq::new(10))));
    /// assert_eq!(lineage.locate(fork, Seq::new(11)), (fork, None));
    /// ```
    pub fn locate(&self, own: SessionId, seq: Seq) -> (SessionId, Option<Seq>) {
        match self.segments.iter().find(|segment| seq <= segment.until) {
            Some(segment) => (segment.session, Some(segment.until)),
            None => (own, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(n: u128) -> SessionId {
        SessionId::from_uuid(Uuid::from_u128(n))
    }

    /// A fork names its ancestors, and skips those that contribute nothing.
    #[test]
    fn forked_lineage_names_the_right_ranges() {
        let root = Lineage::default();
        let child = root.forked(id(1), Seq::new(10));
        let grandchild = child.forked(id(2), Seq::new(15));
        assert_eq!(grandchild.base(), Seq::new(15));
        assert_eq!(grandchild.locate(id(3), Seq::new(10)), (id(1), Some(Seq::new(10))));
        assert_eq!(grandchild.locate(id(3), Seq::new(11)), (id(2), Some(Seq::new(15))));
        assert_eq!(grandchild.locate(id(3), Seq::new(16)), (id(3), None));
        // Forked at an event of the grandparent: the parent contributes nothing.
        assert_eq!(
            grandchild.forked(id(3), Seq::new(4)).segments,
            [Segment { session: id(1), until: Seq::new(4) }]
        );
        assert_eq!(grandchild.forked(id(3), Seq::new(10)).segments.len(), 1);
        // The child itself, without events of its own, contributes nothing either.
        assert_eq!(child.forked(id(2), Seq::new(10)), child);
        assert_eq!(child.forked(id(2), Seq::ZERO), Lineage::default());
        assert!(!child.deeper && !grandchild.deeper, "all of the ancestors are named");
    }

    /// A chain of any depth keeps the record bounded and still leads to the first event.
    #[test]
    fn deep_chains_stay_bounded_and_complete() {
        let mut lineages = vec![Lineage::default()];
        for n in 0..10_000u64 {
            let next = lineages[n as usize].forked(id(u128::from(n)), Seq::new(n + 1));
            lineages.push(next);
        }
        let mut hops = 0;
        let (mut at, seq) = (10_000usize, Seq::new(1));
        loop {
            assert!(lineages[at].segments.len() <= Lineage::MAX_SEGMENTS);
            let (owner, _) = lineages[at].locate(id(at as u128), seq);
            let owner = owner.as_uuid().as_u128() as usize;
            if owner == at || lineages[owner].base() < seq {
                assert_eq!(owner, 0, "event 1 lies in the root");
                break;
            }
            at = owner;
            hops += 1;
        }
        assert!(
            lineages.iter().all(|lineage| !lineage.deeper || lineage.segments.len() == Lineage::MAX_SEGMENTS)
        );
        assert!(lineages[10_000].deeper && !lineages[Lineage::MAX_SEGMENTS].deeper);
        assert!(hops <= 10_000 / (Lineage::MAX_SEGMENTS - 1) + 1, "{hops}");
    }
}
