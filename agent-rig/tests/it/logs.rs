//! Telemetry of this library while models answer: every span, event and field.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// Words that only prompts, answers, arguments, results and keys hold.
pub(crate) const SECRETS: [&str; 2] = ["PAYLOAD", "SECRET"];

/// Log of this process.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Begins to read the log, and returns it.
pub(crate) fn read() -> &'static Log {
    LOG.get_or_init(|| {
        tracing::subscriber::set_global_default(Reader).expect("nobody else reads");
        Log::default()
    })
}

impl Log {
    /// Checks that there were entries, and that none held a secret.
    pub(crate) fn check(&self) {
        assert!(self.entries.load(Ordering::SeqCst) > 0, "nothing was logged");
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} entries, like {}", wrong.len(), wrong[0]);
    }

    fn entry(&self, entry: &str) {
        self.entries.fetch_add(1, Ordering::SeqCst);
        if SECRETS.iter().any(|secret| entry.contains(secret)) {
            self.wrong.lock().unwrap().push(entry.to_owned());
        }
    }
}

struct Reader;

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

fn entry(metadata: &Metadata<'_>, fields: &Fields) {
    if let Some(log) = LOG.get() {
        log.entry(&format!("{} {}{}", metadata.target(), metadata.name(), fields.0));
    }
}

impl Subscriber for Reader {
    /// At each level what this library logs; of rig only what it does not log at `trace`, where bodies stand.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("agent") || *metadata.level() < tracing::Level::TRACE
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        entry(span.metadata(), &fields);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(log) = LOG.get() {
            log.entry(&fields.0);
        }
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        entry(event.metadata(), &fields);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Everything that is logged on this thread, at any level.
#[derive(Clone, Debug, Default)]
struct All(std::sync::Arc<Mutex<Vec<String>>>);

impl Subscriber for All {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.0.lock().unwrap().push(format!("{} {}", span.metadata().target(), fields.0));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(format!("{} {}", event.metadata().target(), fields.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A refusal that quotes the prompt and the key is in no log: rig logs it as a warning, and bodies at lower levels.
#[tokio::test]
async fn refusals_that_quote_the_prompt_are_in_no_log() {
    use crate::server::{Answer, Server};

    let messages = serde_json::json!({"error": {"message": "SECRET-PROMPT with SECRET-KEY", "code": "SECRET-KEY", "type": "SECRET"}});
    let refused = Answer::status(400, &messages.to_string());
    let broken = Answer::events([&*messages.to_string()]);
    let all = All::default();
    let _guard = tracing::dispatcher::set_default(&tracing::Dispatch::new(all.clone()));
    tracing::info!("this is heard");
    for answer in [refused, broken] {
        let server = Server::answering(move |_| answer.clone()).await;
        for model in crate::transport::models(&server) {
            assert!(crate::transport::collect(&model).await.1.is_some());
        }
    }
    let all = all.0.lock().unwrap();
    assert!(all.iter().any(|entry| entry.contains("this is heard")), "{all:?}");
    let wrong: Vec<_> =
        all.iter().filter(|entry| entry.contains("SECRET") || entry.starts_with("rig")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
