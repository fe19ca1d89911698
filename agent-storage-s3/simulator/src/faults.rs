//! Faults of requests, and their frequencies.

use std::fmt;
use std::time::Duration;

use crate::op::Op;
use crate::seeded::Seeded;

/// Fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// No connection; nothing is sent.
    Refused,
    /// 503 SlowDown; nothing is done.
    Busy,
    /// 429; nothing is done.
    Throttled,
    /// 403 ExpiredToken; nothing is done.
    Forbidden,
    /// 409 to a conditional PUT: another one was under way. Nothing is done.
    Conflict,
    /// 500; nothing is done.
    ErrorBefore,
    /// 500; it is done.
    ErrorAfter,
    /// The connection breaks before it is done.
    ResetBefore,
    /// The connection breaks after it is done, before the answer.
    ResetAfter,
    /// No answer in the client's time; nothing is done.
    TimeoutBefore,
    /// No answer in the client's time; it is done.
    TimeoutAfter,
    /// The request is applied and never answered; the client must time out.
    Hang,
    /// The connection breaks or the time runs out, and it is done up to [`FaultPlan::latest`] later.
    Late,
    /// It is done twice, and the second answer is the one that arrives.
    Duplicate,
    /// It is done and answered, and done once more up to [`FaultPlan::latest`] later.
    Echo,
    /// The body of the answer breaks off.
    Truncated,
    /// The body of the answer comes in drips.
    Drip,
    /// This status, and an error with this code; nothing is done.
    Refusal(u16, &'static str),
}

impl Fault {
    /// Every one, but a [`Refusal`](Self::Refusal).
    pub const ALL: [Self; 17] = [
        Self::Refused,
        Self::Busy,
        Self::Throttled,
        Self::Forbidden,
        Self::Conflict,
        Self::ErrorBefore,
        Self::ErrorAfter,
        Self::ResetBefore,
        Self::ResetAfter,
        Self::TimeoutBefore,
        Self::TimeoutAfter,
        Self::Hang,
        Self::Late,
        Self::Duplicate,
        Self::Echo,
        Self::Truncated,
        Self::Drip,
    ];

    /// Returns `true` if a request of this kind can have this fault.
    pub const fn strikes(self, op: Op) -> bool {
        match self {
            Self::Conflict => op.is_conditional(),
            Self::Late | Self::Duplicate | Self::Echo => op.writes(),
            Self::Truncated | Self::Drip => matches!(op, Op::Get | Op::List),
            _ => true,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Probability of each fault, and durations of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The chances of a request to meet a fault, in a thousand.
    pub per_mille: u32,
    /// The faults to draw from; one that is named twice is drawn twice as often.
    pub faults: Vec<Fault>,
    /// The shortest and the longest time that a request takes to the store, and its answer back.
    pub latency: (Duration, Duration),
    /// Longest delay of a late request.
    pub latest: Duration,
    /// After this the client's HTTP library gives up.
    pub timeout: Duration,
    /// The chances of a LIST, in a thousand, to be answered with one to three keys, and that there are more.
    pub cut_lists: u32,
}

impl FaultPlan {
    /// Nothing goes wrong and nothing takes time.
    pub const fn quiet() -> Self {
        Self {
            per_mille: 0,
            faults: Vec::new(),
            latency: (Duration::ZERO, Duration::ZERO),
            latest: Duration::from_secs(600),
            timeout: Duration::from_secs(30),
            cut_lists: 0,
        }
    }

    /// Nothing goes wrong, and a request takes from 4 to 80 ms.
    pub const fn healthy() -> Self {
        let mut plan = Self::quiet();
        plan.latency = (Duration::from_millis(2), Duration::from_millis(40));
        plan
    }

    /// So many requests in a thousand meet a fault, all faults equally often.
    pub fn hostile(per_mille: u32) -> Self {
        Self { per_mille, faults: Fault::ALL.to_vec(), ..Self::healthy() }
    }

    /// Draws from these faults only.
    #[must_use]
    pub fn with_faults(mut self, faults: impl Into<Vec<Fault>>) -> Self {
        self.faults = faults.into();
        self
    }

    /// Late requests, and those that are carried out again, land up to this time later.
    #[must_use]
    pub const fn with_latest(mut self, latest: Duration) -> Self {
        self.latest = latest;
        self
    }

    /// So many LISTs in a thousand are answered with one to three keys, and that there are more.
    #[must_use]
    pub const fn with_cut_lists(mut self, per_mille: u32) -> Self {
        self.cut_lists = per_mille;
        self
    }

    /// Draws the number of keys of a LIST's answer, if it is cut. Draws nothing if none are.
    pub(crate) fn cut(&self, seeded: &mut Seeded) -> Option<usize> {
        let is_cut = self.cut_lists > 0 && seeded.chance(self.cut_lists);
        is_cut.then(|| usize::try_from(seeded.below(3)).unwrap_or(0) + 1)
    }

    pub(crate) fn draw(&self, seeded: &mut Seeded, op: Op) -> Option<Fault> {
        if self.per_mille == 0 || !seeded.chance(self.per_mille) {
            return None;
        }
        let possible: Vec<_> = self.faults.iter().copied().filter(|fault| fault.strikes(op)).collect();
        let at = usize::try_from(seeded.below(possible.len() as u64)).unwrap_or(0);
        possible.get(at).copied()
    }
}
