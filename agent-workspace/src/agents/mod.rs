//! Agents of a workspace, registered by name and source, and their builds.
//!
//! The library builds nothing and fetches no source: it keeps the records that a host's builders and servers share. An
//! agent is [registered](Agents::register) under a name with a reference to its source. A [build](Build) of it is
//! [requested](Agents::request), [claimed](Agents::claim) by one builder under a lease, and ends completed with an image
//! or failed with an error. The newest completed build is [resolved](Agents::resolve), and [pinned](Build::pin) by the
//! sessions that are made from it.
//!
//! The records are documents of [hidden sessions](agent_core::store::HiddenSession::agent) of the workspace: one named
//! `registry` with the agents, and one named `registry/<agent>` for the builds of each. Every change is an event of these
//! sessions, with its actor and its time, and stays in their logs until the workspace is deleted.

mod build;
mod builds;
mod claims;
mod prune;
mod registry;
mod stored;
mod watch;

pub use build::{Build, BuildClaim, BuildPage, BuildStatus};
pub use prune::{BuildPrunePolicy, BuildPruneReport, BuildRetainReason, RetainedBuild};
pub use registry::{AgentPage, Agents, RegisteredAgent};
pub use stored::BUILDS_MAX;
