//! Subscribers of one thread, beside other tests in other threads.

use std::sync::Once;

use tracing::subscriber::{DefaultGuard, Interest, set_global_default};
use tracing::{Dispatch, Event, Metadata, Subscriber, span};

/// Subscriber of the threads that nobody listens to: it wants nothing, and leaves open whether others do.
struct Nobody;

impl Subscriber for Nobody {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Makes a subscriber that of this thread until the guard is dropped.
///
/// A call site that another thread reaches first, while this subscriber is being made the thread's, would otherwise be off for good.
pub(crate) fn listen(subscriber: impl Into<Dispatch>) -> DefaultGuard {
    static NOBODY: Once = Once::new();
    NOBODY.call_once(|| set_global_default(Nobody).expect("no other subscriber is of the whole process"));
    tracing::dispatcher::set_default(&subscriber.into())
}
