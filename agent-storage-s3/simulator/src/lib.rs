//! An in-memory S3, or Google Cloud Storage, behind the real client: for tests, unpublished.
//!
//! A [`Simulator`] is a bucket. Its [`Connector`]s stand where object_store's HTTP client would stand, so that
//! everything above it is the code that runs in production: request building, signing, XML, errors. It knows what
//! the library uses, and answers 405 to the rest:
//!
//! | request | with |
//! |---|---|
//! | GET, HEAD | `Range`, `If-Match`, `If-None-Match` |
//! | PUT | `If-None-Match: *`, `If-Match` |
//! | POST `?uploads`, PUT `?partNumber&uploadId`, POST and DELETE `?uploadId` | parts of at least 5 MiB but the last |
//! | DELETE, POST `?delete` | |
//! | GET `?list-type=2` | `prefix`, `delimiter`, `start-after`, `max-keys`, `continuation-token` |
//!
//! In the [`Dialect`] of Google the precondition of a PUT is `x-goog-if-generation-match`, each write has a generation of
//! its own, and DELETE of what is missing is 404.
//!
//! As long as the [`FaultPlan`] is quiet it is a fast, strongly consistent store that works on real time and on any
//! runtime. With a fault plan it loses answers, answers twice, or lets a PUT land ten minutes late; then it wants
//! tokio's paused time and one thread, and one seed is one course of events: [`Simulator::trace`] is equal to the
//! byte. [`Quirks`] make it a store that must be refused.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> object_store::Result<()> {
//! use object_store::{ObjectStoreExt, aws::AmazonS3Builder, path::Path};
//! use s3_simulator::Simulator;
//!
//! let simulator = Simulator::new(7);
//! let store = AmazonS3Builder::new()
//!     .with_bucket_name("bucket")
//!     .with_access_key_id("any")
//!     .with_secret_access_key("any")
//!     .with_http_connector(simulator.connector("writer-1"))
//!     .build()?;
//! store.put(&Path::from("a/1"), "one".into()).await?;
//! assert_eq!(store.get(&Path::from("a/1")).await?.bytes().await?, "one");
//! assert_eq!((simulator.counts().put, simulator.counts().get), (1, 1));
//! # Ok(()) }
//! ```

mod answer;
mod bucket;
mod clock;
mod faults;
mod listing;
mod object;
mod op;
mod request;
mod seeded;
mod service;
mod simulator;
mod trace;

pub use clock::SimulatedClock;
pub use faults::{Fault, FaultPlan};
pub use object::{Dialect, Quirks, Versioning};
pub use op::Op;
pub use seeded::Seeded;
pub use service::Connector;
pub use simulator::Simulator;
pub use trace::{Counts, Entry};
