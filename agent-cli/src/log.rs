//! Log on standard error: warnings of the library, and what `RUST_LOG` asks for.

use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::visible::Visible;

/// Crates of the project, whose messages hold nothing that is said and no keys. Messages of other crates are not shown at
/// any level: some quote requests, answers and headers, even in warnings.
const CRATES: [&str; 12] = [
    "agent_acp",
    "agent_admin",
    "agent_cli",
    "agent_core",
    "agent_mcp",
    "agent_rig",
    "agent_runtime",
    "agent_storage_fs",
    "agent_storage_s3",
    "agent_storage_sqlite",
    "agent_transcript",
    "agent_workspace",
];

/// Variable with the levels that are shown.
const VARIABLE: &str = "RUST_LOG";

/// Starts the log of the process.
///
/// # Errors
///
/// A text for the user, if what `RUST_LOG` asks for is not understood; warnings are shown then.
pub(crate) fn init() -> Result<(), String> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let parsed = asked.parse::<Targets>();
    let layer = fmt::layer().with_writer(|| Visible(std::io::stderr())).with_ansi(false);
    let (layer, levels): (Box<dyn Layer<Registry> + Send + Sync>, _) = match &parsed {
        // A span is shown when it ends, with its duration.
        Ok(levels) if !asked.trim().is_empty() => {
            (layer.with_span_events(FmtSpan::CLOSE).boxed(), levels.clone())
        }
        _ => {
            let warnings = Targets::new().with_default(LevelFilter::WARN);
            (layer.without_time().with_target(false).boxed(), warnings)
        }
    };
    let ours = filter_fn(|of| is_ours(of.target()));
    tracing_subscriber::registry().with(layer).with(levels).with(ours).init();
    parsed.map(drop).map_err(|error| {
        format!("{VARIABLE}={asked}: {error}; write a level like debug, or levels like warn,agent_mcp=debug")
    })
}

/// Returns whether a message is of a crate of the project.
fn is_ours(target: &str) -> bool {
    CRATES.contains(&target.split("::").next().unwrap_or(target))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::Targets;

    use super::*;

    fn is_shown(asked: &str, target: &str, level: LevelFilter) -> bool {
        let level = level.into_level().unwrap();
        asked.parse::<Targets>().unwrap().would_enable(target, &level) && is_ours(target)
    }

    #[test]
    fn other_crates_are_never_shown() {
        use LevelFilter as Level;
        for asked in
            ["trace", "rig_core=trace,reqwest=trace", "agent=trace", "a=trace", "agent_client_protocol=trace"]
        {
            for target in
                ["rig_core::client", "reqwest", "hyper_util", "rmcp", "gemini.cache", "agent_client_protocol"]
            {
                assert!(!is_shown(asked, target, Level::ERROR), "{asked}: {target}");
            }
        }
        for (asked, target, level, is) in [
            ("debug", "agent_runtime::turn::ask", Level::DEBUG, true),
            ("debug", "agent_runtime::turn::ask", Level::TRACE, false),
            ("agent=info", "agent_mcp::link", Level::INFO, true),
            ("agent_mcp=debug", "agent_mcp::link", Level::DEBUG, true),
            ("agent_mcp=debug", "agent_runtime", Level::ERROR, false),
            ("warn,agent_mcp=debug", "agent_runtime", Level::WARN, true),
            ("trace,agent_mcp::link=off", "agent_mcp::link", Level::ERROR, false),
            ("trace,agent_mcp::link=off", "agent_mcp::hub", Level::TRACE, true),
            ("agent_mcp=trace,agent=off", "agent_mcp::hub", Level::TRACE, true),
            ("off", "agent_runtime", Level::ERROR, false),
        ] {
            assert_eq!(is_shown(asked, target, level), is, "{asked}: {target} {level}");
        }
    }
}
