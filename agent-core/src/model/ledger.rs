//! What runs used and made: the payloads of `session.run_usage` and `session.artifact_registered`, and the sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::{Result, RunId, check_text, is_default};

/// The most currencies that a session's sums may have.
pub const CURRENCIES_MAX: usize = 8;

/// How many tokens a model read and wrote, as its provider says. Stored only where the host asks for it.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens that it read.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens that it wrote.
    #[serde(default)]
    pub output_tokens: u64,
}

impl Usage {
    /// So many tokens.
    pub const fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens }
    }

    /// This and `other`.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
        }
    }
}

/// What something cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cost {
    /// The currency: 1 to 16 bytes, `USD` say.
    pub currency: String,
    /// Millionths of it.
    pub micros: u64,
}

impl Cost {
    /// So many millionths of a currency.
    pub fn new(currency: impl Into<String>, micros: u64) -> Self {
        Self { currency: currency.into(), micros }
    }
}

/// The payload of `session.run_usage`: what a run used. Several of one run add up.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunUsage {
    /// The run.
    pub run: RunId,
    /// What the model read and wrote.
    pub usage: Usage,
    /// What that cost, where somebody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Whether something that the run did could not be stored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub degraded: bool,
}

impl RunUsage {
    /// What `run` used.
    pub const fn new(run: RunId, usage: Usage) -> Self {
        Self { run, usage, cost: None, degraded: false }
    }

    /// Adds what it cost.
    pub fn with_cost(mut self, cost: Option<Cost>) -> Self {
        self.cost = cost;
        self
    }

    /// Says whether something that the run did could not be stored.
    pub const fn with_degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// Checks the currency.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is empty, longer than 16 bytes, or holds control characters.
    pub fn check(&self) -> Result<()> {
        self.cost.as_ref().map_or(Ok(()), |cost| Ok(check_text("currency", &cost.currency, 16)?))
    }
}

/// What the runs of a session used, all together; kept with every `session.run_usage`, and starts at nothing in a fork,
/// since it was spent once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsageTotals {
    /// Tokens that the model read and wrote.
    #[serde(flatten)]
    pub usage: Usage,
    /// Millionths, by currency.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cost: BTreeMap<String, u64>,
}

impl UsageTotals {
    /// Adds what a run used. Saturates: numbers in a log are data, and may be anything.
    pub fn add(&mut self, usage: &RunUsage) {
        self.usage = self.usage.plus(usage.usage);
        if let Some(cost) = &usage.cost {
            let sum = self.cost.entry(cost.currency.clone()).or_default();
            *sum = sum.saturating_add(cost.micros);
        }
    }
}

/// The payload of `session.artifact_registered`: something that was made, and where it is. The library keeps the name
/// of it, never the thing.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Artifact {
    /// Where it is, or what it is called: 1 to 1,024 bytes without control characters.
    pub path: String,
    /// The hash of its content, where it has one: at most 256 bytes, `sha256:…` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// What it is: at most 256 bytes, `text/html` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    /// The run that made it, where it was a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

impl Artifact {
    /// Something at `path`.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), hash: None, media: None, run: None }
    }

    /// Adds the hash of its content.
    pub fn with_hash(mut self, hash: impl Into<String>) -> Self {
        self.hash = Some(hash.into());
        self
    }

    /// Says what it is.
    pub fn with_media(mut self, media: impl Into<String>) -> Self {
        self.media = Some(media.into());
        self
    }

    /// Names the run that made it.
    pub const fn by_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_text("artifact path", &self.path, 1024)?;
        for (noun, text) in [("artifact hash", &self.hash), ("artifact media type", &self.media)] {
            text.as_ref().map_or(Ok(()), |text| check_text(noun, text, 256))?;
        }
        Ok(())
    }
}
