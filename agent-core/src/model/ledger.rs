//! Usage and artifacts of runs: the payloads of `session.run_usage` and `session.artifact_registered`, and the sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::{Result, RunId, check_text, is_default};
use crate::model::blob::BlobInfo;
use crate::setters;

/// Maximum number of currencies in a session's sums.
pub const CURRENCIES_MAX: usize = 8;

/// Number of tokens that a model read and wrote, as its provider reports it. Stored only if the host asks for it.
///
/// ```
/// use agent_core::model::Usage;
///
/// let total = Usage::new(1_200, 80).plus(Usage::new(300, 20));
/// assert_eq!((total.input_tokens, total.output_tokens), (1_500, 100));
///
/// // Of 1,200 tokens that the model read, 1,000 came from a cache and 150 were written to it.
/// let cached = Usage::new(1_200, 80).with_cache(1_000, 150).with_reasoning(60);
/// assert_eq!((cached.cache_read_tokens, cached.cache_write_tokens, cached.reasoning_tokens), (1_000, 150, 60));
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// Number of tokens that the model read, those of a cache included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Number of tokens that the model wrote, those of its reasoning included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Number of input tokens that came from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// Number of input tokens that were written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Number of output tokens that the model spent on reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

impl Usage {
    /// Creates a usage from the numbers of tokens that a model read and wrote, without a cache and reasoning.
    pub const fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, cache_read_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0 }
    }

    /// Sets how many of the input tokens came from the provider's cache, and how many were written to it; the default
    /// is none.
    pub const fn with_cache(mut self, read: u64, written: u64) -> Self {
        (self.cache_read_tokens, self.cache_write_tokens) = (read, written);
        self
    }

    /// Sets how many of the output tokens the model spent on reasoning; the default is none.
    pub const fn with_reasoning(mut self, tokens: u64) -> Self {
        self.reasoning_tokens = tokens;
        self
    }

    /// Returns the sum of both usages; saturates.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
        }
    }
}

/// Amount of money in one currency.
///
/// ```
/// use agent_core::model::Cost;
///
/// // 1.25 dollars.
/// assert_eq!(Cost::new("USD", 1_250_000).micros, 1_250_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cost {
    /// Currency: 1 to 16 bytes, for example `USD`.
    pub currency: String,
    /// Amount in millionths of the currency.
    pub micros: u64,
}

impl Cost {
    /// Creates a cost from a currency and its millionths.
    pub fn new(currency: impl Into<String>, micros: u64) -> Self {
        Self { currency: currency.into(), micros }
    }
}

/// Payload of `session.run_usage`: the usage of a run. Several payloads of one run add up.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::event::NewEvent;
/// use agent_core::model::{Cost, RunUsage, Usage};
///
/// let used = RunUsage::new(Effects::default().new_run_id(), Usage::new(1_200, 80))
///     .with_cost(Some(Cost::new("USD", 4_800)))
///     .with_degraded(false);
/// used.check()?;
/// let event = NewEvent::run_usage(used);
/// assert_eq!(event.kind.as_str(), "session.run_usage");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunUsage {
    /// Id of the run.
    pub run: RunId,
    /// Tokens that the model read and wrote.
    pub usage: Usage,
    /// Cost of these tokens, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// True if some data of the run could not be stored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub degraded: bool,
}

impl RunUsage {
    /// Creates the usage of `run`.
    pub const fn new(run: RunId, usage: Usage) -> Self {
        Self { run, usage, cost: None, degraded: false }
    }

    setters! {
        /// Sets the cost.
        pub fn with_cost(cost: Option<Cost>) => cost = cost;

        /// Sets whether some data of the run could not be stored.
        pub const fn with_degraded(degraded: bool) => degraded = degraded;
    }

    /// Checks the currency.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the currency is empty, longer than 16 bytes, or contains control characters.
    pub fn check(&self) -> Result<()> {
        self.cost.as_ref().map_or(Ok(()), |cost| Ok(check_text("currency", &cost.currency, 16)?))
    }
}

/// Total usage of a session's runs.
///
/// Updated with every `session.run_usage`. Starts at zero in a fork, since each usage is counted once.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::model::{Cost, RunUsage, Usage, UsageTotals};
///
/// let run = Effects::default().new_run_id();
/// let mut totals = UsageTotals::default();
/// totals.add(&RunUsage::new(run, Usage::new(1_200, 80)).with_cost(Some(Cost::new("USD", 4_800))));
/// totals.add(&RunUsage::new(run, Usage::new(300, 20)).with_cost(Some(Cost::new("USD", 1_200))));
/// assert_eq!((totals.usage, totals.cost["USD"]), (Usage::new(1_500, 100), 6_000));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsageTotals {
    /// Number of tokens that the model read and wrote.
    #[serde(flatten)]
    pub usage: Usage,
    /// Millionths of each currency.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cost: BTreeMap<String, u64>,
}

impl UsageTotals {
    /// Adds the usage of a run. Saturates, since numbers in a log are data and may have any value.
    pub fn add(&mut self, usage: &RunUsage) {
        self.usage = self.usage.plus(usage.usage);
        if let Some(cost) = &usage.cost {
            let sum = self.cost.entry(cost.currency.clone()).or_default();
            *sum = sum.saturating_add(cost.micros);
        }
    }
}

/// Payload of `session.artifact_registered`: an artifact that was made, and its location.
///
/// The content is elsewhere, or a [blob](crate::store::BlobStore::put) of the session.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::event::NewEvent;
/// use agent_core::model::{Artifact, BlobInfo};
///
/// let report = Artifact::new("reports/2026-02.html")
///     .with_blob(BlobInfo::of(b"<h1>February</h1>"))
///     .with_media("text/html")
///     .with_run(Effects::default().new_run_id());
/// let event = NewEvent::artifact_registered(report);
/// assert_eq!(event.kind.as_str(), "session.artifact_registered");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Artifact {
    /// Location or name of the artifact: 1 to 1,024 bytes without control characters.
    pub path: String,
    /// Hash of the content, if there is one: at most 256 bytes, for example `sha256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Blob of the session with the content, which is put before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobInfo>,
    /// Media type of the content: at most 256 bytes, for example `text/html`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    /// Run that made the artifact, if a run made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

impl Artifact {
    /// Creates an artifact at `path`.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), hash: None, blob: None, media: None, run: None }
    }

    setters! {
        /// Sets the hash of the content.
        pub fn with_hash(hash: impl Into<String>) => hash = Some(hash.into());

        /// Sets the blob of the session with the content.
        pub const fn with_blob(blob: BlobInfo) => blob = Some(blob);

        /// Sets the media type.
        pub fn with_media(media: impl Into<String>) => media = Some(media.into());

        /// Sets the run that made the artifact.
        #[doc(alias = "by_run")]
        pub const fn with_run(run: RunId) => run = Some(run);
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_text("artifact path", &self.path, 1024)?;
        for (noun, text) in [("artifact hash", &self.hash), ("artifact media type", &self.media)] {
            text.as_ref().map_or(Ok(()), |text| check_text(noun, text, 256))?;
        }
        Ok(())
    }
}
